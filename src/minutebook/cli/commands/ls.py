"""`minutebook ls`: which conversations are kept.

What is known of a conversation, as people and as programs read it.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any

import click
from rich.table import Table

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit_lines, flag, is_json, json_option, on_database
from minutebook.cli.screen import console, printable
from minutebook.store.types import Conversation, ConversationStatus


def table_of(conversations: Iterable[Conversation]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("id", "recipient"):
        table.add_column(column, overflow="fold")
    table.add_column("status", no_wrap=True)
    for column in ("turns", "messages"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("updated", no_wrap=True)
    for one in conversations:
        names = (printable(one.id), printable(one.recipient), one.status.value)
        table.add_row(*names, f"{one.turns:,}", f"{one.length:,}", moment(one.updated_at))
    return table


def moment(at: datetime) -> str:
    """A time as it is where the reader is."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def document(one: Conversation) -> dict[str, Any]:
    """A header as JSON."""
    origin = one.origin
    return {
        "id": one.id,
        "tenant": one.tenant,
        "recipient": one.recipient,
        "status": one.status.value,
        "turns": one.turns,
        "messages": one.length,
        "purged": one.first,
        "version": one.version,
        "created_at": one.created_at.isoformat(),
        "updated_at": one.updated_at.isoformat(),
        "labels": dict(one.labels),
        "forked_from": None if origin is None else {"id": origin.conversation, "at": origin.position},
    }


SHOWN = 50


@click.command("ls", cls=Command, short_help="Which conversations are kept.")
@click.option("--recipient", metavar="R", help="Only those with this recipient. Example: --recipient alice")
@click.option(
    "--status",
    type=click.Choice([status.value for status in ConversationStatus]),
    help="Only those that are doing this. Example: --status active",
)
@count_option("--limit", default=SHOWN, help_text="No more than these, the newest. Example: --limit 5")
@flag("--all", "every", help_text="Every one, however many. Example: minutebook ls --all")
@on_database()
@json_option("Print one JSON object a line for each conversation. Example: minutebook ls --json | jq .id")
def command(database: Database, recipient: str | None, status: str | None, limit: int, every: bool) -> None:
    """List the conversations, newest first by the time they were made.

    Example: minutebook ls --recipient alice
    """
    wanted = None if status is None else ConversationStatus(status)
    most = None if every else limit
    # One more than is shown, to know whether there are others.
    found = database.conversations(recipient=recipient, status=wanted, limit=None if most is None else most + 1)
    if is_json():
        emit_lines(map(document, islice(found, most)))
        return
    listed = list(found)
    if not listed:
        click.echo("no conversations", err=True)
        return
    console().print(table_of(listed[:most]))
    if most is not None and len(listed) > most:
        click.echo(f"there are more than these {most:,}; --all shows the rest", err=True)
