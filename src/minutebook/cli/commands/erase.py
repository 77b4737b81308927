"""`minutebook erase`: delete conversations permanently."""

from dataclasses import asdict

import click

from minutebook.cli.database import Database, open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import emit, flag, is_json, json_option, store_options


@click.command("erase", cls=Command, short_help="Delete conversations permanently.")
@click.option("--id", "conversation", metavar="ID", help="Id of the conversation to delete. Example: --id order-17")
@click.option(
    "--recipient", metavar="R", help="Recipient whose conversations are all deleted. Example: --recipient alice"
)
@flag("--yes", help_text="Do not ask for confirmation. Example: minutebook erase --id order-17 --yes")
@flag(
    "--vacuum",
    help_text="Rewrite the database files so that no deleted data remains on disk. Can be slow. Example: minutebook erase --recipient alice --vacuum",
)
@store_options
@json_option("Print the receipt as JSON. Example: minutebook erase --id order-17 --yes --json")
def command(
    conversation: str | None, recipient: str | None, yes: bool, vacuum: bool, url: str | None, tenant: str
) -> None:
    """Delete a conversation, or all of a recipient, with their folds, summaries, search index and forks.

    This cannot be undone, and the ids cannot be used again. The receipt contains no personal data and may be archived.

    Example: minutebook erase --recipient alice --vacuum
    """
    if (conversation is None) == (recipient is None):
        raise click.UsageError("Use exactly one of --id and --recipient.")
    with open_database(url, tenant) as database:
        description = _description(database, conversation, recipient)
        if not yes:
            click.confirm(f"Delete {description} and all forks?", abort=True, err=True)
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


def _description(database: Database, conversation: str | None, recipient: str | None) -> str:
    """Describe the conversations that would be deleted, for the confirmation.

    Raises:
        ConversationNotFound: the conversation does not exist.
    """
    if conversation is not None:
        header = database.run(database.store.header(conversation))
        return f"conversation {conversation!r} with {header.length:,} messages"
    count = sum(1 for _ in database.conversations(recipient=recipient))
    return f"all {count:,} conversations of {recipient!r}"
