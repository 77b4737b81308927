"""The picture of a view: a table of fates, the totals, and what fills it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minutebook import Line, Status, Transcript, View
from minutebook.cli.screen import STATUS_LOOK, by_role, console, percent, preview, role_bars

SHORT = 40
"""A conversation of no more messages than this is shown whole."""
RUN = 4
"""Fewer messages of one fate than this are shown one by one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One message, or a run of messages that met the same fate."""

    lines: tuple[Line, ...]

    @property
    def line(self) -> Line:
        """The line that says what became of the run: its first that is not simply sent."""
        return next((line for line in self.lines if line.status is not Status.SENT), self.lines[0])

    @property
    def place(self) -> str:
        indexes = [line.index for line in self.lines if line.index is not None]
        if not indexes:
            return "+"
        return f"{indexes[0]}-{indexes[-1]}" if len(indexes) > 1 else f"{indexes[0]}"

    @property
    def who(self) -> str:
        return self.line.role or "?" if len(self.lines) == 1 else f"{len(self.lines)} messages"

    @property
    def fate(self) -> str:
        changed = sum(line.status is self.line.status for line in self.lines)
        return self.line.status.value if changed == len(self.lines) else f"{changed} {self.line.status.value}"


def show(view: View, name: str, counter: str, *, every: bool) -> None:
    """Print the record beside the view."""
    out = console()
    explanation = view.explain()
    rows = rows_of(view.record, explanation.lines, every=every)
    out.print(Text(f"{name}, counted with {counter}", "bold"))
    out.print(table_of(rows, view.record, added=_added(view)))
    show_totals(out, view, explanation.lines)


def rows_of(record: Transcript, lines: Sequence[Line], *, every: bool) -> list[Row]:
    """A row for each message, or for each run of exchanges that met the same fate."""
    if every or len(lines) <= SHORT:
        return [Row((line,)) for line in lines]
    rows: list[Row] = []
    for _, group in groupby(_exchanges(record, lines), key=_fate_of):
        run = [line for exchange in group for line in exchange]
        whole = len(run) >= RUN and not any(line.role == "user" and line.status is Status.SENT for line in run)
        rows += [Row(tuple(run))] if whole else [Row((line,)) for line in run]
    return rows


def _exchanges(record: Transcript, lines: Sequence[Line]) -> Iterable[list[Line]]:
    def start(line: Line) -> object:
        return object() if line.index is None else record.exchange_of(line.index).start

    return [list(group) for _, group in groupby(lines, key=start)]


def _fate_of(exchange: Sequence[Line]) -> object:
    """What is said about an exchange: the fates in it other than sent. A request is always a row of its own."""
    told = {(line.status, line.reason) for line in exchange if line.status is not Status.SENT}
    if not told and exchange[0].role == "user":
        return object()
    return frozenset(told)


def table_of(rows: Sequence[Row], record: Transcript, added: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for title, justify in (("#", "right"), ("role", "left"), ("fate", "left"), ("record", "right"), ("view", "right")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("content, or why it was cut", ratio=1)
    texts = iter(added)
    for row in rows:
        line = row.line
        look = STATUS_LOOK[line.status]
        said = Text(no_wrap=True, overflow="ellipsis")
        if len(row.lines) == 1:
            said.append(preview(record[line.index]) if line.index is not None else next(texts, ""))
        elif line.status is Status.SENT:
            said.append(_in_short(row.lines), "dim")
        cell = Table.grid(expand=True)
        if said.plain:
            cell.add_row(said)
        if line.reason:
            cell.add_row(Text(line.reason, look))
        tokens, sent = sum(each.tokens for each in row.lines), sum(each.sent_tokens for each in row.lines)
        table.add_row(row.place, row.who, Text(row.fate, look), f"{tokens:,}", f"{sent:,}", cell)
    return table


def show_totals(out: Console, view: View, lines: Sequence[Line]) -> None:
    before, after = sum(line.tokens for line in lines), sum(line.sent_tokens for line in lines)
    messages = len(view.record)
    out.print(
        f"messages  {messages:,} → {len(view.messages):,} ({percent(len(view.messages), messages)})\n"
        f"tokens    {before:,} → {after:,} ({percent(after, before)})\n"
    )
    bars = {
        "record": by_role((line.role, line.tokens) for line in lines),
        "view": by_role((line.role, line.sent_tokens) for line in lines),
    }
    out.print(role_bars(bars, out.width))
    for breach in view.breaches:
        out.print(Text(f"the guard put right: {breach}", "yellow"))


def _added(view: View) -> list[str]:
    origins = view.messages.origins
    return [preview(message) for message, origin in zip(view.messages, origins, strict=True) if origin is None]


def _in_short(lines: Sequence[Line]) -> str:
    counts = Counter(line.role for line in lines)
    return ", ".join(f"{count} {role}" for role, count in counts.items())
