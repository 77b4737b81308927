"""One thread that writes, for everybody at once: group commit.

Making a commit durable means waiting for the disk, and the disk takes as long for one append as for five hundred. So
while one commit is on its way, whoever else wants to write queues up, and all of them share the next. Each is answered
after the commit. What fails takes nobody with it: a job checks before it writes, and if one fails after that, the group
is given up and each of the others has a commit of its own.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite_errors import translated
from minutebook.store.sqlite_open import identity, opened

T = TypeVar("T")

LARGEST_GROUP: Final = 500
MOST_KNOWN: Final = 4096
IDLE_SECONDS: Final = 0.2
"""How long nobody must have asked for anything before chores are done."""


@dataclass(slots=True)
class Unit:
    """What a job works on: the connection, and what is known without asking it.

    That is only good as long as nobody else writes: it is forgotten when another process has, when a job fails, and
    after every job that does not keep it up to date.
    """

    db: apsw.Connection
    known: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Tenant and id → the conversation."""
    sources: dict[tuple[str | None, str | None], int | None] = field(default_factory=dict)
    """Provider and model → their number."""
    seen: int = -1
    """The state of the database that these were true of."""

    def begin(self) -> None:
        """Take the lock that writers take, and forget what others may have changed."""
        self.db.execute("BEGIN IMMEDIATE")
        state: int = self.db.execute("PRAGMA data_version").get
        if state != self.seen or len(self.known) > MOST_KNOWN:
            self.forget()
            self.seen = state

    def forget(self) -> None:
        self.known.clear()
        self.sources.clear()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Something to write, and who waits for it."""

    work: Callable[[Unit], Any]
    answer: "asyncio.Future[Any] | None"
    """Who waits for it; nobody, if it is a chore."""
    keeps: bool
    """Whether it keeps up to date what is known."""
    alone: bool
    """Whether it must run outside of any transaction."""


class _GroupLost(Exception):
    """A job failed with some of its writing done, because of this error."""

    def __init__(self, because: Exception) -> None:
        super().__init__(because)
        self.because = because


class Writer:
    """Carries out jobs on a connection of its own, and `idle` when there are none."""

    def __init__(self, store: str, path: str, idle: Callable[[Unit], bool]) -> None:
        self._store = store
        self._path = path
        self._idle = idle
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unit: Unit | None = None
        self._file: tuple[int, int] | None = None
        self.restless = False
        """Whether there is something to do when there is nothing else to do."""

    async def write(self, work: Callable[[Unit], T], *, keeps: bool = False, alone: bool = False) -> T:
        """Carry out a job; what it returns is returned once it is durable."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(Job(work, answer, keeps, alone))
        return await answer

    def chore(self, work: Callable[[Unit], object]) -> None:
        """Carry out a job that nobody waits for. If it fails, it is for another time."""
        self._submit(Job(work, None, keeps=False, alone=False))

    def _submit(self, job: Job) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable(self._store, "is closed")
            self._jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"writer of {self._store}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Finish what was asked for, then let go of the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            self._carry_out(group)
        if self._unit is not None:
            self._unit.db.close()

    def _next_group(self) -> list[Job] | None:
        """The next job and all that wait behind it; None when the store is closed."""
        try:
            job = self._jobs.get(timeout=IDLE_SECONDS if self.restless else None)
        except Empty:
            self.restless = False
            return [Job(self._rest, None, keeps=False, alone=False)]
        if job is None:
            return None
        group = [job]
        while len(group) < LARGEST_GROUP and not job.alone:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            group.append(job)
        return [one for one in group if one.answer is None or not one.answer.cancelled()]

    def _rest(self, unit: Unit) -> None:
        self.restless = self._idle(unit)

    def _carry_out(self, group: Sequence[Job]) -> None:
        try:
            if self._unit is None:
                self._unit = Unit(opened(self._path))
                self._file = identity(self._path)
        except Exception as error:  # noqa: BLE001 - the thread's edge: every error belongs to whoever asked
            _answer([(job, None, self._ours(error)) for job in group])
            return
        unit = self._unit
        together = [job for job in group if not job.alone]
        if together:
            self._commit(unit, together)
        for job in group[len(together) :]:
            self._run_alone(unit, job)

    def _run_alone(self, unit: Unit, job: Job) -> None:
        unit.forget()
        try:
            _answer([(job, job.work(unit), None)])
        except Exception as error:  # noqa: BLE001 - the thread's edge: every error belongs to whoever asked
            _answer([(job, None, self._ours(error))])

    def _commit(self, unit: Unit, group: Sequence[Job]) -> None:
        """One transaction for the group; if it fails as a whole, one for each of them."""
        try:
            outcomes = self._transaction(unit, group)
        except Exception as error:  # noqa: BLE001 - the thread's edge: every error belongs to whoever asked
            unit.forget()
            with suppress(apsw.Error):  # SQLite may have given up the transaction by itself
                unit.db.execute("ROLLBACK")
            if isinstance(error, StoreUnavailable):
                self._unit = None
                unit.db.close()
            elif len(group) > 1 and not isinstance(error, apsw.BusyError):
                for job in group:
                    self._commit(unit, [job])
                return
            outcomes = [(job, None, self._ours(error)) for job in group]
        _answer(outcomes)

    def _transaction(self, unit: Unit, group: Sequence[Job]) -> list["_Outcome"]:
        unit.begin()
        outcomes: list[_Outcome] = []
        for job in group:
            before = unit.db.total_changes()
            try:
                outcomes.append((job, job.work(unit), None))
            except Exception as error:
                if unit.db.total_changes() != before or not unit.db.in_transaction:
                    raise _GroupLost(error) from error
                outcomes.append((job, None, self._ours(error)))
            if not job.keeps:
                unit.forget()
        unit.db.execute("COMMIT")
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


_Outcome = tuple[Job, Any, Exception | None]


def _answer(outcomes: Sequence[_Outcome]) -> None:
    """Wake those who wait, with one call for each of their loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        if outcome[0].answer is not None:
            by_loop.setdefault(outcome[0].answer.get_loop(), []).append(outcome)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:  # the loop was closed: nobody waits any more
            continue


def _resolve(outcomes: Sequence[_Outcome]) -> None:
    for job, result, error in outcomes:
        if job.answer is None or job.answer.done():
            continue
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)
