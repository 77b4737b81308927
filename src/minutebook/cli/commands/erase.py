"""`minutebook erase`: delete conversations permanently."""

from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

import click

from minutebook.cli.commands.gc import unused_conversations
from minutebook.cli.database import Database, open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import (
    confirm,
    dry_run_option,
    emit,
    flag,
    is_json,
    json_option,
    store_options,
    vacuum_options,
    yes_option,
)
from minutebook.cli.progress import count_progress
from minutebook.errors import ConversationNotFound
from minutebook.store.expiry import parse_age, sum_of_receipts
from minutebook.store.types import ErasureReceipt


@click.command("erase", cls=Command, short_help="Delete conversations permanently.")
@click.argument("conversation", metavar="ID", required=False)
@click.option(
    "--recipient", metavar="R", help="Recipient whose conversations are all deleted. Example: --recipient alice"
)
@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    help="Delete the conversations without a new message for this time: 30d, 12h, 90m. Example: --older-than 365d",
)
@flag(
    "--block",
    help_text="Also reject new conversations with the recipient, until minutebook readmit. Example: minutebook erase --recipient alice --block",
)
@dry_run_option
@yes_option
@vacuum_options
@store_options
@json_option("Print the receipt as JSON. Example: minutebook erase order-17 --yes --json")
def command(
    conversation: str | None,
    recipient: str | None,
    age: str | None,
    block: bool,
    dry_run: bool,
    yes: bool,
    vacuum: bool,
    rewrite: bool,
    url: str | None,
    tenant: str,
) -> None:
    """Delete conversation ID, all of a recipient, or all old ones, with their folds, summaries, search index and forks.

    This cannot be undone, and the ids cannot be used again. The recipient may start new conversations, unless it is
    blocked. The receipt contains no personal data and may be archived.

    Example: minutebook erase --recipient alice --vacuum
    """
    if sum(target is not None for target in (conversation, recipient, age)) != 1:
        raise click.UsageError("Use either the ID of a conversation, --recipient or --older-than.")
    if block and recipient is None:
        raise click.UsageError("--block needs --recipient.")
    before = None if age is None else datetime.now(UTC) - parse_age(age, name="--older-than")
    with open_database(url, tenant) as database:
        selection = _selection(database, conversation, recipient, before)
        if dry_run:
            emit(
                {"conversations": selection.conversations, "entries": selection.messages, "dry_run": True},
                f"{selection.description} and all forks would be deleted",
            )
            return
        confirm(f"Delete {selection.description} and all forks permanently?", yes=yes)
        if before is not None:
            receipt = _erase_unused(database, before)
        else:
            erasure = database.store.erase(conversation=conversation, recipient=recipient, block=block)
            receipt = database.run(erasure)
        if vacuum:
            database.run(database.store.vacuum(rewrite=rewrite))
    erased_at = receipt.erased_at.isoformat()
    emit(
        {**asdict(receipt), "erased_at": erased_at, "vacuumed": vacuum},
        f"deleted {receipt.conversations:,} conversations with {receipt.entries:,} messages, {receipt.folds:,} folds and "
        f"{receipt.pins:,} pins at {erased_at}; receipt {receipt.id}",
    )
    if not rewrite and not is_json():
        click.echo(
            "deleted data may remain in the database files; use --rewrite with the next erase to remove it", err=True
        )


def _erase_unused(database: Database, before: datetime) -> ErasureReceipt:
    """Erase the conversations that were not appended to since a time, each in its own transaction."""
    total = ErasureReceipt(str(uuid4()), datetime.now(UTC), 0, 0, 0, 0)
    unused = unused_conversations(list(database.conversations()), before)
    with count_progress("deleting", len(unused), prints_during_progress=False) as advance:
        for header in unused:
            with suppress(ConversationNotFound):  # erased with the conversation that it was forked from
                if database.run(database.store.header(header.id)).version == header.version:
                    total = sum_of_receipts(total, database.run(database.store.erase(conversation=header.id)))
            advance(1)
    return total


class _ErasureSelection(NamedTuple):
    """The conversations that a call deletes."""

    conversations: int
    """The number of conversations, without their forks."""
    messages: int
    description: str


def _selection(
    database: Database, conversation: str | None, recipient: str | None, before: datetime | None
) -> _ErasureSelection:
    """The conversation with this id, all conversations of the recipient, or all that were last appended to before a time.

    Raises:
        ConversationNotFound: the conversation does not exist.
    """
    if conversation is not None:
        header = database.run(database.store.header(conversation))
        return _ErasureSelection(1, header.length, f"conversation {conversation!r} with {header.length:,} messages")
    headers = list(database.conversations(recipient=recipient))
    if before is not None:
        headers = unused_conversations(headers, before)
    messages = sum(header.length for header in headers)
    which = (
        f"all {len(headers):,} conversations of {recipient!r}"
        if before is None
        else f"{len(headers):,} old conversations"
    )
    return _ErasureSelection(len(headers), messages, f"{which} with {messages:,} messages")
