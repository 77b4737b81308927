"""`minutebook ls`: which conversations are kept."""

import json

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import json_option, store_options
from minutebook.store.types import ConversationStatus

SHOWN = 50


@click.command("ls", cls=Command, short_help="Which conversations are kept.")
@click.option("--recipient", metavar="R", help="Only those with this recipient. Example: --recipient alice")
@click.option(
    "--status",
    type=click.Choice([status.value for status in ConversationStatus]),
    help="Only those that are doing this. Example: --status active",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="No more than these, the newest. Example: --limit 5",
)
@click.option("--all", "every", is_flag=True, help="Every one, however many. Example: minutebook ls --all")
@store_options
@json_option("Print one JSON object a line for each conversation. Example: minutebook ls --json | jq .id")
def command(
    recipient: str | None, status: str | None, limit: int, every: bool, url: str | None, tenant: str, as_json: bool
) -> None:
    """List the conversations, newest first by the time they were made.

    Example: minutebook ls --recipient alice
    """
    from minutebook.cli.database import opened_database
    from minutebook.cli.headers import document, table_of
    from minutebook.cli.screen import console

    wanted = None if status is None else ConversationStatus(status)
    most = None if every else limit
    with opened_database(url, tenant) as database:
        # One more than is shown, to know whether there are others.
        found = database.conversations(recipient=recipient, status=wanted, limit=None if most is None else most + 1)
        if as_json:
            for place, one in enumerate(found):
                if place != most:
                    click.echo(json.dumps(document(one)))
            return
        listed = list(found)
    if not listed:
        click.echo("no conversations", err=True)
        return
    console().print(table_of(listed[:most]))
    if most is not None and len(listed) > most:
        click.echo(f"there are more than these {most:,}; --all shows the rest", err=True)
