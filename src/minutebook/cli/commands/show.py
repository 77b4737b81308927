"""`minutebook show`: print a stored conversation with its folds."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.commands.ls import header_json, local_time
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, database_options, emit, flag, is_json, json_option
from minutebook.cli.screen import ROLE_STYLES, console, preview, printable, role_family
from minutebook.record.fold import Fold
from minutebook.record.message import Message, call_ids, is_result, plain_copy, role_of, text_of
from minutebook.store.types import LoadedConversation

FOLD_COLOR = "blue"


MessageRow: TypeAlias = tuple[str, str, Text, Text]
"""Fold mark, position, role and text of a message, or of the line that introduces a fold."""


def show(loaded: LoadedConversation, *, folded: bool) -> None:
    """Print the header and the messages."""
    header, out = loaded.conversation, console()
    counts = f"{header.turns:,} turns, {header.length:,} messages"
    details = f"{counts}, {header.status.value}, updated {local_time(header.updated_at)}"
    recipient = "" if header.recipient == header.id else f" with {printable(header.recipient)}"
    out.print(Text(f"{printable(header.id)}{recipient}: {details}", "bold"))
    if header.origin is not None:
        out.print(f"forked from {printable(header.origin.conversation)} at {header.origin.position:,}")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style=FOLD_COLOR, width=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in _folded_rows(loaded) if folded else _rows(loaded):
        grid.add_row(*row)
    out.print(grid)


def _rows(loaded: LoadedConversation) -> Iterator[MessageRow]:
    """All messages of the record. Folded messages are marked."""
    folds = iter(loaded.folds)
    fold = next(folds, None)
    introduced_fold: Fold | None = None
    for position, message in zip(loaded.positions, loaded.messages, strict=True):
        while fold is not None and fold.stop <= position:
            fold = next(folds, None)
        is_folded = fold is not None and fold.start <= position
        if fold is not None and is_folded and fold is not introduced_fold:
            yield _fold_row(fold)
            introduced_fold = fold
        yield _row("│" if is_folded else "", f"{position}", message)


def _folded_rows(loaded: LoadedConversation) -> Iterator[MessageRow]:
    """The messages with folds applied: the messages of a fold replace those that it covers."""
    positions_and_messages: Iterable[tuple[int | None, Message]] = loaded.shown()
    fold_per_message = (fold for fold in loaded.folds for _ in fold.shown)
    introduced_fold: Fold | None = None
    for position, message in positions_and_messages:
        if position is not None:
            yield _row("", f"{position}", message)
            continue
        fold = next(fold_per_message)
        if fold is not introduced_fold:
            yield _fold_row(fold)
            introduced_fold = fold
        yield _row("│", "", message)


def _fold_row(fold: Fold) -> MessageRow:
    text = f"{fold.start}-{fold.stop - 1} folded as {printable(fold.id)}: {printable(fold.reason)}"
    return "┌", "", Text("fold", FOLD_COLOR), Text(text, FOLD_COLOR)


def _row(mark: str, position: str, message: Message) -> MessageRow:
    family = role_family(role_of(message))
    return mark, position, Text(role_of(message), ROLE_STYLES[family][0]), Text(_message_text(message))


def _message_text(message: Message) -> str:
    """The full text of a message, with its tool calls on one line. Results are shortened to one line."""
    if is_result(message):
        return preview(message)
    text = printable(text_of(message).strip().replace("\r\n", "\n"), allowed="\n\t")
    calls = preview({**message, "content": None}) if call_ids(message) else ""
    return "\n".join(filter(None, [text, calls and f"→ {calls}"]))


DEFAULT_TURNS = 10


@click.command("show", cls=Command, short_help="Show a stored conversation.")
@click.argument("conversation", metavar="ID")
@count_option("--turns", default=DEFAULT_TURNS, help_text="Number of newest turns to show. Example: --turns 3")
@flag("--all", "show_all", help_text="Show all turns. Example: minutebook show order-17 --all")
@flag(
    "--folded",
    help_text="Show summaries in place of the messages they replace, as a model gets them. Example: minutebook show order-17 --folded",
)
@database_options()
@json_option("Print the header, messages, folds and pins as JSON. Example: minutebook show order-17 --json")
def command(database: Database, conversation: str, turns: int, show_all: bool, folded: bool) -> None:
    """Show the messages of conversation ID, and which of them are folded.

    Tool results are shortened to one line; --json prints them completely.

    Example: minutebook show order-17 --turns 3
    """
    last_turns = None if show_all else turns
    loaded = database.run(database.store.load(conversation, last_turns=last_turns, folded=folded))
    emit(_conversation_json(loaded, folded=folded), lambda: show(loaded, folded=folded))
    if not is_json() and last_turns is not None and loaded.conversation.turns > last_turns:
        click.echo(f"the last {last_turns:,} of {loaded.conversation.turns:,} turns; --all shows all", err=True)


def _conversation_json(loaded: LoadedConversation, *, folded: bool) -> dict[str, Any]:
    shown = loaded.shown() if folded else zip(loaded.positions, loaded.messages, strict=True)
    return {
        "conversation": header_json(loaded.conversation),
        "messages": [{"position": position, "message": plain_copy(message)} for position, message in shown],
        "folds": [
            {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in loaded.folds
        ],
        "pins": sorted(loaded.pins),
    }
