"""Settings of retention and policies, and what the flags of retention mean as one table.

The code reads the table, the tests check it, and the docs print it.
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
DEFAULT_POLICY: Final = "retention"

_EXPECTED: Final = {
    "bool_type": "true or false",
    "dict_type": "keys with values",
    "finite_number": "a number above 0",
    "float_type": "a number",
    "frozen_set_type": "a list of names",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a whole number, {ge} or more",
    "int_type": "a whole number",
    "less_than_equal": "a whole number, {le} or less",
    "literal_error": "{expected}",
    "model_type": "keys with values",
    "string_too_short": "it a name",
    "string_type": "text",
    "tuple_type": "a list: - … on a line for each",
}


def invalid_setting(error: ErrorDetails, name: str) -> InvalidSetting:
    """What pydantic refused, as an error of ours; a rule across settings has named its own setting."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, InvalidSetting):
        return cause
    expected = _EXPECTED.get(error["type"], error["msg"]).format_map(error.get("ctx", {}))
    return InvalidSetting(name, error["input"], expected.replace("'", ""))


def value_from_text(text: str, kind: Any) -> Any:
    """What a text of the environment or the command line means as such a type; the text itself if it means nothing."""
    if not text and NoneType in get_args(kind):
        return None
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return text


class Settings(BaseModel):
    """A section of a configuration. Its values are checked in code as in a file.

    Raises:
        InvalidSetting: a value has the wrong type, is out of range, or contradicts another one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            raise invalid_setting(first, ".".join(map(str, first["loc"]))) from None

    # Sections inside another one are validated in place, so an error has its whole location.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: Any) -> Any:
        """A section, list or mapping with every line commented out is at its default."""
        if not isinstance(values, Mapping):
            return {} if values is None else values
        empty = {
            name for name, each in cls.model_fields.items() if each.get_default(call_default_factory=True) in ((), {})
        }
        return {name: value for name, value in values.items() if value is not None or name not in empty}


class RetentionConfig(Settings):
    """What of a conversation the model is sent, and what of its tool calls is kept. `truth_table` shows how they act.

    Raises:
        InvalidSetting: a number is negative, or the two keys for the tools that are kept contradict each other.
    """

    preserve_turns: Count = 2
    """So many of the newest turns keep their tool calls and results whole; one that waits for its answer counts."""
    max_loaded_messages: Count = 20
    """The most messages of history, rounded to the start of a turn; the preserved turns are loaded all the same."""
    persist_tool_invocations: bool | None = None
    """False is `tool_persistence: trimmed`, and true is `full`. Whoever says neither has `full`."""
    tool_persistence: ToolPersistence | None = None
    """What stays in the record of the tool calls of turns that are no longer preserved."""
    prune_tools_for_llm: bool = True
    """Whether the model is sent older turns as text alone."""
    preserve_tools_for_latest_turns: bool = True
    """Whether the preserved turns are spared that."""
    expose_tool_details: bool = False
    """Whether clients are told arguments and results of the tools that were used, and not their names and status only."""
    mode: Mode = "on"
    """`shadow` works out and logs what would be done, and does nothing."""

    @model_validator(mode="after")
    def _agree_on_tools(self) -> Self:
        persist, kept = self.persist_tool_invocations, self.tool_persistence
        if kept is None:
            kept = "trimmed" if persist is False else "full"
        if persist is not None and persist is not (kept == "full"):
            raise InvalidSetting(
                "tool_persistence", kept, f"what persist_tool_invocations: {str(persist).lower()} means"
            )
        self.__dict__.update(tool_persistence=kept, persist_tool_invocations=kept == "full")
        return self


class ConversationConfig(Settings):
    """What the model is sent of a conversation."""

    include_history: bool = True
    """Whether the model is sent anything but the turn that it is about to answer."""
    history_limit: Count = 5
    """The most messages of history where there is no retention: what configurations had before there was any."""
    retention: RetentionConfig | None = RetentionConfig()
    """None where a file gives a `history_limit` and no retention."""
    policy: str = DEFAULT_POLICY
    """What chooses: retention, one of `policies`, a strategy or a manager."""

    @property
    def effective_retention(self) -> RetentionConfig:
        """The retention that holds: the one that is given, else its defaults with the older limit."""
        return RetentionConfig(max_loaded_messages=self.history_limit) if self.retention is None else self.retention


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """A manager by its name, with settings of its own."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _manager(value: Any) -> ManagerConfig:
    """`token_budget`, or `{name: token_budget, target: 0.5}`."""
    if isinstance(value, ManagerConfig):
        return value
    settings = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise InvalidSetting("a manager", value, "the name of a manager, such as token_budget")
    return ManagerConfig(name, settings)


