"""`minutebook import`: conversations from a file into the database."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from minutebook.cli.exits import FAILED, FINDINGS, Command
from minutebook.cli.options import file_argument, json_option, store_options

if TYPE_CHECKING:
    from minutebook.cli.arriving import Outcome


@click.command("import", cls=Command, short_help="Keep the conversations of a file.")
@file_argument
@click.option(
    "--recipient",
    metavar="R",
    help="Whom the conversations are with; by default who the export says, else the id of each. Example: --recipient alice",
)
@store_options
@json_option("Print one JSON document: how many came, which are broken, which were refused. Example: --json")
@click.pass_context
def command(ctx: click.Context, file: str, recipient: str | None, url: str | None, tenant: str, as_json: bool) -> None:
    """Add the conversations of FILE to the database, which is made if there is none.

    FILE is what export wrote, or OpenAI chat data in any form that the other commands read. A conversation without an id
    gets one from the name of the file and its place in it. Messages that do not fit together are kept as they are, and
    said; the exit code is then 6. The same file may be imported again: what is there already is not added twice. A
    conversation whose id is taken by another one is refused, the others are imported, and the exit code is 1.

    Files with a conversation or a message a line may be of any size: they are not read into memory.

    Example: minutebook import log.jsonl --recipient alice
    """
    from minutebook.cli.arriving import arrive
    from minutebook.cli.database import opened_database
    from minutebook.cli.progress import progress
    from minutebook.cli.reading import Reading

    with progress(file, silent=True) as advance, opened_database(url, tenant, make=True) as database:
        outcome = arrive(database, Reading(file, advance), recipient)
    if as_json:
        click.echo(json.dumps(asdict(outcome), indent=2))
    else:
        _report(outcome)
    if outcome.refused:
        ctx.exit(FAILED)
    if outcome.broken:
        ctx.exit(FINDINGS)


def _report(outcome: "Outcome") -> None:
    for told in outcome.broken:
        click.echo(f"{told.id!r} is broken, and kept as it is: {'; '.join(told.problems)}", err=True)
    for told in outcome.refused:
        click.echo(f"{told.id!r} was not imported: {'; '.join(told.problems)}", err=True)
    click.echo(f"imported {outcome.conversations:,} conversations with {outcome.messages:,} messages", err=True)
