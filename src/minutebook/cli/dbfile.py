"""A SQLite database as a file: what it is, whether it is whole, and a copy of it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from minutebook.cli.progress import counting
from minutebook.errors import StoreDamaged
from minutebook.store.sqlite_errors import errors_of
from minutebook.store.sqlite_open import APPLICATION, opened, opened_to_read

PAGES: Final = 1000
"""How many pages are copied at a time."""
_COUNTS: Final = {
    "tenants": "SELECT count(DISTINCT tenant) FROM conversation",
    "conversations": "SELECT count(*) FROM conversation",
    "entries": "SELECT count(*) FROM entry",
    "folds": "SELECT count(*) FROM fold",
    "pins": "SELECT count(*) FROM pin",
    "erased": "SELECT count(*) FROM tombstone",
    "not_yet_indexed": "SELECT count(*) FROM unindexed",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file says of itself."""

    step: int
    """The last of the numbered steps that it has seen."""
    newest: int
    """The last that there is."""
    size: int
    log_size: int
    sqlite: str


def facts(path: Path) -> Facts:
    """What kind of database it is; it is not brought up to date.

    Raises:
        StoreDamaged: it is no database of ours.
    """
    with _reading(path) as db:
        step = int(db.execute("PRAGMA user_version").get)
        if db.execute("PRAGMA application_id").get != APPLICATION:
            raise StoreDamaged(f"sqlite:///{path}", "is a database of another program")
    new = opened(":memory:")  # one that has just been made has seen every step
    newest = int(new.execute("PRAGMA user_version").get)
    new.close()
    log = Path(f"{path}-wal")
    return Facts(
        step, newest, path.stat().st_size, log.stat().st_size if log.exists() else 0, apsw.sqlite_lib_version()
    )


def counts(path: Path) -> dict[str, int]:
    """How much there is of everything, of all tenants."""
    with _reading(path) as db:
        return {name: int(db.execute(query).get) for name, query in _COUNTS.items()}


def integrity(path: Path) -> list[str]:
    """What SQLite finds wrong with the file."""
    with _reading(path) as db:
        found = [str(problem) for (problem,) in db.execute("PRAGMA integrity_check")]
    return [problem for problem in found if problem != "ok"]


def copied(source: Path, target: Path) -> int:
    """Copy a database that may be in use, in one step as others see it; return the size of the copy."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as folder:
        made = Path(folder) / "copy.db"
        with _reading(source) as db, _made(made) as copy:
            # One snapshot for the whole copy: it need not begin again whenever somebody writes.
            db.execute("BEGIN")
            pages = int(db.execute("PRAGMA page_count").get)
            with counting("copying", pages, silent=True) as advance, copy.backup("main", db, "main") as work:
                while not work.done:
                    work.step(PAGES)
                    advance(PAGES)
            db.execute("ROLLBACK")
        shutil.copymode(source, made)
        made.replace(target)
    return target.stat().st_size


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    with errors_of(f"sqlite:///{path}"):
        db = opened_to_read(str(path))
        try:
            yield db
        finally:
            db.close()


@contextmanager
def _made(path: Path) -> Iterator[apsw.Connection]:
    with errors_of(f"sqlite:///{path}"):
        db = apsw.Connection(str(path))
        try:
            yield db
        finally:
            db.close()
