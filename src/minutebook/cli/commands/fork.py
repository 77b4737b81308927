"""`minutebook fork`: copy a conversation under a new id."""

import click

from minutebook.cli.commands.ls import header_json
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option
from minutebook.errors import InvalidSetting, VersionConflict


@click.command("fork", cls=Command, short_help="Copy a conversation under a new id.")
@click.argument("conversation", metavar="ID")
@click.argument("new_id", metavar="NEW")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="N",
    help="Copy only the messages before this position, as numbered by show. Default: all messages. Example: --at 4",
)
@database_options()
@json_option("Print the new conversation as JSON. Example: minutebook fork order-17 try-2 --json")
def command(database: Database, conversation: str, new_id: str, at: int | None) -> None:
    """Create conversation NEW with the messages, folds and pins of conversation ID.

    The two are independent afterwards, except that erasing ID also erases NEW.

    Example: minutebook fork order-17 order-17-again --at 4
    """
    try:
        fork = database.run(database.store.fork(conversation, new_id, at=at))
    except VersionConflict:
        raise InvalidSetting("NEW", new_id, "an id that is not in use") from None
    emit(header_json(fork), f"created {fork.id!r} with {fork.length:,} messages of {conversation!r}")
