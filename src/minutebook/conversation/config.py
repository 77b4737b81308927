"""Settings of retention and policies, and two tables of rules for combinations of retention settings.

The code looks up the rules in the tables, the tests check the tables, and the docs print them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from minutebook.errors import InvalidSetting

Mode: TypeAlias = Literal["off", "shadow", "on"]
ToolPersistence: TypeAlias = Literal["full", "trimmed", "none"]
Count: TypeAlias = Annotated[int, Field(ge=0)]
RETENTION: Final = "retention"
TOKEN_BUDGET: Final = "token_budget"  # noqa: S105 - a budget of tokens

_EXPECTED: Final = {
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "finite_number": "a number above 0",
    "float_type": "a number",
    "frozen_set_type": "a list of names",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a whole number, {ge} or more",
    "int_type": "a whole number",
    "less_than_equal": "a whole number, {le} or less",
    "literal_error": "{expected}",
    "model_type": "a mapping of keys to values",
    "string_too_short": "a name that is not empty",
    "string_type": "text",
    "tuple_type": "a list",
}
"""pydantic's error type → the valid values, as `InvalidSetting` words them."""


def invalid_setting(error: ErrorDetails, name: str) -> InvalidSetting:
    """Convert a pydantic error. A validator's own `InvalidSetting` is returned unchanged."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, InvalidSetting):
        return cause
    expected = _EXPECTED.get(error["type"], error["msg"]).format_map(error.get("ctx", {}))
    return InvalidSetting(name, error["input"], expected.replace("'", ""))


def value_from_text(text: str, kind: Any) -> Any:
    """Parse a text from the environment or the command line as type `kind`; return the text if it is not valid."""
    if not text and NoneType in get_args(kind):
        return None
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return text


class Settings(BaseModel):
    """A section of a configuration. Values from code are validated like values from a file.

    Raises:
        InvalidSetting: a value has the wrong type, is out of range, or contradicts another one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first_error = error.errors()[0]
            raise invalid_setting(first_error, ".".join(map(str, first_error["loc"]))) from None

    # With this flag, pydantic validates nested sections without calling `__init__`, so an error has the full path of its key.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: Any) -> Any:
        """Use the default for a section, list or mapping that is None: in YAML, all of its lines are commented out."""
        if not isinstance(values, Mapping):
            return {} if values is None else values
        collections = {
            name for name, info in cls.model_fields.items() if info.get_default(call_default_factory=True) in ((), {})
        }
        return {name: value for name, value in values.items() if value is not None or name not in collections}


class RetentionConfig(Settings):
    """How much of a conversation is sent to the model, and how much of its tool calls is stored. See `truth_table`.

    Raises:
        InvalidSetting: a number is negative, or `tool_persistence` and `persist_tool_invocations` contradict each other.
    """

    preserve_turns: Count = 2
    """Minimum finished turns that are sent with their tool calls and results. Older turns lose theirs in steps: when
    the oldest turns are left out, or when too many turns have them."""
    max_loaded_messages: Count = 20
    """Maximum visible messages of finished turns that are loaded: those of the user, and answers with text. The preserved
    turns are always loaded."""
    persist_tool_invocations: bool | None = None
    """Older form of `tool_persistence`: true is `full`, false is `trimmed`. Default: true."""
    tool_persistence: ToolPersistence | None = None
    """How much of a tool call stays in the record when its turn is no longer preserved. Default: full."""
    prune_tools_for_llm: bool = True
    """Whether older turns are sent to the model as text only, without tool calls."""
    preserve_tools_for_latest_turns: bool = True
    """Whether the preserved turns are sent with their tool calls."""
    expose_tool_details: bool = False
    """Whether clients get the arguments and results of tools, or only names and status."""
    mode: Mode = "on"
    """`shadow` computes and logs what would be pruned and trimmed, and changes nothing."""

    @model_validator(mode="after")
    def _resolve_tool_persistence(self) -> Self:
        persist, persistence = self.persist_tool_invocations, self.tool_persistence
        if persistence is None:
            persistence = "trimmed" if persist is False else "full"
        if persist is not None and persist is not (persistence == "full"):
            expected = "full" if persist else "trimmed or none"
            problem = f"{expected}, because persist_tool_invocations is {str(persist).lower()}"
            raise InvalidSetting("tool_persistence", persistence, problem)
        self.__dict__.update(tool_persistence=persistence, persist_tool_invocations=persistence == "full")
        return self


class ConversationConfig(Settings):
    """How much of a conversation is sent to the model."""

    include_history: bool = True
    """If false, only the turn being answered is sent."""
    history_limit: Count = 5
    """Maximum messages of history if `retention` is None. Older configurations have this key instead of `retention`."""
    retention: RetentionConfig | None = RetentionConfig()
    """None if a file sets `history_limit` and not `retention`."""
    policy: str = TOKEN_BUDGET
    """The name of the policy: retention, one of `policies`, a strategy or a manager. Default: `retention` for
    threads, and for everything if `retention` or `history_limit` is set; otherwise `token_budget`."""

    @model_validator(mode="after")
    def _resolve_policy(self) -> Self:
        if "policy" not in self.model_fields_set and self.model_fields_set & {"retention", "history_limit"}:
            self.__dict__["policy"] = RETENTION
        return self

    @property
    def threads_policy(self) -> str:
        """The policy of `/threads`."""
        return self.policy if "policy" in self.model_fields_set else RETENTION

    @property
    def effective_retention(self) -> RetentionConfig:
        """`retention`, or if that is None the defaults with `history_limit`."""
        return RetentionConfig(max_loaded_messages=self.history_limit) if self.retention is None else self.retention


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The name of a manager and its settings."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _manager_config(value: Any) -> ManagerConfig:
    """Read a manager given as `token_budget` or as `{name: token_budget, target: 0.5}`."""
    if isinstance(value, ManagerConfig):
        return value
    settings = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise InvalidSetting("manager", value, "the name of a manager, such as token_budget")
    return ManagerConfig(name, settings)


