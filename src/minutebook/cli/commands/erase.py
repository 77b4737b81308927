"""`minutebook erase`: delete conversations permanently."""

from dataclasses import asdict
from typing import NamedTuple

import click

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
    yes_option,
)


@click.command("erase", cls=Command, short_help="Delete conversations permanently.")
@click.argument("conversation", metavar="ID", required=False)
@click.option(
    "--recipient", metavar="R", help="Recipient whose conversations are all deleted. Example: --recipient alice"
)
@dry_run_option
@yes_option
@flag(
    "--vacuum",
    help_text="Rewrite the database files so that no deleted data remains on disk. Can be slow. Example: minutebook erase --recipient alice --vacuum",
)
@store_options
@json_option("Print the receipt as JSON. Example: minutebook erase order-17 --yes --json")
def command(
    conversation: str | None,
    recipient: str | None,
    dry_run: bool,
    yes: bool,
    vacuum: bool,
    url: str | None,
    tenant: str,
) -> None:
    """Delete conversation ID, or all of a recipient, with their folds, summaries, search index and forks.

    This cannot be undone, and the ids cannot be used again. The receipt contains no personal data and may be archived.

    Example: minutebook erase --recipient alice --vacuum
    """
    if (conversation is None) == (recipient is None):
        raise click.UsageError("Use either the ID of a conversation or --recipient.")
    with open_database(url, tenant) as database:
        selection = _selection(database, conversation, recipient)
        if dry_run:
            emit(
                {"conversations": selection.conversations, "entries": selection.messages, "dry_run": True},
                f"{selection.description} and all forks would be deleted",
            )
            return
        confirm(f"Delete {selection.description} and all forks permanently?", yes=yes)
        receipt = database.run(database.store.erase(conversation=conversation, recipient=recipient))
        if vacuum:
            database.run(database.store.vacuum())
    erased_at = receipt.erased_at.isoformat()
    emit(
        {**asdict(receipt), "erased_at": erased_at, "vacuumed": vacuum},
        f"deleted {receipt.conversations:,} conversations with {receipt.entries:,} messages, {receipt.folds:,} folds and "
        f"{receipt.pins:,} pins at {erased_at}; receipt {receipt.id}",
    )
    if not vacuum and not is_json():
        click.echo(
            "deleted data may remain in the database files; use --vacuum with the next erase to remove it", err=True
        )


class _ErasureSelection(NamedTuple):
    """The conversations that a call deletes."""

    conversations: int
    """The number of conversations, without their forks."""
    messages: int
    description: str


def _selection(database: Database, conversation: str | None, recipient: str | None) -> _ErasureSelection:
    """The conversation with this id, or all conversations of the recipient.

    Raises:
        ConversationNotFound: the conversation does not exist.
    """
    if conversation is not None:
        header = database.run(database.store.header(conversation))
        return _ErasureSelection(1, header.length, f"conversation {conversation!r} with {header.length:,} messages")
    headers = list(database.conversations(recipient=recipient))
    messages = sum(header.length for header in headers)
    description = f"all {len(headers):,} conversations of {recipient!r} with {messages:,} messages"
    return _ErasureSelection(len(headers), messages, description)