def _several(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


_Managers: TypeAlias = Annotated[
    tuple[Annotated[ManagerConfig, BeforeValidator(_manager)], ...], BeforeValidator(_several), Strict(False)
]


class PolicyConfig(Settings):
    """A policy of one's own: a strategy, managers, or both. The strategy's settings go by the agent language's names.

    Raises:
        InvalidSetting: it says nothing, or settings of a strategy without one.
    """

    strategy: str | None = None
    """What folds old parts when the window gets full: summarize, truncate, turns, hybrid or a registered one."""
    trigger: float | None = None
    """The share of the window at which it folds."""
    target: float | None = None
    """The share of the window that is left."""
    keep_turns: int | None = None
    keep_files: int | None = None
    model: str | None = None
    """The model that writes summaries; the conversation's own, if there is none."""
    manager: _Managers = ()
    """What chooses among the messages, one after the other."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """The most tokens of messages that a call is sent; without it, what the model reads."""

    @model_validator(mode="after")
    def _has_an_effect(self) -> Self:
        if self.strategy is None and not self.manager and self.max_tokens is None:
            raise InvalidSetting("a policy", "empty", "it a strategy, a manager or max_tokens")
        for name in ("trigger", "target", "keep_turns", "keep_files", "model"):
            if self.strategy is None and getattr(self, name) is not None:
                raise InvalidSetting(name, getattr(self, name), "it to a policy with a strategy")
        return self


class Sent(StrEnum):
    """How turns are sent to the model."""

    WITH_TOOLS = "with tools"
    TEXT_ONLY = "text only"


class Kept(StrEnum):
    """What stays in the record of a tool call."""

    ALL = "everything"
    STATUS = "name and status"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class SentRow:
    """How turns are sent. None is any value."""

    mode: Mode
    prune_tools_for_llm: bool | None
    preserve_tools_for_latest_turns: bool | None
    older: Sent
    """Turns that are not preserved."""
    latest: Sent
    """The preserved turns. The turn that is being answered is sent with its tools, whatever this says."""


@dataclass(frozen=True, slots=True)
class KeptRow:
    """What is kept of tool calls. None is any value."""

    mode: Mode
    tool_persistence: ToolPersistence | None
    older: Kept
    latest: Kept


SENT: Final = (
    SentRow("off", None, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SentRow("shadow", None, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SentRow("on", False, None, Sent.WITH_TOOLS, Sent.WITH_TOOLS),
    SentRow("on", True, True, Sent.TEXT_ONLY, Sent.WITH_TOOLS),
    SentRow("on", True, False, Sent.TEXT_ONLY, Sent.TEXT_ONLY),
)
KEPT: Final = (
    KeptRow("off", None, Kept.ALL, Kept.ALL),
    KeptRow("shadow", None, Kept.ALL, Kept.ALL),
    KeptRow("on", "full", Kept.ALL, Kept.ALL),
    KeptRow("on", "trimmed", Kept.STATUS, Kept.ALL),
    KeptRow("on", "none", Kept.NAME, Kept.ALL),
)


def sent(config: RetentionConfig, *, mode: Mode | None = None) -> SentRow:
    """The row for a configuration, or for what it would be in another mode."""
    said = (mode or config.mode, config.prune_tools_for_llm, config.preserve_tools_for_latest_turns)
    return next(
        row for row in SENT if _means(said, (row.mode, row.prune_tools_for_llm, row.preserve_tools_for_latest_turns))
    )


def kept(config: RetentionConfig, *, mode: Mode | None = None) -> KeptRow:
    """The row for a configuration, or for what it would be in another mode."""
    said = (mode or config.mode, config.tool_persistence)
    return next(row for row in KEPT if _means(said, (row.mode, row.tool_persistence)))


def truth_table() -> str:
    """Both tables, as text."""
    return "\n\n".join(
        (
            _table(
                ["mode", "prune_tools_for_llm", "preserve_tools_for_latest_turns", "older turns", "latest turns"],
                ((r.mode, r.prune_tools_for_llm, r.preserve_tools_for_latest_turns, r.older, r.latest) for r in SENT),
            ),
            _table(
                ["mode", "tool_persistence", "kept of older turns", "kept of latest turns"],
                ((r.mode, r.tool_persistence, r.older, r.latest) for r in KEPT),
            ),
        )
    )


def _means(said: Sequence[Any], row: Sequence[Any]) -> bool:
    return all(wanted is None or value == wanted for value, wanted in zip(said, row, strict=True))


def _table(head: list[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, *([_word(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _word(value: Any) -> str:
    return "any" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
