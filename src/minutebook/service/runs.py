"""Answers in progress: each runs in its own task, independent of the client, and its events can be read more than once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.conversation.lease import RenewedLease, hold_lease
from minutebook.errors import RequestRefused
from minutebook.service.http.responses import PING

__all__ = ["RenewedLease", "Run", "Runs", "hold_lease"]
KEEP_SECONDS: Final = 900.0
"""How long the events of a finished run stay in memory. After that the answer is only in the record."""
MAX_FINISHED_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the events of finished runs in memory. An event counts at least 1 KB."""
_CANCELLED: Final = RequestRefused(
    409, "The answer was cancelled.", "cancelled", headers=(("x-should-retry", "false"),)
)
_STOPPING: Final = RequestRefused(
    503, "The server stopped before the answer was complete. Retry.", "server_stopping", headers=(("retry-after", "1"),)
)
MAX_UNREAD_BYTES: Final = 1024 * 1024
"""Maximum size of the events that the client of an unrecorded answer has not read."""
OPEN_SECONDS: Final = 0.8
"""How long a stream waits for its first event before it is opened with a ping."""
DRAIN_SECONDS: Final = 30.0
"""How long the service waits at shutdown for answers in progress."""


@dataclass(eq=False, slots=True)
class Run:
    """The task that answers one request, and the events that it has sent."""

    id: str
    tenant: str
    conversation: str | None
    events: list[bytes] = field(default_factory=list)
    done: bool = False
    error: BaseException | None = None
    """The error that ended the run, unless it was sent as an event."""
    task: "asyncio.Task[None] | None" = None
    is_open: bool = False
    """A stream was opened before the first event. A failure is then sent as an event."""
    is_waiting: bool = False
    """The run waits for another answer in its conversation. No stream is opened meanwhile: clients retry only an HTTP error."""
    cancelled: bool = False
    """The client asked to stop the run, or disconnected."""
    watcher: "asyncio.Task[None] | None" = None
    """Cancels the run when the client disconnects; None if the run is to continue."""
    _unread_bytes: int = 0
    """Size of the events that `stream` has not yielded yet."""
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `stream` has yielded events."""
    _waiters: "list[asyncio.Future[bool]]" = field(default_factory=list)

    def send(self, event: bytes) -> None:
        """Send an event to all readers."""
        self.events.append(event)
        self._unread_bytes += len(event)
        self._wake()

    async def wait_for_reader(self) -> None:
        """Wait while the only reader, which uses `stream`, is more than `MAX_UNREAD_BYTES` behind (back-pressure)."""
        while self._unread_bytes > MAX_UNREAD_BYTES:
            self._room.clear()
            await self._room.wait()

    async def yield_to_readers(self) -> None:
        """Let the readers send their events first: one event loop iteration to write them, one to flush the socket."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _wake(self) -> None:
        for waiter in self._waiters:
            _resolve(waiter, True)
        self._waiters.clear()

    async def _wait_for_change(self, timeout_seconds: float | None = None) -> bool:
        """Wait for an event or the end of the run; return False on timeout."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters.append(waiter)
        timer = None if timeout_seconds is None else loop.call_later(timeout_seconds, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            with suppress(ValueError):
                self._waiters.remove(waiter)

    @property
    def interruption_error(self) -> RequestRefused:
        """The error that clients get if the run is stopped early."""
        return _CANCELLED if self.cancelled else _STOPPING

    def end(self, error: BaseException | None = None) -> None:
        """Mark the run as done. Readers stop after the last event, or get `error`."""
        self.done, self.error = True, error
        self._wake()

    async def follow(self, after: int = 0) -> AsyncIterator[bytes]:
        """Yield each event after the first `after` events, until the run ends.

        Raises:
            Exception: the error that ended the run.
        """
        index = after
        while True:
            while index < len(self.events):
                index += 1
                yield self.events[index - 1]
            if self.done:
                break
            await self._wait_for_change()
        if self.error is not None:
            raise self.error

    async def stream(self, after: int = 0, *, heartbeat_seconds: float) -> AsyncIterator[bytes]:
        """Yield the events after the first `after` events, joined if several are pending, and a ping while none comes.

        Raises:
            Exception: the error that ended the run.
        """
        index = after
        if not self.events and not self.done:
            yield PING
        while True:
            if index < len(self.events):
                pending = b"".join(self.events[index:])
                index = len(self.events)
                yield pending
                self._unread_bytes -= len(pending)
                self._room.set()
            elif self.done:
                break
            elif not await self._wait_for_change(heartbeat_seconds):
                yield PING
        if self.error is not None:
            raise self.error

    async def wait_for_first_event(self, *, timeout_seconds: float | None = None) -> None:
        """Wait for the first event, so that an earlier error becomes an HTTP error and not a broken stream.

        After the timeout the stream is opened without an event: `stream` then begins with a ping. The timeout does not
        count while the run waits for another answer in its conversation.

        Raises:
            Exception: the error that ended the run before its first event.
        """
        while not self.events and not self.done:
            if not await self._wait_for_change(timeout_seconds) and not self.is_waiting:
                self.is_open = True
                return
        if self.error is not None and not self.events:
            raise self.error


def _resolve(waiter: "asyncio.Future[bool]", changed: bool) -> None:
    if not waiter.done():
        waiter.set_result(changed)


class Runs:
    """The runs of this process, in progress or finished a short time ago."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._finished: deque[tuple[str, int]] = deque()
        """Id and size of each finished run, oldest first."""
        self._finished_bytes = 0
        self.active = 0
        """Number of runs in progress."""

    def start(self, run: Run, work: Coroutine[Any, Any, None], *, keep_after_end: bool = True) -> Run:
        """Run `work` in a new task. With `keep_after_end`, its events can still be read for a while."""
        self._runs[run.id] = run
        self.active += 1
        run.task = asyncio.create_task(self._execute(run, work, keep_after_end=keep_after_end), name=run.id)
        return run

    def get(self, run_id: str, tenant: str) -> Run | None:
        """The run with this id, if it belongs to the tenant and is still in memory."""
        run = self._runs.get(run_id)
        return run if run is not None and run.tenant == tenant else None

    async def cancel(self, run: Run) -> None:
        """Cancel a run, and wait until its cleanup is done."""
        if run.task is not None and not run.task.done():
            run.cancelled = True
            run.task.cancel()
            with suppress(asyncio.CancelledError):
                await run.task

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait for the runs in progress, and cancel those that take longer than `seconds`."""
        tasks = {run.task for run in self._runs.values() if run.task is not None and not run.task.done()}
        if not tasks:
            return
        _, overdue = await asyncio.wait(tasks, timeout=seconds)
        for task in overdue:
            task.cancel()
        if overdue:
            await asyncio.wait(overdue, timeout=seconds)

    async def _execute(self, run: Run, work: Coroutine[Any, Any, None], *, keep_after_end: bool) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not run.done:
                run.end(run.interruption_error)
            raise
        except Exception as error:  # noqa: BLE001 - the readers of the run get it
            run.end(error)
        else:
            run.end()
        finally:
            self.active -= 1
            self._forget(run.id, run.events, after_delay=keep_after_end)

    def _forget(self, run_id: str, events: Sequence[bytes], *, after_delay: bool) -> None:
        if not after_delay:
            self._runs.pop(run_id, None)
            return
        size = sum(max(1_024, len(event)) for event in events)
        self._finished.append((run_id, size))
        self._finished_bytes += size
        while self._finished_bytes > MAX_FINISHED_BYTES:
            self._drop_oldest()
        with suppress(RuntimeError):  # the event loop is closing
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._drop_until, run_id)

    def _drop_until(self, run_id: str) -> None:
        """Drop a finished run and those that finished before it, if it is still in memory."""
        while self._finished and run_id in self._runs:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        run_id, size = self._finished.popleft()
        self._finished_bytes -= size
        self._runs.pop(run_id, None)
