"""What the flags of retention mean, as one table: the code reads it, the tests check it, and the docs print it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from minutebook.errors import InvalidSetting

Mode: TypeAlias = Literal["off", "shadow", "on"]
ToolPersistence: TypeAlias = Literal["full", "trimmed", "none"]
DEFAULT_POLICY: Final = "retention"


def _require(name: str, value: int, *, at_least: int) -> None:
    if type(value) is not int or value < at_least:
        raise InvalidSetting(name, value, f"a whole number, {at_least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """What of a conversation the model is sent, and what of its tool calls is kept. `truth_table` shows how they act.

    Raises:
        InvalidSetting: a number is negative, or the two keys for the tools that are kept contradict each other.
    """

    preserve_turns: int = 2
    """So many of the newest turns keep their tool calls and results whole; one that waits for its answer counts."""
    max_loaded_messages: int = 20
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

    def __post_init__(self) -> None:
        for name in ("preserve_turns", "max_loaded_messages"):
            _require(name, getattr(self, name), at_least=0)
        persist, kept = self.persist_tool_invocations, self.tool_persistence
        if kept is None:
            kept = "trimmed" if persist is False else "full"
        if persist is not None and persist is not (kept == "full"):
            raise InvalidSetting(
                "tool_persistence", kept, f"what persist_tool_invocations: {str(persist).lower()} means"
            )
        object.__setattr__(self, "tool_persistence", kept)
        object.__setattr__(self, "persist_tool_invocations", kept == "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationConfig:
    """What the model is sent of a conversation.

    Raises:
        InvalidSetting: a number is negative.
    """

    include_history: bool = True
    """Whether the model is sent anything but the turn that it is about to answer."""
    history_limit: int = 5
    """The most messages of history where there is no retention: what configurations had before there was any."""
    retention: RetentionConfig | None = RetentionConfig()
    """None where a file gives a `history_limit` and no retention."""
    policy: str = DEFAULT_POLICY
    """What chooses: retention, one of `policies`, a strategy or a manager."""

    def __post_init__(self) -> None:
        _require("history_limit", self.history_limit, at_least=0)

    @property
    def effective_retention(self) -> RetentionConfig:
        """The retention that holds: the one that is given, else its defaults with the older limit."""
        return RetentionConfig(max_loaded_messages=self.history_limit) if self.retention is None else self.retention


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """A manager by its name, with settings of its own."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
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
    manager: tuple[ManagerConfig, ...] = ()
    """What chooses among the messages, one after the other."""
    max_tokens: int | None = None
    """The most tokens of messages that a call is sent; without it, what the model reads."""

    def __post_init__(self) -> None:
        if self.strategy is None and not self.manager and self.max_tokens is None:
            raise InvalidSetting("a policy", "empty", "it a strategy, a manager or max_tokens")
        if self.max_tokens is not None:
            _require("max_tokens", self.max_tokens, at_least=1)
        for name in ("trigger", "target", "keep_turns", "keep_files", "model"):
            if self.strategy is None and getattr(self, name) is not None:
                raise InvalidSetting(name, getattr(self, name), "it to a policy with a strategy")


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