def _as_sequence(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


_Managers: TypeAlias = Annotated[
    tuple[Annotated[ManagerConfig, BeforeValidator(_manager_config)], ...], BeforeValidator(_as_sequence), Strict(False)
]


class PolicyConfig(Settings):
    """A user-defined policy: a strategy, managers, or both. Settings have the same names as in the agent language.

    Raises:
        InvalidSetting: the policy is empty, or has settings of a strategy but no strategy.
    """

    strategy: str | None = None
    """The strategy that compacts a full window: summarize, truncate, turns, hybrid or a registered one."""
    trigger: float | None = None
    """The share of the window above which the strategy compacts."""
    target: float | None = None
    """The share of the window that is used after compaction."""
    keep_turns: int | None = None
    keep_files: int | None = None
    model: str | None = None
    """The model that writes summaries. Default: the conversation's model."""
    manager: _Managers = ()
    """The managers that curate the messages, in order."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum tokens of a request's messages, and the window of the strategy. Default: the model's input limit."""

    @model_validator(mode="after")
    def _require_effect(self) -> Self:
        if self.strategy is None and not self.manager and self.max_tokens is None:
            raise InvalidSetting("policy", {}, "at least one of strategy, manager, max_tokens")
        for name in ("trigger", "target", "keep_turns", "keep_files", "model"):
            if self.strategy is None and getattr(self, name) is not None:
                raise InvalidSetting(name, getattr(self, name), "no value, because the policy has no strategy")
        return self


class Sent(StrEnum):
    """The form in which turns are sent to the model."""

    WITH_TOOLS = "with tools"
    TEXT_ONLY = "text only"


class Persistence(StrEnum):
    """The parts of a tool call that stay in the record."""

    ALL = "everything"
    STATUS = "name and status"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class SendingRule:
    """In which form turns are sent with these settings. None matches any value."""

    mode: Mode
    prune_tools_for_llm: bool | None
    preserve_tools_for_latest_turns: bool | None
    older: Sent
    """Turns that are not preserved."""
    latest: Sent
    """The preserved turns. The turn being answered is always sent with its tools."""


@dataclass(frozen=True, slots=True)
class PersistenceRule:
    """The parts of tool calls that stay in the record with these settings. None matches any value."""

    mode: Mode
    tool_persistence: ToolPersistence | None
    older: Persistence
    latest: Persistence


SENDING_RULES: Final = (
    SendingRule("off", None, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SendingRule("shadow", None, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SendingRule("on", False, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SendingRule("on", True, True, Sent.TEXT_ONLY, Sent.WITH_TOOLS),
    SendingRule("on", True, False, Sent.TEXT_ONLY, Sent.TEXT_ONLY),
)
PERSISTENCE_RULES: Final = (
    PersistenceRule("off", None, Persistence.ALL, Persistence.ALL),
    PersistenceRule("shadow", None, Persistence.ALL, Persistence.ALL),
    PersistenceRule("on", "full", Persistence.ALL, Persistence.ALL),
    PersistenceRule("on", "trimmed", Persistence.STATUS, Persistence.ALL),
    PersistenceRule("on", "none", Persistence.NAME, Persistence.ALL),
)


def sending_rule(config: RetentionConfig, *, mode: Mode | None = None) -> SendingRule:
    """The rule for a configuration; `mode` overrides the configuration's."""
    settings = (mode or config.mode, config.prune_tools_for_llm, config.preserve_tools_for_latest_turns)
    return next(
        rule
        for rule in SENDING_RULES
        if _matches(settings, (rule.mode, rule.prune_tools_for_llm, rule.preserve_tools_for_latest_turns))
    )


def persistence_rule(config: RetentionConfig, *, mode: Mode | None = None) -> PersistenceRule:
    """The rule for a configuration; `mode` overrides the configuration's."""
    settings = (mode or config.mode, config.tool_persistence)
    return next(rule for rule in PERSISTENCE_RULES if _matches(settings, (rule.mode, rule.tool_persistence)))


def truth_table() -> str:
    """Both tables of rules as text."""
    return "\n\n".join(
        (
            _table(
                ["mode", "prune_tools_for_llm", "preserve_tools_for_latest_turns", "older turns", "latest turns"],
                (
                    (
                        *(rule.mode, rule.prune_tools_for_llm, rule.preserve_tools_for_latest_turns),
                        *(rule.older, rule.latest),
                    )
                    for rule in SENDING_RULES
                ),
            ),
            _table(
                ["mode", "tool_persistence", "stored of older turns", "stored of latest turns"],
                ((rule.mode, rule.tool_persistence, rule.older, rule.latest) for rule in PERSISTENCE_RULES),
            ),
        )
    )


def _matches(settings: Sequence[Any], conditions: Sequence[Any]) -> bool:
    return all(condition is None or value == condition for value, condition in zip(settings, conditions, strict=True))


def _table(header: list[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [header, *([_cell_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _cell_text(value: Any) -> str:
    return "any" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
