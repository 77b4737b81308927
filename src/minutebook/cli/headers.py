"""What is known of a conversation, as people and as programs read it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.table import Table

from minutebook.cli.screen import printable
from minutebook.store.types import Conversation


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
