"""`minutebook clear`: begin a conversation again under the same id."""

import click

from minutebook.cli.commands.ls import header_json
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option


@click.command("clear", cls=Command, short_help="Begin a conversation again under the same id.")
@click.argument("conversation", metavar="ID")
@database_options()
@json_option("Print the conversation as JSON. Example: minutebook clear order-17 --json")
def command(database: Database, conversation: str) -> None:
    """Hide all messages of conversation ID, so that it begins again.

    Models no longer get the hidden messages. They stay in the record, and show prints them; erase deletes them.

    Example: minutebook clear order-17
    """
    header = database.run(database.store.clear(conversation))
    emit(header_json(header), f"{conversation!r} begins again; {header.length:,} messages are hidden")
