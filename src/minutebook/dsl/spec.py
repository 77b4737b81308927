"""What a program means, as data: everything whoever runs it needs, resolved and checked. No code is made from it.

`${name}` in the text of a prompt: where a value goes. `$${name}` stands for itself.

Schemas as dataclasses, which is what prompts ask for and answers are read into.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

from minutebook.agent.mcp import ToolOrigin, ToolRef
from minutebook.dsl.diagnostics import Diagnostic
from minutebook.dsl.syntax import Backoff, Statement
from minutebook.errors import InvalidSetting

INPUT: Final = "input"
"""What an agent, a prompt or the whole program was asked."""

_PLACEHOLDER: Final = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}\n]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """The names a text has places for, each once, in their order."""
    found = (match["name"] for match in _PLACEHOLDER.finditer(text) if match["name"] is not None)
    return tuple(dict.fromkeys(found))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values in their places; they are put in as they are and not searched again."""
    return _PLACEHOLDER.sub(lambda match: "${" if match["escaped"] else values[match["name"]], text)


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
class ToolSpec:
    name: str
    origin: ToolOrigin


@dataclass(frozen=True, slots=True)
class RetrySpec:
    name: str
    retries: int
    """How often to try again after the first time."""
    backoff: Backoff = "exponential"
    first_wait_seconds: float = 1.0
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


def output_type(schema: SchemaSpec, schemas: Sequence[SchemaSpec]) -> type:
    """The frozen dataclass of a schema, the same one each time; `schemas` are those that it may refer to."""
    return _made(schema, tuple(schemas))


@lru_cache(maxsize=1024)
def _made(schema: SchemaSpec, schemas: tuple[SchemaSpec, ...]) -> type:
    fields = [_field(each, schemas) for each in schema.fields]
    return make_dataclass(schema.name, fields, frozen=True, kw_only=True, namespace={"__doc__": ""})


def _field(spec: FieldSpec, schemas: tuple[SchemaSpec, ...]) -> tuple[str, Any, Any]:
    hint = _hint(spec.type, schemas)
    if spec.description:
        hint = Annotated[hint, spec.description]
    return spec.name, hint, field(default=None) if spec.type.kind == "optional" else field()


def _hint(kind: FieldType, schemas: tuple[SchemaSpec, ...]) -> Any:
    match kind.kind:
        case "choice":
            return Literal[kind.options]
        case "list":
            assert kind.item is not None
            item: Any = _hint(kind.item, schemas)
            return tuple[item, ...]
        case "optional":
            assert kind.item is not None
            return _hint(kind.item, schemas) | None
        case "schema":
            return _made(next(each for each in schemas if each.name == kind.schema), schemas)
    return {"string": str, "int": int, "float": float, "bool": bool}[kind.kind]
