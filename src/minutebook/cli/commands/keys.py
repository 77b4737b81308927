"""`minutebook keys`: manage the API keys of the service, which are stored in its database."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.commands.ls import local_time
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import (
    confirm,
    count_option,
    database_options,
    dry_run_option,
    emit,
    is_json,
    json_option,
    yes_option,
)
from minutebook.cli.screen import console, printable
from minutebook.service.access.api_keys import CACHE_SECONDS, ApiKey, ApiKeys, Caller, NewKey
from minutebook.service.access.audit import AuditAction, AuditLog


@click.group("keys", short_help="Manage API keys and show the audit log.")
def command() -> None:
    """Manage the API keys of the service and show the audit log. The database stores only hashes of the keys.

    Example: minutebook keys create phone-app --scope chat
    """


@command.command("create", cls=Command, short_help="Create an API key.")
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(("chat", "read", "write", "admin", "metrics")),
    default=("chat", "read", "write"),
    show_default=True,
    help="Permission: call models (chat), read or change conversations, all of these (admin), read the metrics of all tenants (metrics). Can be repeated. Example: --scope chat --scope read",
)
@click.option(
    "--recipient", metavar="R", help="Restrict the key to conversations of this recipient. Example: --recipient alice"
)
@count_option("--days", help_text="Days until the key expires. Default: never. Example: --days 90")
@count_option(
    "--requests-per-minute",
    help_text="Request limit of the key. Default: the configured limit. Example: --requests-per-minute 600",
)
@count_option(
    "--tokens-per-day",
    help_text="Token limit of the key. Default: the configured limit. Example: --tokens-per-day 200000",
)
@database_options(create=True)
@json_option("Print the key as JSON; `token` is the secret. Example: minutebook keys create phone-app --json")
def create(database: Database, name: str, days: int | None, **settings: Any) -> None:
    """Create an API key for --tenant and print it. Only its hash is stored, so it cannot be shown again.

    Example: minutebook keys create phone-app --tenant acme --days 90
    """
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    keys = ApiKeys(database.store)
    new_key = database.run(keys.create(name, tenant=database.store.tenant, expires_at=expires_at, **settings))
    _write_audit_entry(database, "key.create", new_key.key)
    _print_new_key(new_key)


@command.command("list", cls=Command, short_help="List API keys.")
@database_options()
@json_option("Print the keys as JSON. Example: minutebook keys list --json")
def list_(database: Database) -> None:
    """List the keys of all tenants, oldest first, with tenant, scopes, state and last use. The secrets are not stored.

    Example: minutebook keys list
    """
    keys = database.run(ApiKeys(database.store).list())
    emit([_key_json(key) for key in keys], lambda: _print_table(keys))


@command.command("revoke", cls=Command, short_help="Revoke an API key.")
@click.argument("key_id", metavar="ID")
@dry_run_option
@yes_option
@database_options()
@json_option("Print the key as JSON. Example: minutebook keys revoke 0f3a9c1b2d4e --yes --json")
def revoke(database: Database, key_id: str, dry_run: bool, yes: bool) -> None:
    """Revoke an API key permanently. Running services reject it after at most 5 seconds.

    Example: minutebook keys revoke 0f3a9c1b2d4e
    """
    keys = ApiKeys(database.store)
    key = database.run(keys.get(key_id))
    if dry_run:
        emit(_key_json(key), f"key {key.id} ({printable(key.name)}) would be revoked")
        return
    confirm(f"Revoke key {key.id} ({printable(key.name)}) permanently?", yes=yes)
    key = database.run(keys.revoke(key_id))
    _write_audit_entry(database, "key.revoke", key)
    emit(
        _key_json(key),
        f"key {key.id} ({printable(key.name)}) is revoked; running services reject it after at most {CACHE_SECONDS:.0f} s",
    )


@command.command("rotate", cls=Command, short_help="Replace an API key by a new one.")
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(min=0, max=24 * 365),
    default=24.0,
    show_default=True,
    metavar="H",
    help="Hours until the old key expires. Example: --overlap-hours 1",
)
@database_options()
@json_option("Print the new key as JSON; `token` is the secret. Example: minutebook keys rotate 0f3a9c1b2d4e --json")
def rotate(database: Database, key_id: str, overlap_hours: float) -> None:
    """Create a key with the same permissions and print it. The old key expires after --overlap-hours.

    Example: minutebook keys rotate 0f3a9c1b2d4e --overlap-hours 48
    """
    keys = ApiKeys(database.store)
    new_key = database.run(keys.rotate(key_id, overlap_seconds=overlap_hours * 3_600))
    old_key = database.run(keys.get(key_id))
    _write_audit_entry(database, "key.rotate", old_key)
    _print_new_key(new_key)
    if not is_json() and old_key.ends_at is not None:
        click.echo(f"the old key {old_key.id} expires at {old_key.ends_at.isoformat(timespec='seconds')}", err=True)


@command.command("audit", cls=Command, short_help="Show the audit log.")
@database_options()
@json_option("Print the entries as JSON. Example: minutebook keys audit --json")
def audit(database: Database) -> None:
    """Print the audit log: administrative actions on keys and conversations, oldest first.

    Example: minutebook keys audit
    """
    entries = list(database.iterate(AuditLog(database.store).entries()))
    lines = [
        f"{entry.at}  {entry.act}  {printable(entry.target)}  {printable(entry.tenant)}  {entry.key_id or '-'}\n"
        for entry in entries
    ]
    emit({"entries": [asdict(entry) for entry in entries]}, lambda: click.echo("".join(lines), nl=False))


def _write_audit_entry(database: Database, action: AuditAction, key: ApiKey) -> None:
    """Record the action for the key's tenant. The command itself uses no API key."""
    database.run(AuditLog(database.store).note(Caller(key.tenant), action, key.id))


def _print_new_key(new_key: NewKey) -> None:
    """Print the secret to stdout and the rest to stderr, so that the secret can be piped."""
    key = new_key.key
    emit({**_key_json(key), "token": new_key.token}, new_key.token)
    if not is_json():
        note = f"key {key.id} ({printable(key.name)}) for tenant {key.tenant!r}; store it now, it cannot be shown again"
        click.echo(note, err=True)


def _key_json(key: ApiKey) -> dict[str, Any]:
    return {**key.to_json(), "state": key.state(datetime.now(UTC))}


def _print_table(keys: Sequence[ApiKey]) -> None:
    if not keys:
        click.echo("there are no keys; create one with 'minutebook keys create NAME'", err=True)
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("id", "name", "tenant", "ends in", "scopes", "state", "last used"):
        table.add_column(column, overflow="fold")
    for key in keys:
        last_used = "never" if key.last_used_at is None else local_time(key.last_used_at)
        scopes = ",".join(key.to_json()["scopes"])
        state = key.state(datetime.now(UTC))
        table.add_row(
            key.id, Text(printable(key.name)), Text(printable(key.tenant)), f"…{key.last4}", scopes, state, last_used
        )
    console().print(table)
