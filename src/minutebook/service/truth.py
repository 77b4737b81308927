"""What the flags of retention mean, as one table: the code reads it, the tests check it, and the docs print it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from minutebook.service.config import Mode, RetentionConfig, ToolPersistence


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
