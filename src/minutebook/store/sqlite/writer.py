"""Group commit: concurrent writes share one transaction.

A durable commit waits for the disk, and that takes as long for one append as for five hundred. So all writes of one
event loop iteration share a commit, and so do all writes that are queued while another commit runs. Each caller gets its
result after the commit.

A group runs inline, in the thread of the event loop, if all its jobs are `inline_ok`, the last commit was fast and the
connection is free. Switching to another thread and back would take longer than a sync of a fast disk. Otherwise the writer
thread runs the group, and the event loop is not blocked.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import sleep
from typing import Any, Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite.commit import Committer, JobResult, WriteConnection, WriteJob

T = TypeVar("T")

MAX_GROUP_JOBS: Final = 500
MAX_INLINE_JOBS: Final = 128
"""Maximum size of a group that runs inline: a larger one would block the other tasks of the loop for too long."""
FAST_SYNC_SECONDS: Final = 0.002
"""If the last sync took longer, the next group does not run inline."""
YIELD_SECONDS: Final = 0.001
"""Pause of the writer thread after a group, if event loops wait for the connection."""


class Writer:
    """Runs write jobs on its own connection, which is given to `prepare` when it is opened."""

    def __init__(self, store: str, path: str, prepare: Callable[[apsw.Connection], None]) -> None:
        self._store = store
        self._committer = Committer(store, path, prepare)
        self._connection_lock = threading.Lock()
        self._is_paused = False
        self._thread_waits = False
        """The writer thread wants the connection; inline groups must not overtake it."""
        self._state_lock = threading.Lock()
        """Guards `_lock_waiters`, `_thread` and `_closed`."""
        self._lock_waiters: list[asyncio.Future[None]] = []
        """Resolved when the connection may be free."""
        self._collecting: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
        """Jobs submitted in the current iteration of each event loop."""
        self._queue: SimpleQueue[Sequence[WriteJob] | None] = SimpleQueue()
        """Jobs for the writer thread; None ends it."""
        self._pending: deque[WriteJob] = deque()
        """Jobs that the writer thread has taken from the queue and not run yet."""
        self._queue_ended = False
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """The approximate number of jobs that wait for a group: each submission in the queue counts as one job."""
        return sum(map(len, list(self._collecting.values()))) + len(self._pending) + self._queue.qsize()

    # On the event loop's thread

    async def write(
        self,
        work: Callable[[WriteConnection], T],
        *,
        cache_safe: bool = False,
        exclusive: bool = False,
        no_fsync: bool = False,
        inline_ok: bool = False,
    ) -> T:
        """Run a job, and return its result after the commit. `WriteJob` explains the flags."""
        if self._closed:
            raise StoreUnavailable(self._store, "is closed")
        loop = asyncio.get_running_loop()
        job = WriteJob(work, None, cache_safe, exclusive, no_fsync, inline_ok)
        group = self._collecting.get(loop)
        result: T
        if group is None:
            self._collecting[loop] = [job]
            result = await self._lead_group(loop, job)
        else:
            job.future = loop.create_future()
            group.append(job)
            result = await job.future
        return result

    async def _lead_group(self, loop: asyncio.AbstractEventLoop, own_job: WriteJob) -> Any:
        """Collect the jobs of this loop iteration, run them, and return the result of `own_job`."""
        try:
            await asyncio.sleep(0)
            while self._should_wait(loop):
                await self._wait_for_connection(loop)
        except BaseException:
            self._submit_or_fail(self._collecting.pop(loop)[1:])
            raise
        group = [job for job in self._collecting.pop(loop) if not job.is_cancelled]
        results = self._run_inline(group)
        resolve_futures(results)
        if len(results) < len(group):
            finished_ids = {id(result.job) for result in results}
            remaining_jobs = [job for job in group if id(job) not in finished_ids]
            if own_job in remaining_jobs:
                own_job.future = loop.create_future()
            self._submit_or_fail(remaining_jobs)
        if own_job.future is not None:
            return await own_job.future
        own_result = next(result for result in results if result.job is own_job)
        if own_result.error is not None:
            raise own_result.error
        return own_result.value

    def _should_wait(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the connection is in use and the group could run inline once it is free.

        Waiting is better than passing the group to the writer thread: while that thread runs short jobs, more are passed
        to it, so it never stops and competes with the event loop for the GIL.
        """
        in_use = self._connection_lock.locked() or self._thread_waits
        is_fast = self._committer.sync_seconds <= FAST_SYNC_SECONDS
        return in_use and is_fast and all(job.inline_ok for job in self._collecting[loop])

    async def _wait_for_connection(self, loop: asyncio.AbstractEventLoop) -> None:
        waiter: asyncio.Future[None] = loop.create_future()
        with self._state_lock:
            if not self._connection_lock.locked() and not self._thread_waits:
                return
            self._lock_waiters.append(waiter)
        await waiter

    def _run_inline(self, group: Sequence[WriteJob]) -> list[JobResult]:
        """Run a group in this thread if that does not block the loop; return the results of the jobs that were run."""
        committer = self._committer
        if (
            committer.sync_seconds > FAST_SYNC_SECONDS
            or len(group) > MAX_INLINE_JOBS
            or self._thread_waits
            or self._pending
            or not all(job.inline_ok for job in group)
            or not self._connection_lock.acquire(blocking=False)
        ):
            return []
        try:
            if self._closed:
                return []
            committer.busy_handler.fail_fast = True
            results = committer.run_group(group)
        finally:
            committer.busy_handler.fail_fast = False
            self._connection_lock.release()
            self._wake_lock_waiters()
        if committer.needs_checkpoint:
            self._submit_or_fail([])
        # Jobs that found the database locked by another process are left to the writer thread, which may wait.
        return [result for result in results if not _is_busy(result.error)]

    # On any thread

    def close(self) -> None:
        """Run the jobs that are queued, then close the file."""
        with self._state_lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        with self._connection_lock:
            self._committer.close()

    def pause(self) -> None:
        """Wait for the running group, then close the file until `resume`."""
        self._connection_lock.acquire()
        self._is_paused = True
        with suppress(apsw.Error):
            self._committer.close()

    def resume(self) -> None:
        """Let groups run again, if they were paused. The first one opens the file."""
        if self._is_paused:
            self._is_paused = False
            self._connection_lock.release()
            self._wake_lock_waiters()

    def _submit_or_fail(self, jobs: Sequence[WriteJob]) -> None:
        """Queue jobs for the writer thread, or fail their futures if the store is closed.

        They are one item of the queue, so that the thread wakes up once.
        """
        try:
            self._submit(jobs)
        except StoreUnavailable as error:
            resolve_futures([JobResult(job, error=error) for job in jobs])

    def _submit(self, jobs: Sequence[WriteJob]) -> None:
        with self._state_lock:
            if self._closed:
                raise StoreUnavailable(self._store, "is closed")
            self._queue.put(jobs)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_thread, name=f"writer of {self._store}", daemon=True)
                self._thread.start()

    def _wake_lock_waiters(self) -> bool:
        """Wake the tasks that wait for the connection; return whether there were any."""
        with self._state_lock:  # a task may have found the connection in use and be about to add its waiter
            waiters, self._lock_waiters = self._lock_waiters, []
        for waiter in waiters:
            with suppress(RuntimeError):  # its event loop was closed
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
        return bool(waiters)

    # On the writer thread

    def _run_thread(self) -> None:
        while (group := self._next_group()) is not None:
            if group:
                with self._hold_connection():
                    results = self._committer.run_group(group)
                send_results(results)
            if self._committer.needs_checkpoint:
                with self._hold_connection():
                    self._committer.checkpoint()

    @contextmanager
    def _hold_connection(self) -> Iterator[None]:
        """Hold the connection for this block. Inline groups wait for it: otherwise they would always be first."""
        self._thread_waits = True
        with self._connection_lock:
            self._thread_waits = False
            yield
        if self._wake_lock_waiters():
            sleep(YIELD_SECONDS)

    def _next_group(self) -> list[WriteJob] | None:
        """Wait for jobs, and return as many as fit into a group; None when the writer is closed."""
        if not self._pending and not self._queue_ended:
            self._add_pending(self._queue.get())
        while not self._queue_ended and len(self._pending) < MAX_GROUP_JOBS:
            try:
                self._add_pending(self._queue.get_nowait())
            except Empty:
                break
        if self._queue_ended and not self._pending:
            return None
        group: list[WriteJob] = []
        while self._pending and len(group) < MAX_GROUP_JOBS:
            group.append(self._pending.popleft())
            if group[-1].exclusive:
                break
        return [job for job in group if not job.is_cancelled]

    def _add_pending(self, jobs: Sequence[WriteJob] | None) -> None:
        self._queue_ended = jobs is None
        self._pending.extend(jobs or ())


def send_results(results: Sequence[JobResult]) -> None:
    """Resolve the futures of jobs from another thread, with one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[JobResult]] = {}
    for result in results:
        if result.job.future is not None:
            by_loop.setdefault(result.job.future.get_loop(), []).append(result)
    for loop, loop_results in by_loop.items():
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(resolve_futures, loop_results)


def resolve_futures(results: Sequence[JobResult]) -> None:
    """Resolve the futures of jobs, in the thread of their event loop."""
    for job, value, error in results:
        if job.future is None or job.future.done():
            continue
        if error is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(error)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _is_busy(error: Exception | None) -> bool:
    return error is not None and isinstance(error.__cause__, apsw.BusyError)
