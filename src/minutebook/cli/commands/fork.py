"""`minutebook fork`: another conversation that begins like one that is there."""

import click

from minutebook.cli.commands.ls import document
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import emit, json_option, on_database
from minutebook.errors import InvalidSetting, VersionConflict


@click.command("fork", cls=Command, short_help="Begin another conversation like one that is there.")
@click.argument("conversation", metavar="ID")
@click.argument("new_id", metavar="NEW")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin with the messages before this position only, as show numbers them. Example: --at 4",
)
@on_database()
@json_option("Print one JSON document: the new conversation. Example: minutebook fork order-17 try-2 --json")
def command(database: Database, conversation: str, new_id: str, at: int | None) -> None:
    """Make the conversation NEW, which begins with the messages of ID, their folds and their pins.

    Both go on independently of each other; erasing ID erases NEW too.

    Example: minutebook fork order-17 order-17-again --at 4
    """
    try:
        made = database.run(database.store.fork(conversation, new_id, at=at))
    except VersionConflict:
        raise InvalidSetting("NEW", new_id, "an id that no conversation has") from None
    emit(document(made), f"{made.id!r} begins with {made.length:,} messages of {conversation!r}")
