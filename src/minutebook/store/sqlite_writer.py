"""One thread that writes, for everybody at once: group commit.

Making a commit durable means waiting for the disk, and the disk takes as long for one append as for five hundred. So
while one commit is on its way, whoever else wants to write queues up, and all of them share the next. Each is answered
after the commit. What fails takes nobody with it: a job checks before it writes, and if one fails after that, the group
is given up and each of the others has a commit of its own.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite_errors import translated
from minutebook.store.sqlite_log import Log
from minutebook.store.sqlite_open import identity, opened
from minutebook.store.sqlite_unit import Unit

T = TypeVar("T")

LARGEST_GROUP: Final = 500
IDLE_SECONDS: Final = 0.2
"""How long nobody must have asked for anything before chores are done."""


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
    light: bool = False
    """Whether it may be lost in a power cut, so that it need not wait for the disk; others see it at once."""


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
        self._jobs: SimpleQueue[Sequence[Job] | None] = SimpleQueue()
        self._coming: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        """What each loop's tasks have asked for in this round of it; all of that is handed over at once."""
        self._waiting: deque[Job] = deque()
        """What the thread has taken over and not begun."""
        self._ended = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unit: Unit | None = None
        self._file: tuple[int, int] | None = None
        self._log: Log | None = None
        self.restless = False
        """Whether there is something to do when there is nothing else to do."""

    async def write(
        self, work: Callable[[Unit], T], *, keeps: bool = False, alone: bool = False, light: bool = False
    ) -> T:
        """Carry out a job; what it returns is returned once it is durable, or only committed if that is enough."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if self._closed:
            raise StoreUnavailable(self._store, "is closed")
        coming = self._coming.get(loop)
        if coming is None:
            coming = self._coming[loop] = []
            loop.call_soon(self._hand_over, loop)
        coming.append(Job(work, answer, keeps, alone, light))
        return await answer

    def chore(self, work: Callable[[Unit], object]) -> None:
        """Carry out a job that nobody waits for, and that keeps up to date what is known. It may fail."""
        self._submit([Job(work, None, keeps=True, alone=False)])

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the thread once for all who were ready in the same round: each wake-up is a change of threads."""
        jobs = self._coming.pop(loop)
        try:
            self._submit(jobs)
        except StoreUnavailable as closed:
            _resolve([(job, None, closed) for job in jobs])

    def _submit(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable(self._store, "is closed")
            self._jobs.put(jobs)
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
            self._unit.connection.close()

    def _next_group(self) -> list[Job] | None:
        """The next job and all that wait behind it; None when the store is closed."""
        if not self._waiting:
            try:
                more = self._jobs.get(timeout=IDLE_SECONDS if self.restless else None)
            except Empty:
                self.restless = False
                return [Job(self._rest, None, keeps=True, alone=False)]
            self._take(more)
        while not self._ended and len(self._waiting) < LARGEST_GROUP:
            try:
                self._take(self._jobs.get_nowait())
            except Empty:
                break
        if self._ended and not self._waiting:
            return None
        return [job for job in self._cut() if job.answer is None or not job.answer.cancelled()]

    def _take(self, more: Sequence[Job] | None) -> None:
        self._ended = more is None
        self._waiting.extend(more or ())

    def _cut(self) -> list[Job]:
        """The first of those that wait, as many as a group holds, up to one that must run alone."""
        group: list[Job] = []
        while self._waiting and len(group) < LARGEST_GROUP:
            group.append(self._waiting.popleft())
            if group[-1].alone:
                break
        return group

    def _rest(self, unit: Unit) -> None:
        self.restless = self._idle(unit)

    def _carry_out(self, group: Sequence[Job]) -> None:
        try:
            if self._unit is None:
                self._unit = Unit(opened(self._path))
                self._file = identity(self._path)
                self._log = Log(self._unit.connection, self._path)
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
        if self._log is not None:
            self._log.forget()
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
            unit.put_off.clear()
            with suppress(apsw.Error):  # SQLite may have given up the transaction by itself
                unit.connection.execute("ROLLBACK")
            if isinstance(error, StoreUnavailable):
                self._unit = None
                unit.connection.close()
            elif len(group) > 1 and not isinstance(error, apsw.BusyError):
                for job in group:
                    self._commit(unit, [job])
                return
            outcomes = [(job, None, self._ours(error)) for job in group]
        _answer(outcomes)
        if self._log is not None and self._unit is not None:
            with suppress(apsw.Error):  # nobody asked for it; it is tried again after the next commit
                self._log.empty(unit.connection)

    def _transaction(self, unit: Unit, group: Sequence[Job]) -> list["_Outcome"]:
        if not all(job.light for job in group):
            return self._carried_out(unit, group)
        unit.connection.execute(
            "PRAGMA synchronous = NORMAL"
        )  # the log is written, and synced by the next commit that waits
        try:
            return self._carried_out(unit, group)
        finally:
            if unit.connection.in_transaction:  # it failed; within it the setting cannot be changed
                unit.connection.execute("ROLLBACK")
            unit.connection.execute("PRAGMA synchronous = FULL")

    def _carried_out(self, unit: Unit, group: Sequence[Job]) -> list["_Outcome"]:
        unit.begin()
        outcomes: list[_Outcome] = []
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
        if self._log is not None:
            unit.flush()
            self._log.make_room()
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
