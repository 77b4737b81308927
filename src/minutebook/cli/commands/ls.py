"""`minutebook ls`: list stored conversations."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any

import click
from rich.table import Table

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, database_options, emit_lines, flag, is_json, json_option
from minutebook.cli.screen import console, printable
from minutebook.store.types import ConversationHeader, ConversationStatus


def table_of(conversations: Iterable[ConversationHeader]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("id", "recipient"):
        table.add_column(column, overflow="fold")
    table.add_column("status", no_wrap=True)
    for column in ("turns", "messages"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("updated", no_wrap=True)
    for header in conversations:
        recipient = "" if header.recipient == header.id else printable(header.recipient)  # repeated ids fill the screen
        names = (printable(header.id), recipient, header.status.value)
        table.add_row(*names, f"{header.turns:,}", f"{header.length:,}", local_time(header.updated_at))
    return table


def local_time(time: datetime) -> str:
    """The time in the local time zone."""
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def header_json(header: ConversationHeader) -> dict[str, Any]:
    """A header as JSON data."""
    origin = header.origin
    return {
        "id": header.id,
        "tenant": header.tenant,
        "recipient": header.recipient,
        "status": header.status.value,
        "turns": header.turns,
        "messages": header.length,
        "purged": header.first,
        "version": header.version,
        "created_at": header.created_at.isoformat(),
        "updated_at": header.updated_at.isoformat(),
        "labels": dict(header.labels),
        "forked_from": None if origin is None else {"id": origin.conversation, "at": origin.position},
    }


DEFAULT_LIMIT = 50


@click.command("ls", cls=Command, short_help="List stored conversations.")
@click.option("--recipient", metavar="R", help="Only conversations of this recipient. Example: --recipient alice")
@click.option(
    "--status",
    type=click.Choice([status.value for status in ConversationStatus]),
    help="Only conversations with this status. Example: --status active",
)
@count_option(
    "--limit", default=DEFAULT_LIMIT, help_text="Maximum number of conversations, newest first. Example: --limit 5"
)
@flag("--all", "show_all", help_text="List all conversations. Example: minutebook ls --all")
@database_options()
@json_option("Print each conversation as a line of JSON. Example: minutebook ls --json | jq .id")
def command(database: Database, recipient: str | None, status: str | None, limit: int, show_all: bool) -> None:
    """List the conversations, the newest first.

    Example: minutebook ls --recipient alice
    """
    status_filter = None if status is None else ConversationStatus(status)
    max_rows = None if show_all else limit
    # One more than is shown, to know whether there are more.
    fetch_limit = None if max_rows is None else max_rows + 1
    headers = database.conversations(recipient=recipient, status=status_filter, limit=fetch_limit)
    if is_json():
        emit_lines(map(header_json, islice(headers, max_rows)))
        return
    rows = list(headers)
    if not rows:
        click.echo("no conversations", err=True)
        return
    console().print(table_of(rows[:max_rows]))
    if max_rows is not None and len(rows) > max_rows:
        click.echo(f"only the newest {max_rows:,} conversations are shown; --all shows all", err=True)
