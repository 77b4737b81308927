"""`minutebook show`: one conversation, to read.

A conversation as people read it: who said what, one message after the other, with its folds.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.commands.ls import document, moment
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, flag, is_json, json_option, on_database
from minutebook.cli.screen import ROLE_LOOK, console, preview, printable, role_family
from minutebook.record.fold import Fold
from minutebook.record.message import Message, call_ids, is_result, role_of, text_of, thawed
from minutebook.store.types import Loaded

FOLD_LOOK = "blue"


Row: TypeAlias = tuple[str, str, Text, Text]
"""A message at its place, or what is said about a fold where it begins: mark, position, role, text."""


def show(loaded: Loaded, *, folded: bool) -> None:
    """Print the header and what was loaded."""
    one, out = loaded.conversation, console()
    about = f"{one.turns:,} turns, {one.length:,} messages, {one.status.value}, updated {moment(one.updated_at)}"
    out.print(Text(f"{printable(one.id)} with {printable(one.recipient)}: {about}", "bold"))
    if one.origin is not None:
        out.print(f"forked from {printable(one.origin.conversation)} at {one.origin.position:,}")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style=FOLD_LOOK, width=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in _folded_rows(loaded) if folded else _rows(loaded):
        grid.add_row(*row)
    out.print(grid)


def _rows(loaded: Loaded) -> Iterator[Row]:
    """Every message of the record; those that a fold covers are marked."""
    folds = iter(loaded.folds)
    fold = next(folds, None)
    told: Fold | None = None
    for position, message in zip(loaded.positions, loaded.messages, strict=True):
        while fold is not None and fold.stop <= position:
            fold = next(folds, None)
        inside = fold is not None and fold.start <= position
        if fold is not None and inside and fold is not told:
            yield _about(fold)
            told = fold
        yield _row("│" if inside else "", f"{position}", message)


def _folded_rows(loaded: Loaded) -> Iterator[Row]:
    """The messages as a view begins with them: what a fold shows stands in the place of what it covers."""
    shown: Iterable[tuple[int | None, Message]] = loaded.shown()
    coming = (fold for fold in loaded.folds for _ in fold.shown)
    told: Fold | None = None
    for position, message in shown:
        if position is not None:
            yield _row("", f"{position}", message)
            continue
        fold = next(coming)
        if fold is not told:
            yield _about(fold)
            told = fold
        yield _row("│", "", message)


def _about(fold: Fold) -> Row:
    text = f"{fold.start}-{fold.stop - 1} folded as {printable(fold.id)}: {printable(fold.reason)}"
    return "┌", "", Text("fold", FOLD_LOOK), Text(text, FOLD_LOOK)


def _row(mark: str, place: str, message: Message) -> Row:
    family = role_family(role_of(message))
    return mark, place, Text(role_of(message), ROLE_LOOK[family][0]), Text(_said(message))


def _said(message: Message) -> str:
    """The text, and in one line what else there is: a result may be a whole file, and a call its content."""
    if is_result(message):
        return preview(message)
    text = printable(text_of(message).strip(), besides="\n\t")
    calls = preview({**message, "content": None}) if call_ids(message) else ""
    return "\n".join(filter(None, [text, calls and f"→ {calls}"]))


TURNS = 10


@click.command("show", cls=Command, short_help="Read a conversation.")
@click.argument("conversation", metavar="ID")
@count_option("--turns", default=TURNS, help_text="No more than the last turns. Example: --turns 3")
@flag("--all", "every", help_text="All of it, however long. Example: minutebook show order-17 --all")
@flag(
    "--folded",
    help_text="Show what stands for folded messages in their place, as a model is sent it. Example: minutebook show order-17 --folded",
)
@on_database()
@json_option("Print one JSON document: the header, the messages, the folds. Example: minutebook show order-17 --json")
def command(database: Database, conversation: str, turns: int, every: bool, folded: bool) -> None:
    """Show the conversation ID: who said what, and which messages are folded.

    Tool results are shortened to a line; --json has all of them.

    Example: minutebook show order-17 --turns 3
    """
    last = None if every else turns
    loaded = database.run(database.store.load(conversation, last_turns=last, folded=folded))
    emit(_document(loaded, folded=folded), lambda: show(loaded, folded=folded))
    if not is_json() and last is not None and loaded.conversation.turns > last:
        click.echo(f"the last {last:,} of {loaded.conversation.turns:,} turns; --all shows the rest", err=True)


def _document(loaded: "Loaded", *, folded: bool) -> dict[str, Any]:
    shown = loaded.shown() if folded else zip(loaded.positions, loaded.messages, strict=True)
    return {
        "conversation": document(loaded.conversation),
        "messages": [{"position": position, "message": thawed(message)} for position, message in shown],
        "folds": [
            {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in loaded.folds
        ],
        "pins": sorted(loaded.pins),
    }
