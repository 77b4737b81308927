"""Opening a database file: its settings, the steps that bring an older one up to date, and the driver's errors as ours."""

import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from typing import Final

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


def _connected(path: str, patience: "Patience | None", *, make: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
    db = apsw.Connection(path, flags=flags | apsw.SQLITE_OPEN_CREATE if make else flags)
    db.set_busy_handler(patience or Patience())
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # no plan depends on values, so none is made anew for each of them
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
