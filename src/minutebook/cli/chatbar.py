"""What fills the window: a bar, its parts, and what was left out of it and why."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minutebook.cli.cuts import Cut, cuts_of
from minutebook.cli.screen import ROLE_LOOK, bar, by_role, percent
from minutebook.history.curated import Status
from minutebook.history.view import View

LOOK: Final = ROLE_LOOK | {"free": ("dim", "·"), "left out": ("dim", "▫")}
OUT: Final = frozenset({Status.DROPPED, Status.FOLDED})
PLURAL: Final = {"tool": "tools"}


def show_context(out: Console, view: View, limit: int | None, done: str) -> None:
    """Print what fills a view, out of `limit` tokens where there is a limit; `done` is what was done with it."""
    lines = view.explain().lines
    parts = by_role((line.role, line.sent_tokens) for line in lines)
    used = sum(parts.values())
    if limit is not None and used < limit:
        parts["free"] = limit - used
    whole = max(used, limit or 0)
    out.print(bar(parts, max(10, out.width - len(LOOK)), whole or 1, LOOK))
    out.print(_legend(parts, whole, sum(line.tokens - line.sent_tokens for line in lines if line.index is not None)))
    out.print(Text(_summary(view, limit, done, cuts_of(lines))))


def _summary(view: View, limit: int | None, done: str, cuts: Sequence[Cut]) -> str:
    """`5 of 9 messages sent, 612 of 1,000 tokens; 4 left out: older than the window of 4 messages`."""
    of_limit = "" if limit is None else f" of {limit:,}"
    parts = [f"{len(view.messages):,} of {len(view.record):,} messages {done}, {view.tokens:,}{of_limit} tokens"]
    parts += [f"{cut.messages:,} {'left out' if cut.fate in OUT else cut.fate.value}: {cut.reason}" for cut in cuts]
    return "; ".join(parts)


def _legend(parts: dict[str, int], whole: int, left_out: int) -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in ("mark", "kind"):
        table.add_column()
    for _ in ("tokens", "share"):
        table.add_column(justify="right")
    for name, tokens in parts.items():
        table.add_row(_mark(name), PLURAL.get(name, name), f"{tokens:,}", percent(tokens, whole))
    if left_out:
        table.add_row(_mark("left out"), "left out", f"{left_out:,}", "")
    return table


def _mark(name: str) -> Text:
    colour, mark = LOOK[name]
    return Text(mark, colour)
