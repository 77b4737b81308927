"""`minutebook rewind`: continue a conversation from an earlier message."""

import click

from minutebook.cli.commands.ls import header_json
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option


@click.command("rewind", cls=Command, short_help="Continue a conversation from an earlier message.")
@click.argument("conversation", metavar="ID")
@click.argument("position", metavar="TO", type=click.IntRange(min=0))
@database_options()
@json_option("Print the conversation as JSON. Example: minutebook rewind order-17 4 --json")
def command(database: Database, conversation: str, position: int) -> None:
    """Hide the messages of conversation ID from position TO on, as numbered by show. The next message follows
    the one before TO.

    Models no longer get the hidden messages. They stay in the record, and show prints them. To show them to models again,
    use undo with the id of the fold that show prints.

    Example: minutebook rewind order-17 4
    """
    header = database.run(database.store.rewind(conversation, position))
    emit(header_json(header), f"{conversation!r} continues from position {position}")
