"""`minutebook fork`: another conversation that begins like one that is there."""

import json

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import json_option, store_options
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
@store_options
@json_option("Print one JSON document: the new conversation. Example: minutebook fork order-17 try-2 --json")
def command(conversation: str, new_id: str, at: int | None, url: str | None, tenant: str, as_json: bool) -> None:
    """Make the conversation NEW, which begins with the messages of ID, their folds and their pins.

    Both go on independently of each other; erasing ID erases NEW too.

    Example: minutebook fork order-17 order-17-again --at 4
    """
    from minutebook.cli.commands.ls import document
    from minutebook.cli.database import opened_database

    with opened_database(url, tenant) as database:
        try:
            made = database.run(database.store.fork(conversation, new_id, at=at))
        except VersionConflict:
            raise InvalidSetting("NEW", new_id, "an id that no conversation has") from None
    if as_json:
        click.echo(json.dumps(document(made), indent=2))
    else:
        click.echo(f"{made.id!r} begins with {made.length:,} messages of {conversation!r}")
