"""What a program means, as data: everything whoever runs it needs, resolved and checked. No code is made from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from minutebook.dsl.diagnostic import Diagnostic
from minutebook.dsl.placeholder import filled, placeholders
from minutebook.dsl.tree import Backoff, Statement
from minutebook.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class ModelSpec:
    name: str
    """What the program calls it."""
    provider: str
    model: str
    """What the provider calls it."""
    temperature: float | None = None
    max_tokens: int | None = None
    """The longest answer."""
    max_input_tokens: int | None = None
    """The window, where the program says it; None leaves it to the table of models."""

    @property
    def id(self) -> str:
        """`provider/model`, by which tables know it."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class FieldType:
    """`string`, `int`, `float`, `bool`; a choice of texts; a list or another schema."""

    kind: Literal["string", "int", "float", "bool", "choice", "list", "schema", "optional"]
    item: "FieldType | None" = None
    """Of a list, or what may be left out."""
    options: tuple[str, ...] = ()
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSpec:
    name: str
    type: FieldType
    description: str = ""


@dataclass(frozen=True, slots=True)
class SchemaSpec:
    """The fields of a structured answer; `output_type` makes a dataclass of it."""

    name: str
    fields: tuple[FieldSpec, ...]


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be shown, or the environment variable that has it."""

    env: str | None = None
    value: str | None = field(default=None, repr=False)

    def reveal(self, environment: Mapping[str, str]) -> str:
        """The value itself.

        Raises:
            InvalidSetting: the environment variable is not set.
        """
        if self.env is None:
            return self.value or ""
        if self.env not in environment:
            raise InvalidSetting(f"the environment variable {self.env}", None, "it a value: a tool needs it")
        return environment[self.env]


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of tools at a URL."""

    url: str
    auth: Literal["bearer", "basic"] | None = None
    secret: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class McpProcess:
    """A server of tools that is started as a program and spoken to through its stdin and stdout."""

    command: tuple[str, ...]
    env: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltinTools:
    """Tools that come with minutebook: see `builtin_tools`."""

    name: str


@dataclass(frozen=True, slots=True)
class PythonFunction:
    module: str
    function: str


ToolOrigin: TypeAlias = McpServer | McpProcess | BuiltinTools | PythonFunction


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str
    origin: ToolOrigin


@dataclass(frozen=True, slots=True)
class ToolRef:
    """A tool that an agent may call."""

    tool: str
    """The definition; where `external`, the name by which whoever runs the program brings the server."""
    member: str | None = None
    """One tool of the server; None for all of them."""
    external: bool = False


@dataclass(frozen=True, slots=True)
class RetrySpec:
    name: str
    retries: int
    """How often to try again after the first time."""
    backoff: Backoff = "exponential"
    first_seconds: float = 1.0
    """The wait before the first retry; doubled each time, added to each time, or always the same."""

    @property
    def attempts(self) -> int:
        """How often to try in all."""
        return self.retries + 1


@dataclass(frozen=True, slots=True)
class TimeoutSpec:
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PromptSpec:
    name: str
    text: str
    model: str | None = None
    """The model it is for: its own, else `main`, else the only one; None where that cannot be told and nobody asks."""
    expecting: str | None = None
    """The schema of the answer; None for text."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names it has places for: `input`, and variables of the flow that calls it."""
        return placeholders(self.text)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with values in their places."""
        return filled(self.text, values)


@dataclass(frozen=True, slots=True)
class HistorySpec:
    """How an agent's history is kept short: by a strategy, or by a flow that is given what is to be shortened."""

    strategy: str | None = None
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """`policy compaction`: how every history is kept short. None leaves a setting to the strategy."""

    history: HistorySpec | None = None
    """For agents that say nothing themselves."""
    trigger: float | None = None
    """The share of the window at which to compact."""
    target: float | None = None
    """The share of the window to compact to."""
    keep_turns: int | None = None
    keep_files: int | None = None
    model: str | None = None
    """The model that writes summaries; None for the agent's own."""
    share: bool = False
    """Whether agents that an agent calls are told the summary of its history."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    name: str
    """Empty for the agent without a name."""
    model: str
    instruction: str
    """The prompt that is its system message."""
    prompt: str | None = None
    """The prompt that it is asked, with the input in its place; None for the input alone."""
    tools: tuple[ToolRef, ...] = ()
    produces: str | None = None
    """The schema of its answer: its own, or what its instruction or prompt expects; None for text."""
    retry: RetrySpec | None = None
    timeout_seconds: float | None = None
    description: str = ""
    delegate: tuple[str, ...] = ()
    """Agents that it may hand the conversation over to."""
    use: tuple[str, ...] = ()
    """Agents that it may ask, as it calls tools."""
    history: HistorySpec | None = None
    """Its own, or the policy's; None for none."""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    name: str
    parameters: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a program begins when nobody says where."""

    kind: Literal["agent", "flow"]
    name: str


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A checked program, ready to be run: plain values that can be compared, hashed, pickled and shared."""

    models: tuple[ModelSpec, ...] = ()
    schemas: tuple[SchemaSpec, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    retries: tuple[RetrySpec, ...] = ()
    timeouts: tuple[TimeoutSpec, ...] = ()
    prompts: tuple[PromptSpec, ...] = ()
    agents: tuple[AgentSpec, ...] = ()
    flows: tuple[FlowSpec, ...] = ()
    compaction: CompactionSpec = CompactionSpec()
    entry: Entry | None = None
    """Flow `main`, the agent `main` or the one without a name, the only flow, or the only agent that no other calls."""
    source: str = field(default="<text>", compare=False)
    warnings: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)

    def model(self, name: str) -> ModelSpec:
        return _named("model", self.models, name)

    def schema(self, name: str) -> SchemaSpec:
        return _named("schema", self.schemas, name)

    def tool(self, name: str) -> ToolSpec:
        return _named("tool", self.tools, name)

    def prompt(self, name: str) -> PromptSpec:
        return _named("prompt", self.prompts, name)

    def agent(self, name: str) -> AgentSpec:
        return _named("agent", self.agents, name)

    def flow(self, name: str) -> FlowSpec:
        return _named("flow", self.flows, name)

    def output_type(self, schema: str) -> type:
        """The dataclass of a schema, for `PromptTemplate[…]` and `json_schema`."""
        from minutebook.dsl.output import output_type

        return output_type(self.schema(schema), self.schemas)

    def json_schema(self, schema: str, *, strict: bool = False) -> dict[str, Any]:
        """The JSON Schema of a schema."""
        from minutebook.prompt.schema import json_schema

        return json_schema(self.output_type(schema), strict=strict)


def _named(kind: str, items: Iterable[N], name: str) -> N:
    known = {item.name: item for item in items}
    if name not in known:
        raise InvalidSetting(kind, name, f"one that the program defines: {', '.join(known) or 'there is none'}")
    return known[name]
