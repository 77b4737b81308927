"""Back up databases to files and restore them: SQLite files and PostgreSQL databases."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import click

from minutebook.cli.database import connection, file_status, integrity_problems, postgres_of
from minutebook.cli.interrupts import InterruptibleRunner
from minutebook.cli.progress import count_progress
from minutebook.cli.rewrite import require_folder
from minutebook.errors import StoreDamaged, UnreadableInput
from minutebook.store.base import ConversationStore
from minutebook.store.sqlite.connection import open_reader

if TYPE_CHECKING:
    from minutebook.store.postgres.store import PostgresStore

PAGES_PER_STEP: Final = 1000
"""Database pages that are copied at a time."""
_SQLITE_START: Final = b"SQLite format 3\0"
_ZIP_START: Final = b"PK"


def copy_database(source: Path, target: Path) -> int:
    """Copy a database that may be in use and return the size of the copy. The target is created atomically.

    Raises:
        FileNotFoundError: the folder of the target does not exist.
    """
    require_folder(target)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as folder:
        temporary = Path(folder) / "copy.db"
        with connection(source, open_reader) as db, connection(temporary, apsw.Connection) as copy:
            # The backup reads one snapshot. Without it, every write by another process would restart the copy.
            db.execute("BEGIN")
            pages = int(db.execute("PRAGMA page_count").get)
            with (
                count_progress("copying", pages, prints_during_progress=False) as advance,
                copy.backup("main", db, "main") as backup,
            ):
                while not backup.done:
                    backup.step(PAGES_PER_STEP)
                    advance(PAGES_PER_STEP)
            db.execute("ROLLBACK")
        shutil.copymode(source, temporary)
        temporary.replace(target)
    return target.stat().st_size


def restore_file(source: Path, target: Path) -> int:
    """Copy a backup to a database file that does not exist, and return its size.

    Raises:
        UnreadableInput: the backup is not of a SQLite database.
        StoreDamaged: it is damaged, or a database of another program.
    """
    if _first_bytes(source) != _SQLITE_START:
        raise UnreadableInput(str(source), "not a backup of a SQLite database")
    file_status(source)
    if problems := integrity_problems(source):
        raise StoreDamaged(f"sqlite:///{source}", problems[0])
    return copy_database(source, target)


def back_up_server(store: ConversationStore, target: Path) -> tuple[int, int]:
    """Write a PostgreSQL database to a file; return its conversations and the size of the file. It is created atomically."""
    server = _require_postgres(store)
    from minutebook.store.postgres.backup import write_backup

    require_folder(target)
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as folder:
        temporary = Path(folder) / "backup"
        with InterruptibleRunner() as runner:
            backup = runner.run(write_backup(server.url, temporary))
        temporary.chmod(0o600)
        temporary.replace(target)
    return backup.conversations, target.stat().st_size


def restore_server(store: ConversationStore, source: Path) -> int:
    """Restore a backup into a PostgreSQL database without conversations; return their number.

    Raises:
        UnreadableInput: the backup is not of a PostgreSQL database.
    """
    server = _require_postgres(store)
    from minutebook.store.postgres.backup import restore_backup
    from minutebook.store.postgres.settings import DEFAULT_ROLE

    if _first_bytes(source)[:2] != _ZIP_START:
        raise UnreadableInput(str(source), "not a backup of a PostgreSQL database")
    with InterruptibleRunner() as runner:
        return runner.run(restore_backup(server.url, source, server.role or DEFAULT_ROLE)).conversations


def _require_postgres(store: ConversationStore) -> "PostgresStore":
    server = postgres_of(store)
    if server is None:
        raise click.UsageError(
            "backup and restore support only SQLite and PostgreSQL. For Redis, use the snapshots of the server."
        )
    return server


def _first_bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(len(_SQLITE_START))
