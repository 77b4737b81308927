"""`minutebook gc`: delete the arguments and results of old tool calls, or conversations that are no longer used."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import click
from click.core import ParameterSource

from minutebook.cli.database import Database, open_database
from minutebook.cli.exits import Command
from minutebook.cli.options import (
    confirm,
    count_option,
    dry_run_option,
    emit,
    is_json,
    json_option,
    store_options,
    vacuum_options,
    yes_option,
)
from minutebook.cli.progress import count_progress
from minutebook.conversation.config import Persistence
from minutebook.conversation.requests import count_requests, remove_requests
from minutebook.conversation.trimming import TrimResult, trim_all
from minutebook.errors import ConversationNotFound, MissingSetting
from minutebook.store.expiry import parse_age
from minutebook.store.types import ConversationHeader

BATCH: Final = 32
"""Number of conversations that are trimmed at the same time."""
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
@click.option(
    "--requests-older-than",
    "requests_age",
    metavar="AGE",
    default="config",
    help="Also remove the minutes of older requests: 30d, 12h, 90m, never, or config for the configured "
    "database.expire_requests_after. Totals of their usage stay. Default: config. Example: --requests-older-than 7d",
)
@dry_run_option
@yes_option
@vacuum_options
@store_options
@json_option("Print the changes per conversation and the totals as JSON. Example: minutebook gc --json")
def command(
    older_than_turns: int,
    keep: str | None,
    persistence: str | None,
    recipient: str | None,
    age: str | None,
    requests_age: str,
    dry_run: bool,
    yes: bool,
    vacuum: bool,
    rewrite: bool,
    url: str | None,
    tenant: str,
) -> None:
    """Delete the arguments and results of tool calls in all but the newest turns of every conversation.

    The names of the tools and the messages of users and models are kept, and so are pinned exchanges. This cannot be
    undone, so the command asks first.

    With --expire-after, nothing is trimmed. Conversations are deleted if neither they nor their forks got a message for that
    time. Their ids can be used again.

    The minutes of old requests are removed in both cases: see --requests-older-than.

    Example: minutebook gc --older-than-turns 5 --dry-run
    """
    if keep is not None and persistence is not None and _PERSISTENCE_OF[keep] != persistence:
        raise click.UsageError(
            f"--keep {keep} means --tool-persistence {_PERSISTENCE_OF[keep]}; use one of the two options."
        )
    if vacuum and dry_run:
        raise click.UsageError("--vacuum cannot be combined with --dry-run.")
    if age is not None:
        _require_no_trim_options()
        _expire(
            _max_age(age),
            _max_request_age(requests_age),
            url,
            tenant,
            dry_run=dry_run,
            yes=yes,
            vacuum=vacuum,
            rewrite=rewrite,
        )
        return
    request_age = _max_request_age(requests_age)
    persistence = persistence or _PERSISTENCE_OF[keep or "name,status"]
    kept_parts = Persistence.NAME if persistence == "none" else Persistence.STATUS
    with open_database(url, tenant) as database:
        headers = list(database.conversations(recipient=recipient))

        def trim(*, write: bool) -> dict[str, TrimResult]:
            return _trim(database, headers, older_than_turns, kept_parts, write=write)

        results = {} if yes and not dry_run else trim(write=False)
        if results and not dry_run:
            confirm(f"Trim {_totals(results, headers)} permanently?", yes=False)
        if not dry_run:
            results = trim(write=True)
        requests = _remove_requests(database, request_age, dry_run=dry_run)
        if vacuum:
            database.run(database.store.vacuum(rewrite=rewrite))
    rows = [
        {"id": name, "trimmed": result.trimmed, "freed_bytes": result.freed_bytes} for name, result in results.items()
    ]
    lines = [f"{name}: {result.trimmed:,} messages, {result.freed_bytes:,} bytes" for name, result in results.items()]
    lines.append(f"{_totals(results, headers)} {'would be trimmed' if dry_run else 'trimmed'}")
    lines += _requests_lines(requests, dry_run=dry_run)
    summary = {
        "conversations": len(headers),
        "trimmed": sum(result.trimmed for result in results.values()),
        "freed_bytes": sum(result.freed_bytes for result in results.values()),
        "requests": requests,
        "dry_run": dry_run,
    }
    emit({"conversations": rows, "summary": summary}, "\n".join(lines))
    if results and not dry_run:
        _print_rewrite_advice(rewrite=rewrite)


def _trim(
    database: Database,
    headers: Sequence[ConversationHeader],
    older_than_turns: int,
    persistence: Persistence,
    *,
    write: bool,
) -> dict[str, TrimResult]:
    """Trim the conversations, or only count what would be trimmed. Returns the results of those with old tool data."""
    results: dict[str, TrimResult] = {}
    long = [header for header in headers if header.turns > older_than_turns]
    total = sum(header.length - header.first for header in long)
    with count_progress("trimming" if write else "counting", total, prints_during_progress=False) as advance:

        async def trim(header: ConversationHeader) -> TrimResult:
            with suppress(ConversationNotFound):  # erased meanwhile
                return await trim_all(
                    database.store,
                    header.id,
                    older_than_turns=older_than_turns,
                    persistence=persistence,
                    write=write,
                    advance=advance,
                )
            return TrimResult()

        async def trim_batch(batch: Sequence[ConversationHeader]) -> list[TrimResult]:
            return await asyncio.gather(*map(trim, batch))

        for start in range(0, len(long), BATCH):
            batch = long[start : start + BATCH]
            for header, result in zip(batch, database.run(trim_batch(batch)), strict=True):
                if result.trimmed:
                    results[header.id] = result
    return results


def _totals(results: Mapping[str, TrimResult], headers: Sequence[ConversationHeader]) -> str:
    messages = sum(result.trimmed for result in results.values())
    freed = sum(result.freed_bytes for result in results.values())
    return f"{messages:,} messages in {len(results):,} of {len(headers):,} conversations ({freed:,} bytes)"


def _print_rewrite_advice(*, rewrite: bool) -> None:
    if not rewrite and not is_json():
        click.echo("deleted data may remain in the database files; --rewrite removes it", err=True)


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


def _max_age(text: str) -> timedelta:
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


def _max_request_age(text: str) -> timedelta | None:
    """The time of `--requests-older-than`; None for never.

    Raises:
        InvalidSetting: it is not a time.
    """
    if text == "never":
        return None
    if text != "config":
        return parse_age(text, name="--requests-older-than")
    from minutebook.service.config.loader import config_path, load_config

    return load_config(config_path()).config.database.requests_age


def _remove_requests(database: Database, age: timedelta | None, *, dry_run: bool) -> int:
    """Remove the minutes of requests that are older than this, or only count them."""
    if age is None:
        return 0
    before = datetime.now(UTC) - age
    if dry_run:
        return database.run(count_requests(database.store, before))
    return database.run(remove_requests(database.store, before))


def _requests_lines(count: int, *, dry_run: bool) -> list[str]:
    action = "would be removed" if dry_run else "removed; their usage was added to the totals"
    return [f"minutes of {count:,} old requests {action}"] if count else []


def _expire(
    age: timedelta,
    requests_age: timedelta | None,
    url: str | None,
    tenant: str,
    *,
    dry_run: bool,
    yes: bool,
    vacuum: bool,
    rewrite: bool,
) -> None:
    """Delete the conversations that have expired, or only count them."""
    with open_database(url, tenant) as database:
        expired = unused_conversations(list(database.conversations()), datetime.now(UTC) - age)
        conversations, messages = len(expired), sum(header.length - header.first for header in expired)
        if conversations and not dry_run:
            confirm(f"Delete {conversations:,} conversations with {messages:,} messages permanently?", yes=yes)
        requests = _remove_requests(database, requests_age, dry_run=dry_run)
        if not dry_run:
            receipt = database.run(database.store.with_expiry(age).expire())
            conversations, messages = receipt.conversations, receipt.entries
        if vacuum:
            database.run(database.store.vacuum(rewrite=rewrite))
    action = "would be deleted" if dry_run else "deleted"
    summary = {"expired": conversations, "messages": messages, "requests": requests, "dry_run": dry_run}
    lines = [f"{conversations:,} conversations with {messages:,} messages {action}"]
    emit({"summary": summary}, "\n".join([*lines, *_requests_lines(requests, dry_run=dry_run)]))
    if conversations and not dry_run:
        _print_rewrite_advice(rewrite=rewrite)


def unused_conversations(headers: Sequence[ConversationHeader], before: datetime) -> list[ConversationHeader]:
    """The conversations that, with all their forks, were last appended to before a time."""
    origins = {header.id: header.origin.conversation for header in headers if header.origin is not None}
    in_use: set[str] = set()
    for header in headers:
        conversation_id: str | None = header.id if header.updated_at >= before else None
        while conversation_id is not None and conversation_id not in in_use:
            in_use.add(conversation_id)
            conversation_id = origins.get(conversation_id)
    return [header for header in headers if header.id not in in_use]
