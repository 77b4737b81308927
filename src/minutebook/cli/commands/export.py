"""`minutebook export`: export conversations from the database as JSONL."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from minutebook.cli.database import Database, open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import flag, store_options
from minutebook.cli.progress import count_progress
from minutebook.cli.rewrite import replace_file


@click.command("export", cls=Command, short_help="Export conversations as JSONL.")
@click.argument("conversation", metavar="ID", required=False)
@flag("--all", "export_all", help_text="Export all conversations. Example: minutebook export --all -o all.jsonl.gz")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Output file, written atomically and gzipped if the name ends in .gz. Default: stdout. Example: -o order-17.jsonl",
)  # fmt: skip
@store_options
def command(conversation: str | None, export_all: bool, output: Path | None, url: str | None, tenant: str) -> None:
    """Export conversation ID, or all conversations, as JSONL that import reads.

    The export contains all entries, pins and folds, also folds that were undone.

    Example: minutebook export order-17 -o order-17.jsonl
    """
    if export_all == (conversation is not None):
        raise click.UsageError("Use either the ID of a conversation or --all.")
    with open_database(url, tenant) as database:
        if conversation is None:
            total = sum(header.length - header.first for header in database.conversations())
        else:
            header = database.run(database.store.header(conversation))
            total = header.length - header.first
        with count_progress("exporting", total, prints_during_progress=output is None) as advance:
            lines = _lines(database, conversation, advance)
            if output is None:
                sys.stdout.flush()
                sys.stdout.buffer.writelines(lines)
                sys.stdout.buffer.flush()
            else:
                replace_file(output, lines, gzipped=output.suffix == ".gz")


def _lines(database: Database, conversation: str | None, advance: Callable[[int], None]) -> Iterator[bytes]:
    ids = [conversation] if conversation is not None else (header.id for header in database.conversations())
    for conversation_id in ids:
        for line in database.iterate(database.store.export(conversation_id)):
            advance(1)
            yield f"{line}\n".encode("ascii")
