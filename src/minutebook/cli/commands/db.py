"""`minutebook db`: create, migrate, check and back up the database."""

from pathlib import Path
from typing import Any

import click

from minutebook.cli.backup import back_up_server, copy_database, restore_file, restore_server
from minutebook.cli.database import (
    Database,
    conversation_problems,
    entry_count,
    file_of,
    file_status,
    integrity_problems,
    open_database,
    postgres_of,
    postgres_status,
    probe,
    require_file,
    status_lines,
    store_of,
    tenant_counts,
)
from minutebook.cli.exits import EXIT_FINDINGS, Command
from minutebook.cli.interrupts import InterruptibleRunner
from minutebook.cli.options import (
    database_options,
    default_database_url,
    dry_run_option,
    emit,
    json_option,
    store_options,
)
from minutebook.cli.progress import count_progress
from minutebook.store.base import ConversationStore
from minutebook.store.encryption.marker import read_key
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.url import open_store


@click.group("db", short_help="Create, migrate, check and back up the database.")
def command() -> None:
    """Create, migrate, check and back up the database.

    Example: minutebook db status
    """


@command.command("init", cls=Command, short_help="Create the database.")
@database_options(create=True)
def init(database: Database) -> None:
    """Create the database, or migrate it if it exists. Then a conversation is written, read and removed, as a test.

    Example: minutebook db init --db chat.db
    """
    database.run(probe(database.store))
    path = file_of(database.store)
    click.echo("the database is ready" if path is None else f"{path} is ready")


@command.command("migrate", cls=Command, short_help="Migrate the database to the current schema.")
@dry_run_option
@store_options
def migrate(dry_run: bool, url: str | None, tenant: str) -> None:
    """Migrate the database of an older version to the current schema.

    Every other command that opens the database migrates it too, except `db backup` and `db status`.

    Example: minutebook db migrate
    """
    path = file_of(store_of(url, tenant))
    if dry_run and path is None:
        raise click.UsageError("--dry-run supports only SQLite files.")
    status_before = None if path is None else file_status(require_file(path))
    if not dry_run:
        with open_database(url, tenant):
            pass
    if path is None or status_before is None:
        click.echo("the database is up to date")
    elif status_before["schema_version"] == status_before["newest_schema_version"]:
        click.echo(f"{path} is up to date, at schema version {status_before['schema_version']}")
    else:
        versions = f"{status_before['schema_version']} to {status_before['newest_schema_version']}"
        click.echo(f"{path} {'would be' if dry_run else 'was'} migrated from schema version {versions}")


@command.command("status", cls=Command, short_help="Show version, size and contents of the database.")
@store_options
@json_option("Print the status as JSON. Example: minutebook db status --json")
def status(url: str | None, tenant: str) -> None:
    """Show the schema version and the size of the database, and the number of its conversations.

    Nothing is changed: the database is neither created nor migrated. For a SQLite file, the conversations of all tenants
    are counted; for a server, only those of the tenant. The size is shown for SQLite and PostgreSQL.
    At most 100,000 rows of each kind are counted; a higher number is shown as "more than 100,000".

    Example: minutebook db status
    """
    store = store_of(url, tenant)
    path = file_of(store)
    figures = _server_figures(store, url, tenant) if path is None else file_status(require_file(path))
    emit(figures, "\n".join(status_lines(figures)))


def _server_figures(store: ConversationStore, url: str | None, tenant: str) -> dict[str, Any]:
    name, postgres = type(store).__name__, postgres_of(store)
    if postgres is not None:
        with InterruptibleRunner() as runner:
            return {"store": name, **runner.run(postgres_status(postgres.url, tenant))}
    with open_database(url, tenant) as database:
        return {"store": name, "tenant": tenant, **tenant_counts(database.conversations())}


