"""`minutebook formats`: list the file formats."""

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import emit, json_option
from minutebook.cli.screen import console, headed_table


@click.command("formats", cls=Command, short_help="List the file formats that can be read and written.")
@json_option("Print the formats as JSON. Example: minutebook formats --json")
def command() -> None:
    """List the formats of the files that check, repair, tokens, view, convert and import read.

    A format is detected by the content of a file; --from NAME overrides that. Other packages add formats with an entry point
    of the group minutebook.formats.

    Example: minutebook formats
    """
    from minutebook.formats import formats

    rows = [
        {
            "name": name,
            "title": format_.title,
            "kind": format_.kind,
            "provider": format_.provider,
            "reads": True,
            "writes": format_.write is not None,
        }
        for name, format_ in sorted(formats().items())
    ]

    def show() -> None:
        table = headed_table(expand=True)
        table.add_column("name", no_wrap=True)
        table.add_column("reads", no_wrap=True)
        table.add_column("writes", no_wrap=True)
        table.add_column("format", ratio=1)
        for row in rows:
            table.add_row(str(row["name"]), "yes", "yes" if row["writes"] else "", str(row["title"]))
        console().print(table)

    emit(rows, show)
