"""`minutebook gc`: trim the payloads of old tool calls."""

from typing import Final

import click

from minutebook.cli.database import opened_database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, flag, is_json, json_option, store_options
from minutebook.cli.progress import counting
from minutebook.conversation.config import Kept
from minutebook.conversation.trimming import Aged, trim_all

_KEPT: Final = {"name,status": "trimmed", "name": "none"}
"""What is kept → what the configuration calls it."""


@click.command("gc", cls=Command, short_help="Trim the payloads of old tool calls.")
@count_option(
    "--older-than-turns",
    default=2,
    help_text="How many of the newest turns of each conversation are left as they are. Example: --older-than-turns 10",
)
@click.option(
    "--keep",
    type=click.Choice(list(_KEPT)),
    help="What is kept of a call, by default name,status. Example: --keep name",
)
@click.option(
    "--tool-persistence",
    "persistence",
    type=click.Choice(list(_KEPT.values())),
    help="The same as the configuration says it: trimmed keeps name and status, none the name. "
    "Example: --tool-persistence none",
)
@click.option("--recipient", metavar="R", help="Only conversations with this recipient. Example: --recipient alice")
@flag("--write", help_text="Do it; without this, only say what would be done. Example: minutebook gc --write")
@flag(
    "--vacuum",
    help_text="Leave no trace in the files of the database, which may take long. Example: minutebook gc --write --vacuum",
)
@store_options
@json_option("Print one JSON document: each conversation, and the sum. Example: minutebook gc --json")
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
    """Take arguments and results of tool calls out of all but the newest turns of every conversation.

    Who called what, and what users and the model said, stays; pinned exchanges stay whole. What is taken cannot be
    brought back. Without --write nothing is changed, and what is trimmed already is not trimmed again.

    Example: minutebook gc --older-than-turns 5 --write
    """
    if keep is not None and persistence is not None and _KEPT[keep] != persistence:
        raise click.UsageError(f"--keep {keep} is --tool-persistence {_KEPT[keep]}; give one of them.")
    if vacuum and not write:
        raise click.UsageError("--vacuum goes with --write.")
    chosen = persistence or _KEPT[keep or "name,status"]
    how = Kept.NAME if chosen == "none" else Kept.STATUS
    found: dict[str, Aged] = {}
    with opened_database(url, tenant) as database:
        headers = list(database.conversations(recipient=recipient))
        total = sum(one.length - one.first for one in headers)
        with counting("trimming", total, silent=True) as advance:
            for one in headers:
                done = database.run(
                    trim_all(
                        database.store, one.id, older_than_turns=older_than_turns, how=how, write=write, advance=advance
                    )
                )
                if done.trimmed:
                    found[one.id] = done
        if vacuum:
            database.run(database.store.vacuum())
    rows = [{"id": name, "trimmed": aged.trimmed, "freed_bytes": aged.freed_bytes} for name, aged in found.items()]
    trimmed = sum(aged.trimmed for aged in found.values())
    freed = sum(aged.freed_bytes for aged in found.values())
    lines = [f"{name}: {aged.trimmed:,} messages, {aged.freed_bytes:,} bytes" for name, aged in found.items()]
    what = "trimmed" if write else "would be trimmed"
    lines.append(
        f"{trimmed:,} messages of {len(found):,} conversations {what}, of {len(headers):,} in all: {freed:,} bytes"
    )
    summary = {"conversations": len(headers), "trimmed": trimmed, "freed_bytes": freed, "written": write}
    emit({"conversations": rows, "summary": summary}, "\n".join(lines))
    if found and not is_json() and not vacuum:
        changed = "traces may be left in the files of the database; --write --vacuum removes them"
        click.echo(changed if write else "nothing was changed; --write does it, and it cannot be undone", err=True)
