"""`minutebook readmit`: allow new conversations with a blocked recipient."""

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option


@click.command("readmit", cls=Command, short_help="Allow new conversations with a blocked recipient.")
@click.argument("recipient", metavar="R")
@database_options()
@json_option("Print whether the recipient was blocked as JSON. Example: minutebook readmit alice --json")
def command(database: Database, recipient: str) -> None:
    """Allow new conversations with recipient R, which was erased with erase --block.

    Erased conversations stay erased, and their ids cannot be used again.

    Example: minutebook readmit alice
    """
    was_blocked = database.run(database.store.readmit(recipient))
    text = "may start new conversations again" if was_blocked else "was not blocked"
    emit({"recipient": recipient, "was_blocked": was_blocked}, f"{recipient!r} {text}")
