"""`minutebook gc`: delete the arguments and results of old tool calls."""

from typing import Final

import click

from minutebook.cli.database import open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, flag, is_json, json_option, store_options
from minutebook.cli.progress import count_progress
from minutebook.conversation.config import Persistence
from minutebook.conversation.trimming import TrimResult, trim_all

_PERSISTENCE_OF: Final = {"name,status": "trimmed", "name": "none"}
"""Value of --keep → the same setting of the configuration."""


@click.command("gc", cls=Command, short_help="Delete the arguments and results of old tool calls.")
@count_option(
    "--older-than-turns",
    default=2,
    help_text="Number of newest turns per conversation that are not trimmed. Example: --older-than-turns 10",
)
@click.option(
    "--keep",
    type=click.Choice(list(_PERSISTENCE_OF)),
    help="Parts of a tool call that are kept. Default: name,status. Example: --keep name",
)
@click.option(
    "--tool-persistence",
    "persistence",
    type=click.Choice(list(_PERSISTENCE_OF.values())),
    help="Same as --keep, with the values of the configuration: trimmed = name,status; none = name. "
    "Example: --tool-persistence none",
)
@click.option("--recipient", metavar="R", help="Only conversations with this recipient. Example: --recipient alice")
@flag("--write", help_text="Write the changes. Without it, only show what would change. Example: minutebook gc --write")
@flag(
    "--vacuum",
    help_text="Rewrite the database files so that no deleted data remains on disk. Can be slow. Example: minutebook gc --write --vacuum",
)
@store_options
@json_option("Print the changes per conversation and the totals as JSON. Example: minutebook gc --json")
def command(
    older_than_turns: int,
    keep: str | None,
    persistence: str | None,
    recipient: str | None,
    write: bool,
    vacuum: bool,
    url: str | None,
    tenant: str,
) -> None:
    """Delete the arguments and results of tool calls in all but the newest turns of every conversation.

    The names of the tools and the messages of users and models are kept, and so are pinned exchanges. This cannot be
    undone. Without --write nothing is changed.

    Example: minutebook gc --older-than-turns 5 --write
    """
    if keep is not None and persistence is not None and _PERSISTENCE_OF[keep] != persistence:
        raise click.UsageError(
            f"--keep {keep} means --tool-persistence {_PERSISTENCE_OF[keep]}; use one of the two options."
        )
    if vacuum and not write:
        raise click.UsageError("--vacuum requires --write.")
    persistence = persistence or _PERSISTENCE_OF[keep or "name,status"]
    kept_parts = Persistence.NAME if persistence == "none" else Persistence.STATUS
    results: dict[str, TrimResult] = {}
    with open_database(url, tenant) as database:
        headers = list(database.conversations(recipient=recipient))
        total = sum(header.length - header.first for header in headers)
        with count_progress("trimming", total, silent=True) as advance:
            for header in headers:
                trimming = trim_all(
                    database.store,
                    header.id,
                    older_than_turns=older_than_turns,
                    persistence=kept_parts,
                    write=write,
                    advance=advance,
                )
                result = database.run(trimming)
                if result.trimmed:
                    results[header.id] = result
        if vacuum:
            database.run(database.store.vacuum())
    rows = [
        {"id": name, "trimmed": result.trimmed, "freed_bytes": result.freed_bytes} for name, result in results.items()
    ]
    trimmed = sum(result.trimmed for result in results.values())
    freed = sum(result.freed_bytes for result in results.values())
    lines = [f"{name}: {result.trimmed:,} messages, {result.freed_bytes:,} bytes" for name, result in results.items()]
    action = "trimmed" if write else "would be trimmed"
    lines.append(
        f"{trimmed:,} messages in {len(results):,} of {len(headers):,} conversations {action}: {freed:,} bytes"
    )
    summary = {"conversations": len(headers), "trimmed": trimmed, "freed_bytes": freed, "written": write}
    emit({"conversations": rows, "summary": summary}, "\n".join(lines))
    if results and not is_json() and not vacuum:
        advice = "deleted data may remain in the database files; use --write --vacuum to remove it"
        click.echo(advice if write else "nothing was changed; --write trims the messages permanently", err=True)
