"""`minutebook search`: search the messages of stored conversations."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit_lines, is_json, json_option
from minutebook.cli.screen import ROLE_STYLES, console, printable, role_family
from minutebook.record.message import MessageRole
from minutebook.store.types import SearchHit

DEFAULT_LIMIT = 20
_DATE_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S")


@click.command("search", cls=Command, short_help="Search the messages of stored conversations.")
@click.argument("query")
@click.option("--id", "conversation", metavar="ID", help="Search only this conversation. Example: --id order-17")
@click.option(
    "--recipient", metavar="R", help="Search only conversations of this recipient. Example: --recipient alice"
)
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in MessageRole]),
    multiple=True,
    help="Search only messages of this role. Can be repeated. Example: --role user",
)
@click.option(
    "--since",
    type=click.DateTime(_DATE_FORMATS),
    metavar="DATE",
    help="Search only messages created from this date or time (UTC) on. Example: --since 2026-01-31",
)
@click.option(
    "--until",
    type=click.DateTime(_DATE_FORMATS),
    metavar="DATE",
    help="Search only messages created before this date or time (UTC). Example: --until 2026-02-28T12:00:00",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Maximum number of hits; those in the newest conversations come first. Example: --limit 100",
)
@database_options()
@json_option("Print each hit as a line of JSON. Example: minutebook search parcel --json")
def command(
    database: Database,
    query: str,
    conversation: str | None,
    recipient: str | None,
    roles: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> None:
    """Find the messages and summaries that match QUERY. Case and accents are ignored.

    A query has words that must all occur, "exact phrases", prefixes such as ord*, -word to exclude a word, and OR between
    alternatives. Texts and tool calls are searched.

    Example: minutebook search "parcel delayed OR late -refund" --recipient alice
    """
    if conversation is not None:
        database.run(database.store.header(conversation))
    hits: list[SearchHit] = []
    cursor = None
    while True:  # without an index, a page may have fewer hits than the limit and still a cursor
        page = database.run(
            database.store.search(
                query,
                conversation=conversation,
                recipient=recipient,
                roles=roles,
                since=since and since.replace(tzinfo=UTC),
                until=until and until.replace(tzinfo=UTC),
                cursor=cursor,
                limit=limit - len(hits),
            )
        )
        hits += page.items
        cursor = page.cursor
        if cursor is None or len(hits) == limit:
            break
    if is_json():
        emit_lines(map(_hit_json, hits))
        return
    _show(hits)
    if not hits:
        click.echo("no message matches", err=True)
    if cursor is not None:
        click.echo(f"only the first {len(hits):,} hits are shown; use --limit N to see more", err=True)


def _show(hits: Sequence[SearchHit]) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold")  # never cut off the position, which is at the end
    grid.add_column(no_wrap=True)
    grid.add_column()
    for hit in hits:
        role = hit.entry.role.value if hit.fold is None else "summary"
        color = ROLE_STYLES[role_family(hit.entry.role.value)][0]
        location = Text(f"{printable(hit.conversation)}:{hit.position}", "bold")
        snippet = Text(printable(hit.snippet))
        for start, stop in hit.highlights:
            snippet.stylize("bold yellow", start, stop)
        grid.add_row(location, Text(role, color), snippet)
    if hits:
        console().print(grid)


def _hit_json(hit: SearchHit) -> dict[str, object]:
    return {
        "conversation": hit.conversation,
        "position": hit.position,
        "role": hit.entry.role.value,
        "fold": hit.fold and hit.fold.id,
        "created_at": hit.entry.created_at.isoformat(),
        "snippet": hit.snippet,
        "highlights": hit.highlights,
    }
