"""`minutebook search`: search the messages of stored conversations."""

import re
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit_lines, is_json, json_option
from minutebook.cli.screen import ROLE_STYLES, console, one_line, printable, role_family
from minutebook.record.message import text_of
from minutebook.store.search import query_words
from minutebook.store.types import SearchHit
from minutebook.wire.chat import entry_to_provider_message

DEFAULT_LIMIT = 20


@click.command("search", cls=Command, short_help="Search the messages of stored conversations.")
@click.argument("query")
@click.option("--id", "conversation", metavar="ID", help="Search only this conversation. Example: --id order-17")
@click.option(
    "--recipient", metavar="R", help="Search only conversations of this recipient. Example: --recipient alice"
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Maximum number of hits, newest first. Example: --limit 100",
)
@database_options()
@json_option("Print each hit as a line of JSON. Example: minutebook search parcel --json")
def command(database: Database, query: str, conversation: str | None, recipient: str | None, limit: int) -> None:
    """Find the messages that contain all words of QUERY, in any order. Case is ignored.

    Example: minutebook search "parcel delayed" --recipient alice
    """
    if conversation is not None:
        database.run(database.store.header(conversation))
    page = database.run(database.store.search(query, conversation=conversation, recipient=recipient, limit=limit))
    if is_json():
        emit_lines(_hit_json(hit, query) for hit in page.items)
        return
    _show(page.items, query)
    if not page.items:
        click.echo("no message contains all of these words", err=True)
    if page.cursor is not None:
        click.echo(f"only the newest {len(page.items):,} hits are shown; use --limit N to see more", err=True)


def _show(hits: Sequence[SearchHit], query: str) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold")  # the position is at the end of the location
    grid.add_column(no_wrap=True)
    grid.add_column()
    for hit in hits:
        role = hit.entry.role.value
        color = ROLE_STYLES[role_family(role)][0]
        location = Text(f"{printable(hit.conversation)}:{hit.position}", "bold")
        grid.add_row(location, Text(role, color), highlighted_snippet(_text(hit), query))
    if hits:
        console().print(grid)


def _hit_json(hit: SearchHit, query: str) -> dict[str, object]:
    return {
        "conversation": hit.conversation,
        "position": hit.position,
        "role": hit.entry.role.value,
        "created_at": hit.entry.created_at.isoformat(),
        "snippet": snippet(_text(hit), query),
    }


def _text(hit: SearchHit) -> str:
    return text_of(entry_to_provider_message(hit.entry))


CONTEXT_CHARACTERS = 60
"""Characters before the first match. Three times as many are shown from the match on."""


def snippet(text: str, query: str) -> str:
    """An excerpt around the first match, on one line."""
    match = _pattern(query).search(text)
    start = max(0, match.start() - CONTEXT_CHARACTERS) if match else 0
    if start:
        start = (
            text.find(" ", start, start + CONTEXT_CHARACTERS) + 1 or start
        )  # start at a word boundary if one is near
    stop = start + 4 * CONTEXT_CHARACTERS
    return f"{'…' if start else ''}{one_line(text[start:stop])}{'…' if stop < len(text) else ''}"


def highlighted_snippet(text: str, query: str) -> Text:
    """The snippet with the words of the query highlighted."""
    line = Text(snippet(text, query))
    line.highlight_regex(_pattern(query), "bold yellow")
    return line


def _pattern(query: str) -> re.Pattern[str]:
    """Matches whole words of the query. A single CJK character is a word and needs no word boundary."""
    words = "|".join(
        re.escape(word) if len(word) == 1 and not word.isascii() else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
        for word in query_words(query)
    )
    return re.compile(words, re.IGNORECASE)
