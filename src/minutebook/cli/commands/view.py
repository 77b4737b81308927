"""`minutebook view`: the record beside what a model would be sent.

What is not sent as it is in the record, and why.

The picture of a view: a table of fates, the totals, and what fills it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minutebook import Transcript, View
from minutebook.cli.exits import Command
from minutebook.cli.files import Conversation, Reading
from minutebook.cli.options import (
    emit,
    file_argument,
    flag,
    json_option,
    manager_options,
    model_option,
    provider_option,
)
from minutebook.cli.progress import progress
from minutebook.cli.screen import STATUS_LOOK, by_role, console, headed_table, percent, preview, role_bars
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidSetting
from minutebook.history.curated import Status
from minutebook.history.explanation import Line


class Cut(NamedTuple):
    """Messages that met one fate for one reason."""

    fate: Status
    reason: str
    messages: int
    tokens: int
    """What it saved."""


def cuts_of(lines: Iterable[Line]) -> list[Cut]:
    """The cuts of a view, the one that saved the most first."""
    messages: Counter[tuple[Status, str]] = Counter()
    saved: Counter[tuple[Status, str]] = Counter()
    for line in lines:
        if line.status is not Status.SENT:
            messages[line.status, line.reason] += 1
            saved[line.status, line.reason] += line.tokens - line.sent_tokens
    return [Cut(*key, messages[key], tokens) for key, tokens in saved.most_common()]


@click.command("view", cls=Command, short_help="What a model would be sent, beside the record.")
@file_argument
@manager_options
@model_option
@provider_option(everyone=False, help_text="Who would be asked: the view is one that this provider accepts.")
@click.option(
    "--conversation", metavar="ID|INDEX",
    help="Which conversation of FILE, by its id or its place counted from 0; the first if not given. "
    "Example: --conversation 3",
)  # fmt: skip
@flag(
    "--all",
    "every",
    help_text="A row for every message, however many there are. Example: minutebook view log.json --all",
)
@flag(
    "--messages",
    "only_messages",
    help_text="Print only the messages to send, as JSON, for the next program. Example: minutebook view log.json --max-tokens 8000 --messages | jq length",
)
@json_option(
    "Print one JSON document: what became of every message and why, and the messages to send. Example: minutebook view log.json --json"
)
def command(
    file: str,
    managers: tuple[str, ...],
    max_tokens: int | None,
    model: str | None,
    provider: str,
    conversation: str | None,
    every: bool,
    only_messages: bool,
) -> None:
    """Show what a model would be sent of a conversation, beside the record, with a reason for every difference.

    Example: minutebook view log.jsonl --max-tokens 32000
    """
    from minutebook import counter_for, view_of

    manager = manager_from_texts(managers, max_tokens)
    chosen = _chosen(file, conversation)
    counter = counter_for(model or chosen.model)
    view = view_of(
        chosen.messages,
        manager,
        max_tokens=max_tokens,
        provider=provider,  # type: ignore[arg-type]
        counter=counter,
    )
    if only_messages:
        click.echo(json.dumps(view.messages, indent=2))
        return
    emit(
        _document(view, chosen, repr(manager), counter.name), lambda: show(view, chosen.name, counter.name, every=every)
    )


def _chosen(file: str, wanted: str | None) -> Conversation:
    """The conversation with this id or, where no id is the same, at this place."""
    with progress(file) as advance:
        reading = Reading(file, advance)
        at_place = None
        for count, conversation in enumerate(reading, 1):
            if wanted is None:
                at_place = at_place or conversation
                if count == 2:
                    click.echo("the first of several conversations; --conversation ID|INDEX shows another", err=True)
                    break
            elif conversation.id == wanted:
                return conversation
            elif wanted.isdecimal() and conversation.place == int(wanted):
                at_place = conversation
    if at_place is None:
        raise InvalidSetting("--conversation", wanted, f"an id in {reading.name}, or a place from 0 to {count - 1}")
    return at_place


def _document(view: "View", chosen: Conversation, manager: str, counter: str) -> dict[str, Any]:
    explanation = view.explain()
    return {
        "conversation": {"index": chosen.place, "id": chosen.id, "line": chosen.line},
        "manager": manager,
        "counter": counter,
        **explanation.to_json(),
        "breaches": [{"promise": breach.promise.value, "detail": breach.detail} for breach in view.breaches],
        "sent": list(view.messages),
    }


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
    table = headed_table(expand=True)
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
