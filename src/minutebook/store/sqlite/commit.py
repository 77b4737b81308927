"""The connection that writes: all jobs of a group in one transaction, each with an outcome of its own.

What fails takes nobody with it: a job checks before it writes, and if one fails after that, the group is given up and
each of the others has a commit of its own.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import Any, Final

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sql.transaction import ConversationRow
from minutebook.store.sqlite.connection import Patience, opened, translated

MOST_KNOWN: Final = 4096


@dataclass(slots=True)
class Unit:
    """What a job works on: the connection, and what is known without asking it.

    That is only good as long as nobody else writes: it is forgotten when another process has, when a job fails, and
    after every job that does not keep it up to date.
    """

    connection: apsw.Connection
    known: dict[tuple[str, str], ConversationRow] = field(default_factory=dict)
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


@dataclass(slots=True, eq=False)
class Job:
    """Something to write, and who waits for it."""

    work: Callable[[Unit], Any]
    answer: "asyncio.Future[Any] | None" = None
    """Who waits for it; nobody, if it is a chore, or if who wants it carries it out."""
    keeps: bool = True
    """Whether it keeps up to date what is known."""
    alone: bool = False
    """Whether it must run outside of any transaction."""
    light: bool = False
    """Whether it may be lost in a power cut, so that it need not wait for the disk; others see it at once."""
    brief: bool = False
    """Whether it touches so few rows that the caller's own thread may carry it out."""

    @property
    def is_wanted(self) -> bool:
        return self.answer is None or not self.answer.cancelled()


Outcome = tuple[Job, Any, Exception | None]


def identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another that takes its place; None if there is none.

    SQLite goes on writing to a file that was deleted or replaced, and everything it acknowledges is lost.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - asked with every commit, and a Path takes three times as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


PAGES: Final = 4_000
"""How long the write-ahead log may become before it is emptied; the same number of bytes as is usual with larger pages."""
UNKNOWN: Final = float("inf")
PER_JOB_SECONDS: Final = 0.00005
"""How long it takes to put the pages of one job into the log, about. That is work, in whichever thread it is done."""


class _GroupLost(Exception):
    """A job failed with some of its writing done, because of this error."""

    def __init__(self, because: Exception) -> None:
        super().__init__(because)
        self.because = because


class Committer:
    """The connection that writes, for whoever has the turn: one thread at a time."""

    def __init__(self, store: str, path: str) -> None:
        self._store = store
        self._path = path
        self._unit: Unit | None = None
        self._file: tuple[int, int] | None = None
        self._pages = 0
        """How long the write-ahead log is."""
        self.patience = Patience()
        self.waited = UNKNOWN
        """How many seconds the last commit took, without what the pages of its jobs take: about what a sync takes."""

    def carry_out(self, group: Sequence[Job]) -> list[Outcome]:
        """Do what a group asks for. Only the last of it may be one that must run alone."""
        try:
            unit = self._unit or self._opened()
        except Exception as error:  # noqa: BLE001 - every error belongs to whoever asked
            return [(job, None, self._ours(error)) for job in group]
        together = [job for job in group if not job.alone]
        outcomes = self._committed(unit, together) if together else []
        return outcomes + [self._run_alone(unit, job) for job in group[len(together) :]]

    @property
    def has_long_log(self) -> bool:
        return self._pages >= PAGES

    def tidy(self) -> None:
        """Bring what is in the log into the database, if it is long; readers who still need it are not waited for.

        Nobody asked for it: what does not work is tried again after the next commit.
        """
        if self._unit is not None and self.has_long_log:
            with suppress(apsw.Error):
                self._unit.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        if self._unit is not None:
            self._unit.connection.close()
            self._unit = None

    def _opened(self) -> Unit:
        unit = Unit(opened(self._path, patience=self.patience))
        self._file = identity(self._path)
        unit.connection.set_wal_hook(self._note_log)
        self._unit = unit
        return unit

    def _note_log(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return 0

    def _run_alone(self, unit: Unit, job: Job) -> Outcome:
        unit.forget()
        unit.wait_for_disk(True)
        try:
            return (job, job.work(unit), None)
        except Exception as error:  # noqa: BLE001 - every error belongs to whoever asked
            return (job, None, self._ours(error))

    def _committed(self, unit: Unit, group: Sequence[Job]) -> list[Outcome]:
        """One transaction for the group; if it fails as a whole, one for each of them."""
        try:
            return self._transaction(unit, group)
        except Exception as error:  # noqa: BLE001 - every error belongs to whoever asked
            unit.forget()
            unit.put_off.clear()
            with suppress(apsw.Error):  # SQLite may have given up the transaction by itself
                unit.connection.execute("ROLLBACK")
            if isinstance(error, StoreUnavailable):
                self.close()
            elif len(group) > 1 and not isinstance(error, apsw.BusyError):
                return [outcome for job in group for outcome in self._committed(unit, [job])]
            return [(job, None, self._ours(error)) for job in group]

    def _transaction(self, unit: Unit, group: Sequence[Job]) -> list[Outcome]:
        unit.wait_for_disk(not all(job.light for job in group))
        unit.begin()
        outcomes: list[Outcome] = []
        for job in group:
            before = unit.changes
            try:
                outcomes.append((job, job.work(unit), None))
            except Exception as error:
                if unit.changes != before or not unit.connection.in_transaction:
                    raise _GroupLost(error) from error
                outcomes.append((job, None, self._ours(error)))
            if not job.keeps:
                unit.forget()
        unit.flush()
        began = perf_counter()
        unit.commit()
        self.waited = perf_counter() - began - len(group) * PER_JOB_SECONDS
        if identity(self._path) != self._file:
            raise StoreUnavailable(self._store, "its file was deleted or replaced while it was in use")
        return outcomes

    def _ours(self, error: Exception) -> Exception:
        if isinstance(error, _GroupLost):
            error = error.because
        if not isinstance(error, apsw.Error):
            return error
        ours = translated(error, self._store)
        ours.__cause__ = error
        return ours
