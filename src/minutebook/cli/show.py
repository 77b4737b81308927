"""`minutebook show`: one conversation, to read."""

import json
from typing import TYPE_CHECKING, Any

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import json_option, store_options

if TYPE_CHECKING:
    from minutebook.store.types import Loaded

TURNS = 10


@click.command("show", cls=Command, short_help="Read a conversation.")
@click.argument("conversation", metavar="ID")
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=TURNS,
    show_default=True,
    metavar="N",
    help="No more than the last turns. Example: --turns 3",
)
@click.option("--all", "every", is_flag=True, help="All of it, however long. Example: minutebook show order-17 --all")
@click.option(
    "--folded",
    is_flag=True,
    help="Show what stands for folded messages in their place, as a model is sent it. Example: minutebook show order-17 --folded",
)
@store_options
@json_option("Print one JSON document: the header, the messages, the folds. Example: minutebook show order-17 --json")
def command(
    conversation: str, turns: int, every: bool, folded: bool, url: str | None, tenant: str, as_json: bool
) -> None:
    """Show the conversation ID: who said what, and which messages are folded.

    Tool results are shortened to a line; --json has all of them.

    Example: minutebook show order-17 --turns 3
    """
    from minutebook.cli.database import opened_database

    last = None if every else turns
    with opened_database(url, tenant) as database:
        loaded = database.run(database.store.load(conversation, last_turns=last, folded=folded))
    if as_json:
        click.echo(json.dumps(_document(loaded, folded=folded), indent=2))
        return
    from minutebook.cli.reader import show

    show(loaded, folded=folded)
    if last is not None and loaded.conversation.turns > last:
        click.echo(f"the last {last:,} of {loaded.conversation.turns:,} turns; --all shows the rest", err=True)


def _document(loaded: "Loaded", *, folded: bool) -> dict[str, Any]:
    from minutebook.cli.headers import document
    from minutebook.record.frozen import thawed

    shown = loaded.shown() if folded else zip(loaded.positions, loaded.messages, strict=True)
    return {
        "conversation": document(loaded.conversation),
        "messages": [{"position": position, "message": thawed(message)} for position, message in shown],
        "folds": [
            {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in loaded.folds
        ],
        "pins": sorted(loaded.pins),
    }