@command.command("check", cls=Command, short_help="Check the database for corruption and missing data.")
@database_options()
@json_option("Print the findings and a summary as JSON. Example: minutebook db check --json")
def check(database: Database) -> int:
    """Check the database for corruption and missing data.

    A SQLite file is first checked by SQLite itself. Then all conversations of the tenant are read and checked for missing
    messages, wrong headers and tool calls without results. The exit code is 6 if there are findings.

    Example: minutebook db check
    """
    path = file_of(database.store)
    file_problems = [] if path is None else integrity_problems(path)
    findings: list[dict[str, Any]] = [{"conversation": None, "problem": problem} for problem in file_problems]
    headers = list(database.conversations())
    total = sum(header.length - header.first for header in headers)
    with count_progress("checking", total, prints_during_progress=False) as advance:
        for header in headers:
            problems = conversation_problems(database, header.id, advance)
            findings += [{"conversation": header.id, "problem": problem} for problem in problems]
    lines = [
        f"{'the database' if finding['conversation'] is None else repr(finding['conversation'])}: {finding['problem']}"
        for finding in findings
    ]
    lines.append(f"{len(headers):,} conversations with {total:,} messages checked: {len(findings):,} findings")
    summary = {"conversations": len(headers), "messages": total, "findings": len(findings)}
    emit({"findings": findings, "summary": summary}, "\n".join(lines))
    return EXIT_FINDINGS if findings else 0


@command.command("encrypt", cls=Command, short_help="Encrypt an existing database.")
@click.option(
    "--key-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the master key: 32 random bytes, or their Base64 or hexadecimal text. Example: --key-file chat.key",
)
@store_options
def encrypt(key_file: Path, url: str | None, tenant: str) -> None:  # noqa: ARG001 - all tenants are encrypted
    """Encrypt a SQLite database in place, with all its tenants. Stop other processes that use it first.

    If it is interrupted, run it again: it continues where it stopped. The search index is deleted. From then on, every
    process needs the key: add ?encryption_key_file=FILE to the URL, or set MINUTEBOOK_ENCRYPTION_KEY_FILE. For PostgreSQL and
    Redis, export the conversations and import them into a database that is opened with a key.

    Example: minutebook db encrypt --key-file chat.key
    """
    from minutebook.store.encryption.in_place import encrypt_in_place

    store = open_store(url or default_database_url())
    path = file_of(store)
    if path is None or not isinstance(store, SqliteStore):
        raise click.UsageError(
            "encrypt supports only SQLite files. Export the conversations, and import them with a key."
        )
    total = entry_count(require_file(path))
    with InterruptibleRunner() as runner, count_progress("encrypting", total, prints_during_progress=False) as advance:
        try:
            count = runner.run(encrypt_in_place(store, read_key(key_file), advance))
        finally:
            runner.run(store.close())
    click.echo(f"{path} is encrypted; {count:,} conversations were encrypted now")


@command.command("backup", cls=Command, short_help="Copy the database to a file while it is in use.")
@click.argument("file", type=click.Path(path_type=Path))
@store_options
def backup(file: Path, url: str | None, tenant: str) -> None:
    """Copy a SQLite or PostgreSQL database to FILE, which must not exist. Other processes can use the database meanwhile.

    The copy is a consistent snapshot with all tenants. `db restore` reads it. A PostgreSQL database is copied by the owner of
    its tables, and its copy can be restored on another server with other users. For Redis, use the snapshots of the server.

    Example: minutebook db backup chats-before-the-move.db
    """
    store = store_of(url, tenant)
    path = file_of(store)
    if file.exists():
        raise click.UsageError(f"{file} already exists; use another path.")
    if path is None:
        conversations, size = back_up_server(store, file)
        click.echo(f"{conversations:,} conversations copied to {file}: {size:,} bytes")
    else:
        size = copy_database(require_file(path), file)
        click.echo(f"{path} copied to {file}: {size:,} bytes")


@command.command("restore", cls=Command, short_help="Restore a backup into a new database.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_options
def restore(file: Path, url: str | None, tenant: str) -> None:
    """Restore the backup FILE into a SQLite file that does not exist, or a PostgreSQL database without conversations.

    The backup must be of the same kind of database. To move conversations to another kind, use `export` and `import`.
    Either everything is restored or nothing.

    Example: minutebook db restore chats-before-the-move.db --db chat.db
    """
    store = store_of(url, tenant)
    path = file_of(store)
    if path is None:
        click.echo(f"{restore_server(store, file):,} conversations restored from {file}")
    elif path.exists():
        raise click.UsageError(f"{path} already exists; restore into another file, and then exchange the two.")
    else:
        size = restore_file(file, path)
        click.echo(f"{path} restored from {file}: {size:,} bytes")
