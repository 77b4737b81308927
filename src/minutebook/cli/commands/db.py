"""`minutebook db`: the database itself, whatever conversations it holds."""

from pathlib import Path
from typing import Any

import click

from minutebook.cli.database import (
    Database,
    audited,
    copied,
    facts,
    file_of,
    integrity,
    named_store,
    opened_database,
    require_file,
    server_facts,
)
from minutebook.cli.exits import FINDINGS, Command
from minutebook.cli.options import emit, json_option, on_database, store_options
from minutebook.cli.progress import counting


@click.group("db", short_help="Make, look after and copy the database.")
def command() -> None:
    """Make the database, bring it up to date, look into it, check it, copy it.

    Example: minutebook db status
    """


@command.command("init", cls=Command, short_help="Make the database.")
@on_database(make=True)
def init(database: Database) -> None:
    """Make the database, or bring one that is there up to date.

    Example: minutebook db init --db sqlite:///chat.db
    """
    where = file_of(database.store)
    click.echo("the database is ready" if where is None else f"{where} is ready")


@command.command("migrate", cls=Command, short_help="Bring the database up to date.")
@store_options
def migrate(url: str | None, tenant: str) -> None:
    """Bring a database that an older minutebook made up to date. Every other command does that, too, but for status.

    Example: minutebook db migrate
    """
    path = file_of(named_store(url, tenant))
    before = None if path is None else facts(require_file(path))
    with opened_database(url, tenant):
        pass
    if path is None or before is None:
        click.echo("the database is up to date")
    elif before["step"] == before["newest_step"]:
        click.echo(f"{path} is up to date, at step {before['step']}")
    else:
        click.echo(f"{path} is at step {before['newest_step']} now, and was at {before['step']}")


@command.command("status", cls=Command, short_help="What the database holds.")
@store_options
@json_option("Print one JSON document. Example: minutebook db status --json")
def status(url: str | None, tenant: str) -> None:
    """Say which version the database has, how large it is, and how many conversations it holds.

    A SQLite file is only read, and counted as a whole. Of a server the tenant's conversations are counted; the size is
    that of a PostgreSQL database, and of Redis it is not known.

    Example: minutebook db status
    """
    path = file_of(named_store(url, tenant))
    found = _of_server(url, tenant) if path is None else facts(require_file(path))
    width = max(map(len, found))
    lines = [
        f"{name.replace('_', ' '):<{width}}  {f'{value:,}' if isinstance(value, int) else value}"
        for name, value in found.items()
    ]
    emit(found, "\n".join(lines))


def _of_server(url: str | None, tenant: str) -> dict[str, Any]:
    found: dict[str, Any] = {"tenant": tenant, "conversations": 0, "entries": 0, "turns": 0}
    with opened_database(url, tenant) as database:
        for one in database.conversations():
            for name, count in (("conversations", 1), ("entries", one.length - one.first), ("turns", one.turns)):
                found[name] += count
        return {"store": type(database.store).__name__, **found, **server_facts(database, url or "")}


@command.command("check", cls=Command, short_help="Whether the database is whole.")
@on_database()
@json_option("Print one JSON document: the findings and what was checked. Example: minutebook db check --json")
def check(database: Database) -> int:
    """Read all of the database and say what is wrong with it.

    Of a SQLite file SQLite's own check is made first. Then every conversation of the tenant is read: no message may be
    missing, the header must be right, and every call must have its result. The exit code is 6 when there are findings.

    Example: minutebook db check
    """
    path = file_of(database.store)
    found = [] if path is None else [{"conversation": None, "problem": each} for each in integrity(path)]
    headers = list(database.conversations())
    total = sum(one.length - one.first for one in headers)
    with counting("checking", total, silent=True) as advance:
        for one in headers:
            found += [{"conversation": one.id, "problem": each} for each in audited(database, one.id, advance)]
    lines = [
        f"{'the database' if each['conversation'] is None else repr(each['conversation'])}: {each['problem']}"
        for each in found
    ]
    lines.append(f"{len(headers):,} conversations with {total:,} messages checked: {len(found):,} findings")
    summary = {"conversations": len(headers), "messages": total, "findings": len(found)}
    emit({"findings": found, "summary": summary}, "\n".join(lines))
    return FINDINGS if found else 0


@command.command("backup", cls=Command, short_help="Copy the database while it is in use.")
@click.argument("file", type=click.Path(path_type=Path))
@store_options
def backup(file: Path, url: str | None, tenant: str) -> None:
    """Copy the database to FILE, which must not be there yet; others may go on reading and writing meanwhile.

    The copy is the database as it was at one moment, all tenants included. A server has tools of its own for that.

    Example: minutebook db backup chats-before-the-move.db
    """
    path = file_of(named_store(url, tenant))
    if path is None:
        raise click.UsageError(
            "backup copies SQLite files. Use pg_dump for PostgreSQL, and for Redis the copies that its server makes."
        )
    if file.exists():
        raise click.UsageError(f"{file} is there already; name a file that is not.")
    size = copied(require_file(path), file)
    click.echo(f"{path} is copied to {file}: {size:,} bytes")
