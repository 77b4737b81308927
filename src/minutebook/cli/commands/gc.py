"""`minutebook gc`: delete the arguments and results of old tool calls, or conversations that are no longer used."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click
from click.core import ParameterSource

from minutebook.cli.database import open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, flag, is_json, json_option, store_options
from minutebook.cli.progress import count_progress
from minutebook.conversation.config import Persistence
from minutebook.conversation.trimming import TrimResult, trim_all
from minutebook.errors import MissingSetting
from minutebook.store.expiry import parse_age
from minutebook.store.types import ConversationHeader

_PERSISTENCE_OF: Final = {"name,status": "trimmed", "name": "none"}
"""Value of --keep → the same setting of the configuration."""


@click.command("gc", cls=Command, short_help="Delete old tool calls or unused conversations.")
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
@click.option(
    "--expire-after",
    "age",
    metavar="AGE",
    help="Delete conversations without a new message for this time instead: 30d, 12h, 90m, or config for the configured "
    "database.expire_after. Example: --expire-after 30d",
)
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
    age: str | None,
    write: bool,
    vacuum: bool,
    url: str | None,
    tenant: str,
) -> None:
    """Delete the arguments and results of tool calls in all but the newest turns of every conversation.

    The names of the tools and the messages of users and models are kept, and so are pinned exchanges. This cannot be
    undone. Without --write nothing is changed.

    With --expire-after, nothing is trimmed. Conversations are deleted if neither they nor their forks got a message for that
    time. Their ids can be used again.

    Example: minutebook gc --older-than-turns 5 --write
    """
    if keep is not None and persistence is not None and _PERSISTENCE_OF[keep] != persistence:
        raise click.UsageError(
            f"--keep {keep} means --tool-persistence {_PERSISTENCE_OF[keep]}; use one of the two options."
        )
    if vacuum and not write:
        raise click.UsageError("--vacuum requires --write.")
    if age is not None:
        _require_no_trim_options()
        _expire(_age(age), url, tenant, write=write, vacuum=vacuum)
        return
    persistence = persistence or _PERSISTENCE_OF[keep or "name,status"]
    kept_parts = Persistence.NAME if persistence == "none" else Persistence.STATUS
    results: dict[str, TrimResult] = {}
    with open_database(url, tenant) as database:
        headers = list(database.conversations(recipient=recipient))
        total = sum(header.length - header.first for header in headers)
        with count_progress("trimming", total, stdout_unused=True) as advance:
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


_TRIM_OPTIONS: Final = {
    "older_than_turns": "--older-than-turns",
    "keep": "--keep",
    "persistence": "--tool-persistence",
    "recipient": "--recipient",
}


def _require_no_trim_options() -> None:
    context = click.get_current_context()
    for parameter, option in _TRIM_OPTIONS.items():
        if context.get_parameter_source(parameter) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--expire-after does not trim; leave out {option}.")


def _age(text: str) -> timedelta:
    """The time of `--expire-after`.

    Raises:
        InvalidSetting: it is not a time.
        MissingSetting: it is `config`, and the configuration has no `database.expire_after`.
    """
    if text != "config":
        return parse_age(text, name="--expire-after")
    from minutebook.service.config.loader import config_path, load_config

    age = load_config(config_path()).config.database.age
    if age is None:
        raise MissingSetting("database.expire_after", "set it in llm_config.yaml, or use --expire-after 30d")
    return age


def _expire(age: timedelta, url: str | None, tenant: str, *, write: bool, vacuum: bool) -> None:
    """Delete the conversations that have expired, or only count them."""
    with open_database(url, tenant) as database:
        if write:
            receipt = database.run(database.store.with_expiry(age).expire())
            conversations, messages = receipt.conversations, receipt.entries
        else:
            expired = _expired(list(database.conversations()), datetime.now(UTC) - age)
            conversations, messages = len(expired), sum(header.length - header.first for header in expired)
        if vacuum:
            database.run(database.store.vacuum())
    action = "deleted" if write else "would be deleted"
    summary = {"expired": conversations, "messages": messages, "written": write}
    emit({"summary": summary}, f"{conversations:,} conversations with {messages:,} messages {action}")
    if conversations and not is_json() and not vacuum:
        advice = "deleted data may remain in the database files; use --write --vacuum to remove it"
        click.echo(advice if write else "nothing was changed; --write deletes them permanently", err=True)


def _expired(headers: Sequence[ConversationHeader], before: datetime) -> list[ConversationHeader]:
    """The conversations that, with all their forks, were last appended to before a time."""
    origins = {header.id: header.origin.conversation for header in headers if header.origin is not None}
    in_use: set[str] = set()
    for header in headers:
        name: str | None = header.id if header.updated_at >= before else None
        while name is not None and name not in in_use:
            in_use.add(name)
            name = origins.get(name)
    return [header for header in headers if header.id not in in_use]
