"""`minutebook export`: conversations out of the database, as lines of JSON."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from minutebook.cli.database import Database, opened_database
from minutebook.cli.exits import Command
from minutebook.cli.files import replace_file
from minutebook.cli.options import flag, store_options
from minutebook.cli.progress import counting


@click.command("export", cls=Command, short_help="Write conversations as lines of JSON.")
@click.argument("conversation", metavar="ID", required=False)
@flag("--all", "every", help_text="Every conversation. Example: minutebook export --all -o all.jsonl.gz")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Write to this file, in one step, gzipped if its name ends in .gz. Example: -o order-17.jsonl",
)  # fmt: skip
@store_options
def command(conversation: str | None, every: bool, output: Path | None, url: str | None, tenant: str) -> None:
    """Write the conversation ID, or all of them, as JSONL that import reads.

    The record is whole: entries, folds, undone ones too, and pins.

    Example: minutebook export order-17 -o order-17.jsonl
    """
    if every == (conversation is not None):
        raise click.UsageError("Give the ID of a conversation, or --all.")
    with opened_database(url, tenant) as database:
        if conversation is None:
            total = sum(one.length - one.first for one in database.conversations())
        else:
            header = database.run(database.store.header(conversation))
            total = header.length - header.first
        with counting("exporting", total, silent=output is not None) as advance:
            lines = _lines(database, conversation, advance)
            if output is None:
                sys.stdout.flush()
                sys.stdout.buffer.writelines(lines)
                sys.stdout.buffer.flush()
            else:
                replace_file(output, lines, gzipped=output.suffix == ".gz")


def _lines(database: Database, conversation: str | None, advance: Callable[[int], None]) -> Iterator[bytes]:
    names = [conversation] if conversation is not None else (one.id for one in database.conversations())
    for name in names:
        for line in database.each(database.store.export(name)):
            advance(1)
            yield f"{line}\n".encode("ascii")
