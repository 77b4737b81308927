"""A compiled program as data: models, tools, prompts, agents and flows, with all names resolved and checked.

`${name}` in the text of a prompt is a placeholder for a value; `$${name}` is the literal text `${name}`. Schemas become
dataclasses, into which the answers are parsed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

from minutebook.agent.mcp import ToolOrigin, ToolRef
from minutebook.dsl.diagnostics import Diagnostic
from minutebook.dsl.syntax import Backoff, Statement
from minutebook.errors import InvalidSetting

INPUT: Final = "input"
"""The variable with the input of an agent, a prompt or the program."""

_PLACEHOLDER: Final = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}\n]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """The names of the placeholders in a text, without duplicates, in order."""
    names = (match["name"] for match in _PLACEHOLDER.finditer(text) if match["name"] is not None)
    return tuple(dict.fromkeys(names))


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text with values for its placeholders. Placeholders in the values are not replaced."""
    return _PLACEHOLDER.sub(lambda match: "${" if match["escaped"] else values[match["name"]], text)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    name: str
    """The name in the program."""
    provider: str
    model: str
    """The provider's name of the model."""
    temperature: float | None = None
    max_tokens: int | None = None
    """The maximum tokens of an answer."""
    max_input_tokens: int | None = None
    """The context window; None for the one in the table of models."""

    @property
    def id(self) -> str:
        """`provider/model`, the key in the table of models."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field: a scalar, a choice of texts, a list, another schema, or one of these that is optional."""

    kind: Literal["string", "int", "float", "bool", "choice", "list", "schema", "optional"]
    item: "FieldType | None" = None
    """The type of the items of a list, or of an optional value."""
    options: tuple[str, ...] = ()
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class FieldSpec:
    name: str
    type: FieldType
    description: str = ""


@dataclass(frozen=True, slots=True)
class SchemaSpec:
    """The fields of a structured answer; see `WorkflowSpec.output_type` for the dataclass."""

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
    """Maximum number of retries after the first attempt."""
    backoff: Backoff = "exponential"
    first_wait_seconds: float = 1.0
    """The wait before the first retry. Later waits double, grow by this amount or stay the same, depending on `backoff`."""

    @property
    def attempts(self) -> int:
        """Maximum number of attempts, including the first."""
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
    """The prompt's own model, else `main`, else the only model of the program. It may be None if nothing calls the prompt."""
    expecting: str | None = None
    """The schema of the answer; None for text."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names of its placeholders: `input`, and variables of the flow that calls it."""
        return placeholders(self.text)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with values for its placeholders."""
        return with_values(self.text, values)


@dataclass(frozen=True, slots=True)
class HistorySpec:
    """The strategy that compacts an agent's history, or the flow that writes its summaries."""

    strategy: str | None = None
    """The name of a strategy, or a preset of the token budget."""
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """`policy compaction`: the settings of the history strategies. None keeps the strategy's default."""

    history: HistorySpec | None = None
    """The history of agents without their own."""
    trigger: float | None = None
    """The share of the window at which to compact."""
    target: float | None = None
    """The share of the window to compact to."""
    keep_turns: int | None = None
    keep_files: int | None = None
    model: str | None = None
    """The model that writes summaries; None for the agent's own."""
    share: bool = False
    """Whether an agent passes the summary of its history to the agents that it calls."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    name: str
    """Empty for the agent without a name."""
    model: str
    instruction: str
    """The name of the prompt for the system message."""
    prompt: str | None = None
    """The name of the prompt for the user message, which has a placeholder for the input; None to send the input alone."""
    tools: tuple[ToolRef, ...] = ()
    produces: str | None = None
    """The schema of the answer: the agent's own, or the one that its instruction or prompt expects; None for text."""
    retry: RetrySpec | None = None
    timeout_seconds: float | None = None
    description: str = ""
    delegate: tuple[str, ...] = ()
    """Agents that may answer in place of this one."""
    use: tuple[str, ...] = ()
    """Agents that this one may call as tools."""
    history: HistorySpec | None = None
    """The agent's own history, or the policy's; None to keep all messages."""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    name: str
    parameters: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """The agent or flow with which a program starts by default."""

    kind: Literal["agent", "flow"]
    name: str


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A compiled program: plain values that can be compared, hashed, pickled and shared."""

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
        return _item_named("model", self.models, name)

    def schema(self, name: str) -> SchemaSpec:
        return _item_named("schema", self.schemas, name)

    def tool(self, name: str) -> ToolSpec:
        return _item_named("tool", self.tools, name)

    def prompt(self, name: str) -> PromptSpec:
        return _item_named("prompt", self.prompts, name)

    def agent(self, name: str) -> AgentSpec:
        return _item_named("agent", self.agents, name)

    def flow(self, name: str) -> FlowSpec:
        return _item_named("flow", self.flows, name)

    def output_type(self, schema: str) -> type:
        """The dataclass of a schema, for `PromptTemplate[…]` and `json_schema`."""
        return _schema_class(self.schema(schema), self.schemas)

    def json_schema(self, schema: str, *, strict: bool = False) -> dict[str, Any]:
        """The JSON Schema of the dataclass of a schema."""
        from minutebook.prompt.schema import json_schema

        return json_schema(self.output_type(schema), strict=strict)


def _item_named(kind: str, items: Iterable[N], name: str) -> N:
    by_name = {item.name: item for item in items}
    if name not in by_name:
        raise InvalidSetting(kind, name, f"one that the program defines ({', '.join(by_name) or 'it defines none'})")
    return by_name[name]


@lru_cache(maxsize=1024)
def _schema_class(schema: SchemaSpec, schemas: tuple[SchemaSpec, ...]) -> type:
    """The frozen dataclass of a schema, the same one on each call; `schemas` are those that it may refer to."""
    fields = [_dataclass_field(spec, schemas) for spec in schema.fields]
    return make_dataclass(schema.name, fields, frozen=True, kw_only=True, namespace={"__doc__": ""})


def _dataclass_field(spec: FieldSpec, schemas: tuple[SchemaSpec, ...]) -> tuple[str, Any, Any]:
    hint = _type_hint(spec.type, schemas)
    if spec.description:
        hint = Annotated[hint, spec.description]
    return spec.name, hint, field(default=None) if spec.type.kind == "optional" else field()


def _type_hint(field_type: FieldType, schemas: tuple[SchemaSpec, ...]) -> Any:
    match field_type.kind:
        case "choice":
            return Literal[field_type.options]
        case "list":
            assert field_type.item is not None
            item: Any = _type_hint(field_type.item, schemas)
            return tuple[item, ...]
        case "optional":
            assert field_type.item is not None
            return _type_hint(field_type.item, schemas) | None
        case "schema":
            return _schema_class(next(schema for schema in schemas if schema.name == field_type.schema), schemas)
    return {"string": str, "int": int, "float": float, "bool": bool}[field_type.kind]
