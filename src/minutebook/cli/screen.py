"""Terminal output: the console, the styles of roles and statuses, previews of messages, and bars of tokens."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from minutebook.history.curation import NoteStatus
from minutebook.record.message import RESULT_ROLES, SYSTEM_ROLES, Message, text_of

LOG_WIDTH: Final = 100
"""Columns of output that does not go to a terminal."""

ROLE_STYLES: Final = {
    "system": ("magenta", "█"),
    "user": ("cyan", "▓"),
    "assistant": ("green", "▒"),
    "tool": ("yellow", "░"),
    "other": ("red", "▪"),
}
"""Role → its color and the character that its part of a bar is drawn with."""

STATUS_STYLES: Final = {
    NoteStatus.SENT: "",
    NoteStatus.TRUNCATED: "yellow",
    NoteStatus.CLEARED: "yellow",
    NoteStatus.STRIPPED: "yellow",
    NoteStatus.CHANGED: "yellow",
    NoteStatus.DROPPED: "red",
    NoteStatus.FOLDED: "blue",
    NoteStatus.REPAIRED: "magenta",
    NoteStatus.ADDED: "blue",
}


class CommandConsole(Console):
    """A console that raises on a broken pipe, so that the command sets the exit code. rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or `LOG_WIDTH` without one. It respects COLUMNS and NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    has_columns = os.environ.get("COLUMNS", "").isdigit()
    return CommandConsole(stderr=stderr, highlight=False, width=None if has_columns or stream.isatty() else LOG_WIDTH)


def one_line(text: str, length: int = 200) -> str:
    """The text on one line, without control characters and lone surrogates, cut to `length` characters."""
    return printable(" ".join(text[: length * 4].split()))[:length]


def printable(text: str, *, allowed: str = "") -> str:
    """The text with a replacement character for each nonprintable character that is not in `allowed`."""
    return "".join(
        character if character.isprintable() or character in allowed else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def preview(message: Message) -> str:
    """The text of a message on one line, or its tool calls if it has no text."""
    text = text_of(message)
    if text.strip():
        return one_line(text)
    calls = message.get("tool_calls") or ()
    return one_line(", ".join(_call_preview(call) for call in calls)) if calls else ""


def _call_preview(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "call"
    try:
        arguments = json.loads(function.get("arguments") or "{}")
        first_argument = next(iter(arguments.values()), "") if isinstance(arguments, dict) else arguments
    except (TypeError, ValueError, RecursionError):
        first_argument = function.get("arguments")
    return f"{function.get('name')}({first_argument if isinstance(first_argument, (str, int, float)) else '…'})"


def role_family(role: str) -> str:
    """The key of `ROLE_STYLES` for a role: `developer` is system, `function` is tool."""
    if role in SYSTEM_ROLES:
        return "system"
    if role in RESULT_ROLES:
        return "tool"
    return role if role in ROLE_STYLES else "other"


def tokens_by_role(role_tokens: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Tokens per role family, in the order of `ROLE_STYLES`, without families that have none."""
    sums = dict.fromkeys(ROLE_STYLES, 0)
    for role, tokens in role_tokens:
        sums[role_family(role)] += tokens
    return {role: tokens for role, tokens in sums.items() if tokens}


def headed_table(*, expand: bool = False) -> Table:
    """A table with a line below its header and no other lines."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=expand)


def role_bars(bars: Mapping[str, Mapping[str, int]], width: int) -> RenderableType:
    """One bar per name, all on the same scale. The legend has the shares of the last bar."""
    label_width = max(map(len, bars))
    bar_width = max(10, width - label_width - 12)
    scale = max((sum(tokens.values()) for tokens in bars.values()), default=0) or 1
    table = Table.grid(padding=(0, 1))
    for name, tokens in bars.items():
        table.add_row(name, bar(tokens, bar_width, scale), f"{sum(tokens.values()):,}")
    roles = [role for role in ROLE_STYLES if any(role in tokens for tokens in bars.values())]
    last_name, last_tokens = list(bars.items())[-1]
    legend = Text(f"{last_name}:" if len(bars) > 1 else "", end="\n")
    for role in roles:
        color, mark = ROLE_STYLES[role]
        share = percent(last_tokens.get(role, 0), sum(last_tokens.values()))
        legend.append(" ").append(mark, color).append(f" {role} {share} ")
    return Group(table, legend)


def bar(tokens: Mapping[str, int], width: int, scale: int, styles: Mapping[str, tuple[str, str]] = ROLE_STYLES) -> Text:
    """A bar with one segment per part. `scale` tokens are `width` characters; a segment has at least one."""
    text, total, column = Text(), 0, 0
    for part, count in tokens.items():
        total += count
        end = max(column + 1, round(width * total / scale))
        color, mark = styles[part]
        text.append(mark * (end - column), color)
        column = end
    return text


def percent(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total else "-"
