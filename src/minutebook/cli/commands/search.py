"""`minutebook search`: where something was said.

The part of a text that says why it was found.
"""

import re
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import emit_lines, is_json, json_option, on_database
from minutebook.cli.screen import ROLE_LOOK, console, one_line, printable, role_family
from minutebook.record.message import text_of
from minutebook.store.search import query_words
from minutebook.store.types import Hit
from minutebook.wire.chat import entry_to_provider_message

SHOWN = 20


@click.command("search", cls=Command, short_help="Find where something was said.")
@click.argument("query")
@click.option("--id", "conversation", metavar="ID", help="Only in this conversation. Example: --id order-17")
@click.option("--recipient", metavar="R", help="Only in those with this recipient. Example: --recipient alice")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="No more than these, the newest. Example: --limit 100",
)
@on_database()
@json_option("Print one JSON object a line for each hit. Example: minutebook search parcel --json")
def command(database: Database, query: str, conversation: str | None, recipient: str | None, limit: int) -> None:
    """Find the messages that have every word of QUERY, in any order; upper and lower case are one.

    Example: minutebook search "parcel delayed" --recipient alice
    """
    if conversation is not None:
        database.run(database.store.header(conversation))
    page = database.run(database.store.search(query, conversation=conversation, recipient=recipient, limit=limit))
    if is_json():
        emit_lines(_document(hit, query) for hit in page.items)
        return
    _show(page.items, query)
    if not page.items:
        click.echo("no message has all of these words", err=True)
    if page.cursor is not None:
        click.echo(f"there are more than these {len(page.items):,}; --limit N shows them", err=True)


def _show(hits: Sequence[Hit], query: str) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for hit in hits:
        role = hit.entry.role.value
        look = ROLE_LOOK[role_family(role)][0]
        where = Text(f"{printable(hit.conversation)}:{hit.position}", "bold")
        grid.add_row(where, Text(role, look), marked(_text(hit), query))
    if hits:
        console().print(grid)


def _document(hit: Hit, query: str) -> dict[str, object]:
    return {
        "conversation": hit.conversation,
        "position": hit.position,
        "role": hit.entry.role.value,
        "created_at": hit.entry.created_at.isoformat(),
        "snippet": snippet(_text(hit), query),
    }


def _text(hit: Hit) -> str:
    return text_of(entry_to_provider_message(hit.entry))


AROUND = 60
"""Characters in front of the first word that was found; about three times as many follow."""


def snippet(text: str, query: str) -> str:
    """One line of the text, around the first of the words."""
    found = _pattern(query).search(text)
    start = max(0, found.start() - AROUND) if found else 0
    if start:
        start = text.find(" ", start, start + AROUND) + 1 or start  # begin with a whole word, where words are short
    stop = start + 4 * AROUND
    return f"{'…' if start else ''}{one_line(text[start:stop])}{'…' if stop < len(text) else ''}"


def marked(text: str, query: str) -> Text:
    """The same, the words made bold."""
    shown = Text(snippet(text, query))
    shown.highlight_regex(_pattern(query), "bold yellow")
    return shown


def _pattern(query: str) -> re.Pattern[str]:
    """The words of a query where they stand alone; a Chinese or Japanese one stands alone beside any other."""
    words = "|".join(
        re.escape(word) if len(word) == 1 and not word.isascii() else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
        for word in query_words(query)
    )
    return re.compile(words, re.IGNORECASE)
