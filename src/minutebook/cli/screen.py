"""How conversations look in a terminal: one console, one look for each role and fate, one line for each message."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from minutebook.history.curated import Status
from minutebook.record.message import RESULT_ROLES, SYSTEM_ROLES, Message, text_of

LOG_WIDTH: Final = 100
"""Columns where there is no terminal to ask."""

ROLE_LOOK: Final = {
    "system": ("magenta", "█"),
    "user": ("cyan", "▓"),
    "assistant": ("green", "▒"),
    "tool": ("yellow", "░"),
    "other": ("red", "▪"),
}
"""Role → its colour, and its mark where there is no colour."""

STATUS_LOOK: Final = {
    Status.SENT: "",
    Status.TRUNCATED: "yellow",
    Status.CLEARED: "yellow",
    Status.STRIPPED: "yellow",
    Status.DROPPED: "red",
    Status.FOLDED: "blue",
    Status.REPAIRED: "magenta",
    Status.ADDED: "blue",
}


class Screen(Console):
    """A console that leaves it to the command to end when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console that is as wide as the terminal, or as a log; it honours NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    told = os.environ.get("COLUMNS", "").isdigit()
    return Screen(stderr=stderr, highlight=False, width=None if told or stream.isatty() else LOG_WIDTH)


def one_line(text: str, length: int = 200) -> str:
    """Text that is safe to show on one line: no line breaks, no control characters, no lone surrogates."""
    return printable(" ".join(text[: length * 4].split()))[:length]


def printable(text: str, *, besides: str = "") -> str:
    """Text that does nothing to a terminal but fill it: a mark for every other character that is not among `besides`."""
    return "".join(
        letter if letter.isprintable() or letter in besides else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def preview(message: Message) -> str:
    """What a message says, on one line; the calls of a message that says nothing."""
    text = text_of(message)
    if text.strip():
        return one_line(text)
    calls = message.get("tool_calls") or ()
    return one_line(", ".join(_call(call) for call in calls)) if calls else ""


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "call"
    try:
        arguments = json.loads(function.get("arguments") or "{}")
        first = next(iter(arguments.values()), "") if isinstance(arguments, dict) else arguments
    except (TypeError, ValueError, RecursionError):
        first = function.get("arguments")
    return f"{function.get('name')}({first if isinstance(first, (str, int, float)) else '…'})"


def role_family(role: str) -> str:
    if role in SYSTEM_ROLES:
        return "system"
    if role in RESULT_ROLES:
        return "tool"
    return role if role in ROLE_LOOK else "other"


def by_role(counted: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Tokens by family of role, in the order in which they are always shown."""
    sums = dict.fromkeys(ROLE_LOOK, 0)
    for role, tokens in counted:
        sums[role_family(role)] += tokens
    return {role: tokens for role, tokens in sums.items() if tokens}


def headed_table(*, expand: bool = False) -> Table:
    """A table with a line under its head, and none beside its cells."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=expand)


def role_bars(bars: Mapping[str, Mapping[str, int]], width: int) -> RenderableType:
    """One bar for each name, all to the same scale, and what the marks mean."""
    label = max(map(len, bars))
    room = max(10, width - label - 12)
    most = max((sum(tokens.values()) for tokens in bars.values()), default=0) or 1
    table = Table.grid(padding=(0, 1))
    for name, tokens in bars.items():
        table.add_row(name, bar(tokens, room, most), f"{sum(tokens.values()):,}")
    seen = [role for role in ROLE_LOOK if any(role in tokens for tokens in bars.values())]
    name, last = list(bars.items())[-1]
    legend = Text(f"{name}:" if len(bars) > 1 else "", end="\n")
    for role in seen:
        colour, mark = ROLE_LOOK[role]
        legend.append(" ").append(mark, colour).append(f" {role} {percent(last.get(role, 0), sum(last.values()))} ")
    return Group(table, legend)


def bar(tokens: Mapping[str, int], room: int, most: int, look: Mapping[str, tuple[str, str]] = ROLE_LOOK) -> Text:
    """Parts beside each other, each as long as its share of `most` tokens is of the room."""
    drawing, done, drawn = Text(), 0, 0
    for part, count in tokens.items():
        done += count
        end = max(drawn + 1, round(room * done / most))
        colour, mark = look[part]
        drawing.append(mark * (end - drawn), colour)
        drawn = end
    return drawing


def percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"
