"""How jobs are carried out: all of a group in one transaction, each with an outcome of its own.

What fails takes nobody with it: a job checks before it writes, and if one fails after that, the group is given up and
each of the others has a commit of its own.

Something to write, who waits for it, and how they are told.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite.connection import Patience, Unit, identity, opened, translated


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


def answer(outcomes: Sequence[Outcome]) -> None:
    """Wake those who wait, from another thread, with one call for each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome[0].answer is not None:
            by_loop.setdefault(outcome[0].answer.get_loop(), []).append(outcome)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(resolve, mine)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def resolve(outcomes: Sequence[Outcome]) -> None:
    """Wake those who wait, in their own loop."""
    for job, result, error in outcomes:
        if job.answer is None or job.answer.done():
            continue
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)


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
        return self._carried_out(unit, group)

    def _carried_out(self, unit: Unit, group: Sequence[Job]) -> list[Outcome]:
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
