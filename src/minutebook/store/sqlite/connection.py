"""Where a driver's errors become ours.

Opening a database file: its settings, and the steps that bring an older one up to date.

What the jobs of one group share: the connection, what is known of the database, and what is still to be written.
"""

import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import apsw

from minutebook.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable

_OURS: Final[tuple[tuple[type[apsw.Error], type[StoreUnavailable]], ...]] = (
    (apsw.FullError, StoreFull),
    (apsw.ReadOnlyError, StoreReadOnly),
    (apsw.NotADBError, StoreDamaged),
    (apsw.CorruptError, StoreDamaged),
    (apsw.Error, StoreUnavailable),
)


def translated(error: apsw.Error, store: str) -> StoreUnavailable:
    """Our error for one of the driver's; the message is SQLite's own, which quotes no content."""
    kind = next(ours for theirs, ours in _OURS if isinstance(error, theirs))
    return kind(store, str(error) or type(error).__name__)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, store) from error


APPLICATION: Final = 0x6D626B31
"""What marks the file as ours, for `file` and for those who open the wrong one."""

PATIENCE_SECONDS: Final = 30.0
"""How long a write waits for another process to finish its own."""

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",  # an acknowledged append survives a power cut
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten with zeros
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA wal_autocheckpoint = 0",  # see `Committer.tidy`
    "PRAGMA cache_size = -8192",  # KB; with less, indexing drives out the pages that appends go on with
)
_REMARK: Final = re.compile(r"[ \t]*--[^\n]*")
PAGE: Final = 1024
"""Bytes. A page is what a commit writes and what an empty table takes: small ones suit short messages."""


def opened(path: str, *, patience: "Patience | None" = None) -> apsw.Connection:
    """A connection with our settings, to a file that is ours and up to date."""
    db = _connected(path, patience, make=True)
    try:
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def opened_to_read(path: str, *, patience: "Patience | None" = None) -> apsw.Connection:
    """A connection that only reads, to a file that `opened` has brought up to date."""
    db = _connected(path, patience, make=False)
    db.execute("PRAGMA query_only = ON")
    return db


def identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another that takes its place; None if there is none.

    SQLite goes on writing to a file that was deleted or replaced, and everything it acknowledges is lost.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - asked with every commit, and a Path takes three times as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connected(path: str, patience: "Patience | None", *, make: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
    db = apsw.Connection(path, flags=flags | apsw.SQLITE_OPEN_CREATE if make else flags)
    db.set_busy_handler(patience or Patience())
    for setting in _SETTINGS:
        db.execute(setting)
    return db


class Patience:
    """Waits for a lock that another process holds, in short steps of random length so that nobody starves."""

    def __init__(self) -> None:
        self._until = 0.0
        self.is_short = False
        """Whether nothing may be waited for, because an event loop would wait too."""

    def __call__(self, tries: int) -> bool:
        if self.is_short:
            return False
        now = time.monotonic()
        if tries == 0:
            self._until = now + PATIENCE_SECONDS
        if now >= self._until:
            return False
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311 - no secret depends on it
        return True


def _migrate(db: apsw.Connection, path: str) -> None:
    """Run the numbered steps that this file has not seen, under the lock that keeps other processes out."""
    if _is_current(db, path):
        return
    db.execute(f"PRAGMA page_size = {PAGE}")  # of a file that is new; others keep their own
    _use_log(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(db, path):
            for number, script in migrations():
                if number > _version(db):
                    db.execute(script)
                    db.execute(f"PRAGMA user_version = {number}")
            db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _is_current(db: apsw.Connection, path: str) -> bool:
    version, known = _version(db), migrations()[-1][0]
    mark = db.execute("PRAGMA application_id").get
    if mark != APPLICATION and (version or db.execute("SELECT count(*) FROM sqlite_schema").get):
        raise StoreDamaged(f"sqlite:///{path}", "is a database of another program")
    if version > known:
        raise StoreUnavailable(f"sqlite:///{path}", f"was written by a newer minutebook (step {version}, not {known})")
    return bool(version == known)


def _use_log(db: apsw.Connection) -> None:
    """Write-ahead logging, which the file remembers. While another process asks for the same it is busy at once."""
    patience = Patience()
    tries = 0
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if not patience(tries):
                raise
            tries += 1
        else:
            return


def _version(db: apsw.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").get
    return version


@lru_cache(maxsize=1)
def migrations() -> list[tuple[int, str]]:
    """The numbered scripts, in order; without their remarks, which every file would hold for ever."""
    scripts = [
        one for one in files("minutebook.store.sqlite").joinpath("migrations").iterdir() if one.name.startswith("0")
    ]
    return sorted((int(one.name.split("_")[0]), _REMARK.sub("", one.read_text(encoding="utf-8"))) for one in scripts)


MOST_KNOWN: Final = 4096


@dataclass(slots=True)
class Unit:
    """What a job works on: the connection, and what is known without asking it.

    That is only good as long as nobody else writes: it is forgotten when another process has, when a job fails, and
    after every job that does not keep it up to date.
    """

    connection: apsw.Connection
    known: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Tenant and id → the conversation."""
    sources: dict[tuple[str | None, str | None], int | None] = field(default_factory=dict)
    """Provider and model → their number."""
    behind: set[int] = field(default_factory=set)
    """Numbers of conversations that are noted as not wholly indexed."""
    seen: int = -1
    """The state of the database that these were true of."""
    put_off: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Statement → the rows that it is carried out for before the next commit, and before anybody reads."""
    flushed: int = 0
    """How many rows were written after they were put off."""
    waits: bool = True
    """Whether commits wait until they are on the disk, as they do in a connection that was just opened."""
    swept: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """Tenant and kind of document → when it was last looked for what has expired."""

    @property
    def db(self) -> apsw.Connection:
        """The connection, with nothing put off any more."""
        if self.put_off:
            self.flush()
        return self.connection

    def wait_for_disk(self, wanted: bool) -> None:
        """Have the next commit wait until it is on the disk; or only be written, and synced by the next that waits."""
        if wanted != self.waits:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self.waits = wanted

    def begin(self) -> None:
        """Take the lock that writers take, and forget what others may have changed."""
        self.connection.execute("BEGIN IMMEDIATE")
        if self.connection.data_version() != self.seen or len(self.known) > MOST_KNOWN:
            self.forget()
        if len(self.swept) > MOST_KNOWN:
            self.swept.clear()

    def commit(self) -> None:
        """Make all of it durable. The state that this leaves is the one that the next transaction should find."""
        self.connection.execute("COMMIT")
        self.seen = self.connection.data_version()

    def later(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Have rows written with those of the whole group: a statement for many of them takes half the time.

        A job does this when nothing in it can fail any more: it is not undone with the job.
        """
        self.put_off.setdefault(statement, []).extend(rows)

    def flush(self) -> None:
        """Write what was put off, so that it can be read."""
        before = self.connection.total_changes()
        while self.put_off:
            statement, rows = self.put_off.popitem()
            self.connection.executemany(statement, rows)
        self.flushed += self.connection.total_changes() - before

    @property
    def changes(self) -> int:
        """How many rows were changed at once, by whoever did it; what was put off is not counted."""
        return self.connection.total_changes() - self.flushed

    def forget(self) -> None:
        self.known.clear()
        self.sources.clear()
        self.behind.clear()
