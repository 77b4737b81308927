"""Opens database files: connection settings, migrations, and the mapping of driver errors to `StoreUnavailable`."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote

import apsw

from minutebook.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable
from minutebook.store.sql.migrations import Migration, load_migrations, require_unchanged

_TRANSIENT_ERRORS: Final = (
    *(apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.InterruptError, apsw.IOError, apsw.NoMemError),
)
"""The same operation may succeed later."""
_ERROR_CLASSES: Final[tuple[tuple[type[apsw.Error], type[StoreUnavailable]], ...]] = (
    (apsw.FullError, StoreFull),
    (apsw.ReadOnlyError, StoreReadOnly),
    (apsw.NotADBError, StoreDamaged),
    (apsw.CorruptError, StoreDamaged),
    *((transient, StoreUnavailable) for transient in _TRANSIENT_ERRORS),
    (apsw.Error, StoreRejected),
)


def store_error(error: apsw.Error, store: str) -> StoreUnavailable:
    """The `StoreUnavailable` for a driver's error. It has SQLite's message, which never quotes stored content."""
    error_class = next(store_class for driver_class, store_class in _ERROR_CLASSES if isinstance(error, driver_class))
    problem = str(error) or type(error).__name__
    if isinstance(error, apsw.CantOpenError):
        problem += ": check that its folder exists, that it is a file and that you may read it"
    return error_class(store, problem)


@contextmanager
def map_errors(store: str) -> Iterator[None]:
    """Convert the driver's errors that this block raises to `StoreUnavailable`."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, store) from error


APPLICATION_ID: Final = 0x6D626B31
"""Marks a file as a minutebook database: the `file` command shows it, and other databases are rejected."""

BUSY_TIMEOUT_SECONDS: Final = 30.0
"""Maximum time that a write waits for the lock of another process."""

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",  # an acknowledged append survives a power cut
    "PRAGMA secure_delete = ON",  # deleted content is overwritten with zeros
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA wal_autocheckpoint = 0",  # see `Committer.checkpoint`
    "PRAGMA cache_size = -8192",  # KB; with less, indexing evicts the pages that appends use
)
PAGE_BYTES: Final = 1024
"""Page size of a new file. A commit writes whole pages, so small ones suit short messages."""


def open_connection(path: str, *, busy_handler: "BusyHandler | None" = None) -> apsw.Connection:
    """Open a connection that can write, and create the file or run its missing migrations.

    Raises:
        StoreReadOnly: the file is on a read-only file system.
    """
    if is_on_read_only_file_system(path):
        raise StoreReadOnly(f"sqlite:///{path}", "is on a read-only file system")
    db = _connect(path, busy_handler, create=True)
    try:
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: str, *, busy_handler: "BusyHandler | None" = None) -> apsw.Connection:
    """Open a read-only connection to a file that `open_connection` has created or migrated."""
    if is_on_read_only_file_system(path):
        return _open_immutable(path)
    db = _connect(path, busy_handler, create=False)
    db.execute("PRAGMA query_only = ON")
    return db


def is_on_read_only_file_system(path: str) -> bool:
    try:
        return bool(os.statvfs(os.path.dirname(path) or ".").f_flag & os.ST_RDONLY)  # noqa: PTH120 - called by every open
    except (OSError, AttributeError):  # the folder does not exist, or this is Windows
        return False


def _open_immutable(path: str) -> apsw.Connection:
    """Open a file that cannot change, so that SQLite needs no lock and no shared memory, which it could not create.

    Raises:
        StoreReadOnly: the newest commits are in a write-ahead log, which cannot be read this way, or the schema is older than
            that of this version and cannot be migrated.
        StoreRejected: the schema is newer than that of this version.
    """
    store = f"sqlite:///{path}"
    if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):  # noqa: PTH110, PTH202
        problem = (
            "has a write-ahead log, which cannot be read on a read-only file system; open a copy that can be written"
        )
        raise StoreReadOnly(store, problem)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
    try:
        is_current = _is_current(db, path)
    except BaseException:
        db.close()
        raise
    if not is_current:
        db.close()
        raise StoreReadOnly(store, "has an older schema, which cannot be migrated on a read-only file system")
    return db


def _connect(path: str, busy_handler: "BusyHandler | None", *, create: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
    if create:
        _create_private_file(path)
    db = apsw.Connection(path, flags=flags | apsw.SQLITE_OPEN_CREATE if create else flags)
    try:
        db.set_busy_handler(busy_handler or BusyHandler())
        db.config(
            apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1
        )  # plans do not depend on values: a statement is planned only once
        for setting in _SETTINGS:
            db.execute(setting)
    except BaseException:
        db.close()
        raise
    return db


def _create_private_file(path: str) -> None:
    """Create the file, readable by its owner only. SQLite gives the write-ahead log the same permissions."""
    with suppress(OSError):  # it exists, or SQLite reports the problem
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class BusyHandler:
    """Waits for a lock of another process, in short sleeps of random length so that no process starves."""

    def __init__(self) -> None:
        self._deadline = 0.0
        self.fail_fast = False
        """Do not wait, because that would block an event loop."""

    def __call__(self, tries: int) -> bool:
        if self.fail_fast:
            return False
        now = time.monotonic()
        if tries == 0:
            self._deadline = now + BUSY_TIMEOUT_SECONDS
        if now >= self._deadline:
            return False
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311 - no secret depends on it
        return True


def _migrate(db: apsw.Connection, path: str) -> None:
    """Run the migrations that this file lacks, under SQLite's write lock."""
    if _is_current(db, path):
        return
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # has an effect on a new file only, and so has the next one
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # see vacuum.py
    _enable_wal(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(db, path):
            for migration in migrations():
                if migration.number > _version(db):
                    db.execute(migration.script)
                    db.execute("INSERT INTO setting (name, value) VALUES (?, ?)", migration.setting)
                    db.execute(f"PRAGMA user_version = {migration.number}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _is_current(db: apsw.Connection, path: str) -> bool:
    version, newest = _version(db), migrations()[-1].number
    application_id = db.execute("PRAGMA application_id").get
    if application_id != APPLICATION_ID and (version or db.execute("SELECT count(*) FROM sqlite_schema").get):
        raise StoreDamaged(f"sqlite:///{path}", "is a database of another program")
    if version > newest:
        problem = f"has schema version {version}, but this version supports up to {newest}; upgrade minutebook"
        raise StoreRejected(f"sqlite:///{path}", problem)
    if version:
        require_unchanged(
            f"sqlite:///{path}", migrations(), version, dict(db.execute("SELECT name, value FROM setting"))
        )
    return version == newest


def _enable_wal(db: apsw.Connection) -> None:
    """Enable write-ahead logging. The file stores this setting.

    SQLite does not call the busy handler for this statement, so it is called here.
    """
    busy_handler = BusyHandler()
    tries = 0
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if not busy_handler(tries):
                raise
            tries += 1
        else:
            return


def _version(db: apsw.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").get
    return version


def migrations() -> Sequence[Migration]:
    """The migrations, in order."""
    return load_migrations("minutebook.store.sqlite")
