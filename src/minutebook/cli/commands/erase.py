"""`minutebook erase`: remove conversations for good."""

from dataclasses import asdict

import click

from minutebook.cli.database import Database, opened_database
from minutebook.cli.exits import Command
from minutebook.cli.options import emit, flag, is_json, json_option, store_options


@click.command("erase", cls=Command, short_help="Remove conversations for good.")
@click.option("--id", "conversation", metavar="ID", help="The conversation to remove. Example: --id order-17")
@click.option("--recipient", metavar="R", help="Whose conversations to remove, all of them. Example: --recipient alice")
@flag("--yes", help_text="Do not ask. Example: minutebook erase --id order-17 --yes")
@flag(
    "--vacuum",
    help_text="Leave no trace in the files of the database, which may take long. Example: minutebook erase --recipient alice --vacuum",
)
@store_options
@json_option("Print the receipt as one JSON document. Example: minutebook erase --id order-17 --yes --json")
def command(
    conversation: str | None, recipient: str | None, yes: bool, vacuum: bool, url: str | None, tenant: str
) -> None:
    """Remove a conversation, or all of a recipient's, with folds, summaries, search index and every fork made from them.

    It cannot be undone, and nothing can be written to these ids again. The receipt names nobody and may be kept.

    Example: minutebook erase --recipient alice --vacuum
    """
    if (conversation is None) == (recipient is None):
        raise click.UsageError("Give --id or --recipient, one of them.")
    with opened_database(url, tenant) as database:
        what = _named(database, conversation, recipient)
        if not yes:
            click.confirm(f"Erase {what}, and every fork made from it?", abort=True, err=True)
        receipt = database.run(database.store.erase(conversation=conversation, recipient=recipient))
        if vacuum:
            database.run(database.store.vacuum())
    at = receipt.erased_at.isoformat()
    emit(
        {**asdict(receipt), "erased_at": at, "vacuumed": vacuum},
        f"erased {receipt.conversations:,} conversations with {receipt.entries:,} messages, {receipt.folds:,} folds and "
        f"{receipt.pins:,} pins at {at}; receipt {receipt.id}",
    )
    if not vacuum and not is_json():
        click.echo(
            "traces may be left in the files of the database; --vacuum with the next erase removes them", err=True
        )


def _named(database: Database, conversation: str | None, recipient: str | None) -> str:
    """What would be erased, for whoever is asked.

    Raises:
        ConversationNotFound: there is no such conversation.
    """
    if conversation is not None:
        header = database.run(database.store.header(conversation))
        return f"conversation {conversation!r} with {header.length:,} messages"
    count = sum(1 for _ in database.conversations(recipient=recipient))
    return f"all {count:,} conversations of {recipient!r}"
