"""`minutebook keys`: who may use a service, kept in its database."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from minutebook.cli.commands.ls import moment
from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, is_json, json_option, on_database
from minutebook.cli.screen import console, printable
from minutebook.service.access.api_keys import CACHE_SECONDS, ApiKey, Caller, Keys, NewKey
from minutebook.service.access.audit import Act, Audit


@click.group("keys", short_help="Make, list, revoke and rotate API keys; the audit log.")
def command() -> None:
    """Make, list, revoke and rotate the API keys of a service. They are in its database; of a key only a hash is kept.

    Example: minutebook keys create phone-app --scope chat
    """


@command.command("create", cls=Command, short_help="Make a key.")
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(("chat", "read", "write", "admin")),
    default=("chat", "read", "write"),
    show_default=True,
    help="What it may do: ask a model, read conversations, change them, look after keys. Example: --scope chat --scope read",
)
@click.option("--recipient", metavar="R", help="Only this one's conversations. Example: --recipient alice")
@count_option("--days", help_text="It expires after so many days. Example: --days 90")
@count_option(
    "--requests-per-minute", help_text="Its own limit, else the configured one. Example: --requests-per-minute 600"
)
@count_option("--tokens-per-day", help_text="Its own limit, else the configured one. Example: --tokens-per-day 200000")
@on_database(make=True)
@json_option("Print one JSON document, with the key as `token`. Example: minutebook keys create phone-app --json")
def create(database: Database, name: str, days: int | None, **settings: Any) -> None:
    """Make a key that opens the conversations of --tenant, and print it. It is shown this once, and kept nowhere.

    Example: minutebook keys create phone-app --tenant acme --days 90
    """
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    keys = Keys(database.store)
    made = database.run(keys.create(name, tenant=database.store.tenant, expires_at=expires_at, **settings))
    _note(database, "key.create", made.key)
    _print_new(made)


@command.command("list", cls=Command, short_help="List the keys.")
@on_database()
@json_option("Print one JSON document. Example: minutebook keys list --json")
def list_(database: Database) -> None:
    """List the keys of all tenants, the oldest first: their ids, what they open, when they were used, never the keys.

    Example: minutebook keys list
    """
    keys = database.run(Keys(database.store).list())
    emit([_document(key) for key in keys], lambda: _print_table(keys))


@command.command("revoke", cls=Command, short_help="Have a key open nothing any more.")
@click.argument("key_id", metavar="ID")
@on_database()
@json_option("Print one JSON document: the key. Example: minutebook keys revoke 0f3a9c1b2d4e --json")
def revoke(database: Database, key_id: str) -> None:
    """Have a key open nothing any more. A service that runs knows it within 5 seconds.

    Example: minutebook keys revoke 0f3a9c1b2d4e
    """
    key = database.run(Keys(database.store).revoke(key_id))
    _note(database, "key.revoke", key)
    emit(
        _document(key),
        f"key {key.id} ({printable(key.name)}) is revoked; running services know it within {CACHE_SECONDS:.0f} s",
    )


@command.command("rotate", cls=Command, short_help="Replace a key by a new one.")
@click.argument("key_id", metavar="ID")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(min=0, max=24 * 365),
    default=24.0,
    show_default=True,
    metavar="H",
    help="How long the old one goes on working. Example: --overlap-hours 1",
)
@on_database()
@json_option(
    "Print one JSON document, with the new key as `token`. Example: minutebook keys rotate 0f3a9c1b2d4e --json"
)
def rotate(database: Database, key_id: str, overlap_hours: float) -> None:
    """Make a key that opens the same, print it, and have the old one end when everybody had time to change.

    Example: minutebook keys rotate 0f3a9c1b2d4e --overlap-hours 48
    """
    keys = Keys(database.store)
    made = database.run(keys.rotate(key_id, overlap_seconds=overlap_hours * 3_600))
    old = database.run(keys.get(key_id))
    _note(database, "key.rotate", old)
    _print_new(made)
    if not is_json() and old.ends_at is not None:
        click.echo(f"the old one, {old.id}, ends at {old.ends_at.isoformat(timespec='seconds')}", err=True)


@command.command("audit", cls=Command, short_help="What was done with keys and conversations.")
@on_database()
@json_option("Print one JSON document. Example: minutebook keys audit --json")
def audit(database: Database) -> None:
    """Print the audit log: the administrative acts on keys and conversations, the oldest first.

    Example: minutebook keys audit
    """
    entries = list(database.each(Audit(database.store).entries()))
    lines = [
        f"{entry.at}  {entry.act}  {printable(entry.target)}  {printable(entry.tenant)}  {entry.key_id or '-'}\n"
        for entry in entries
    ]
    emit({"entries": [asdict(entry) for entry in entries]}, lambda: click.echo("".join(lines), nl=False))


def _note(database: Database, act: Act, key: ApiKey) -> None:
    """Whoever has the database acts without a key, on behalf of the key's tenant."""
    database.run(Audit(database.store).note(Caller(key.tenant), act, key.id))


def _print_new(made: NewKey) -> None:
    """The key on stdout, alone, so that it can be piped to where secrets are kept."""
    key = made.key
    emit({**_document(key), "token": made.token}, made.token)
    if not is_json():
        about = f"key {key.id} ({printable(key.name)}) for tenant {key.tenant!r}; it is shown this once, so keep it now"
        click.echo(about, err=True)


def _document(key: ApiKey) -> dict[str, Any]:
    return {**key.to_json(), "state": key.state(datetime.now(UTC))}


def _print_table(keys: Sequence[ApiKey]) -> None:
    if not keys:
        click.echo("there are no keys; 'minutebook keys create NAME' makes one", err=True)
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("id", "name", "tenant", "ends in", "scopes", "state", "last used"):
        table.add_column(column, overflow="fold")
    for key in keys:
        used = "never" if key.last_used_at is None else moment(key.last_used_at)
        scopes = ",".join(key.to_json()["scopes"])
        state = key.state(datetime.now(UTC))
        table.add_row(
            key.id, Text(printable(key.name)), Text(printable(key.tenant)), f"…{key.last4}", scopes, state, used
        )
    console().print(table)
