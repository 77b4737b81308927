"""One writer for everybody at once: group commit.

Making a commit durable means waiting for the disk, and the disk takes as long for one append as for five hundred. So
whoever wants to write in the same round of an event loop shares a commit, and so does whoever queues up while one is on
its way. Each is answered after the commit.

Who carries a group out? Handing it to another thread and back takes longer than a quick disk needs to sync, so the first
of a round does it at once, in its own thread, for all of them: as long as every job is brief, the disk has been quick, and
nobody else is writing. Otherwise the writer's own thread does it, and the loop goes on meanwhile.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite.commit import Committer, Job, Outcome, Unit

T = TypeVar("T")

LARGEST_GROUP: Final = 500
LARGEST_AT_ONCE: Final = 128
"""How many jobs a loop's own thread carries out together: more would take longer than other tasks should wait."""
QUICK_SECONDS: Final = 0.002
"""How long a commit may take for the next to be made in a loop's own thread."""
GIVE_WAY_SECONDS: Final = 0.001
"""How long the thread leaves the turn to those who waited for it."""
IDLE_SECONDS: Final = 0.2
"""How long nobody must have asked for anything before chores are done."""


class Writer:
    """Carries out jobs on a connection of its own, and `idle` when there are none."""

    def __init__(self, store: str, path: str, idle: Callable[[Unit], bool]) -> None:
        self._store = store
        self._idle = idle
        self._turn = threading.Lock()
        """Whoever holds it may use the connection."""
        self._is_next = False
        """Whether the thread wants it."""
        self._wanting: list[asyncio.Future[None]] = []
        """Who waits until it is free."""
        self._committer = Committer(store, path)
        self._jobs: SimpleQueue[Sequence[Job] | None] = SimpleQueue()
        self._coming: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        """What each loop's tasks have asked for in this round of it."""
        self._waiting: deque[Job] = deque()
        """What the thread has taken over and not begun."""
        self._ended = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._restless = False
        self._written_at = 0.0

    async def write(
        self,
        work: Callable[[Unit], T],
        *,
        keeps: bool = False,
        alone: bool = False,
        light: bool = False,
        brief: bool = False,
    ) -> T:
        """Carry out a job; what it returns is returned once it is durable, or only committed if that is enough."""
        if self._closed:
            raise StoreUnavailable(self._store, "is closed")
        loop = asyncio.get_running_loop()
        job = Job(work, None, keeps, alone, light, brief)
        coming = self._coming.get(loop)
        result: T
        if coming is None:
            self._coming[loop] = [job]
            result = await self._lead(loop, job)
        else:
            job.answer = loop.create_future()
            coming.append(job)
            result = await job.answer
        return result

    async def _lead(self, loop: asyncio.AbstractEventLoop, mine: Job) -> Any:
        """Let the others of this round say what they want, then have all of it done."""
        try:
            await asyncio.sleep(0)
            while self._is_worth_waiting(loop):
                await self._turn_over(loop)
        except BaseException:
            self._hand_over(self._coming.pop(loop)[1:])
            raise
        group = [job for job in self._coming.pop(loop) if job.is_wanted]
        outcomes = self._at_once(group)
        resolve(outcomes)
        if len(outcomes) < len(group):
            done = {id(job) for job, _, _ in outcomes}
            left = [job for job in group if id(job) not in done]
            if mine in left:
                mine.answer = loop.create_future()
            self._hand_over(left)
        if mine.answer is not None:
            return await mine.answer
        result, error = next((result, error) for job, result, error in outcomes if job is mine)
        if error is not None:
            raise error
        return result

    def _is_worth_waiting(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether somebody else writes just now, and it could be done at once after that.

        Once a thread does what is brief, it goes on doing that: there is always more when it is done. And two threads that
        both work wait for each other's interpreter lock, some milliseconds each time.
        """
        is_taken = self._turn.locked() or self._is_next
        return is_taken and self._committer.waited <= QUICK_SECONDS and all(job.brief for job in self._coming[loop])

    async def _turn_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until whoever writes is done."""
        over: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if not self._turn.locked() and not self._is_next:
                return
            self._wanting.append(over)
        await over

    def _tell_turn_over(self) -> bool:
        """Wake those who wait for a turn; whether there were any."""
        with self._lock:  # also to see that there are none: somebody may just have found the turn taken
            wanting, self._wanting = self._wanting, []
        for over in wanting:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                over.get_loop().call_soon_threadsafe(_wake, over)
        return bool(wanting)

    def _at_once(self, group: Sequence[Job]) -> list[Outcome]:
        """Carry a group out in this thread, or as much of it as can be done without keeping the loop."""
        committer = self._committer
        if (
            committer.waited > QUICK_SECONDS
            or len(group) > LARGEST_AT_ONCE
            or self._is_next
            or self._waiting
            or not all(job.brief for job in group)
            or not self._turn.acquire(blocking=False)
        ):
            return []
        try:
            if self._closed:
                return []
            committer.patience.is_short = True
            outcomes = committer.carry_out(group)
        finally:
            committer.patience.is_short = False
            self._turn.release()
            self._tell_turn_over()
        self._written_at = monotonic()
        if committer.has_long_log:
            self._hand_over([])
        return [outcome for outcome in outcomes if not _is_busy(outcome[2])]  # the thread waits for other processes

    def chore(self, work: Callable[[Unit], object]) -> None:
        """Carry out a job that nobody waits for, and that keeps up to date what is known. It may fail."""
        self._submit([Job(work)])

    def rest_later(self) -> None:
        """Note that there is something to do when there is nothing else to do."""
        if not self._restless:
            self._restless = True
            self._hand_over([])

    def _hand_over(self, jobs: Sequence[Job]) -> None:
        """Give jobs to the thread, all in one: each wake-up is a change of threads."""
        try:
            self._submit(jobs)
        except StoreUnavailable as closed:
            resolve([(job, None, closed) for job in jobs])

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
        with self._turn:
            self._committer.close()

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            if group:
                with self._my_turn():
                    outcomes = self._committer.carry_out(group)
                answer(outcomes)
            if self._committer.has_long_log:
                with self._my_turn():
                    self._committer.tidy()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """The thread's turn. Those who write at once stand back for it: they would always be quicker."""
        self._is_next = True
        with self._turn:
            self._is_next = False
            yield
        if self._tell_turn_over():
            sleep(GIVE_WAY_SECONDS)

    def _next_group(self) -> list[Job] | None:
        """The next job and all that wait behind it; None when the store is closed."""
        if not self._waiting and not self._ended:
            try:
                more = self._jobs.get(timeout=IDLE_SECONDS if self._restless else None)
            except Empty:
                if monotonic() - self._written_at < IDLE_SECONDS:
                    return []
                self._restless = False
                return [Job(self._rest)]
            self._take(more)
        while not self._ended and len(self._waiting) < LARGEST_GROUP:
            try:
                self._take(self._jobs.get_nowait())
            except Empty:
                break
        if self._ended and not self._waiting:
            return None
        return [job for job in self._cut() if job.is_wanted]

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
        if self._idle(unit):
            self._restless = True


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


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _is_busy(error: Exception | None) -> bool:
    return error is not None and isinstance(error.__cause__, apsw.BusyError)
