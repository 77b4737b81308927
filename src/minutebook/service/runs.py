"""Answers in the making: each goes on by itself, whoever listens, and can be listened to again from any event on."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.conversation.lease import Hold, held
from minutebook.errors import RequestRefused
from minutebook.service.http.responses import PING

__all__ = ["Hold", "Run", "Runs", "held"]
KEEP_SECONDS: Final = 900.0
"""How long the events of a finished answer stay at hand. Later its text still is, in the record."""
MOST_KEPT: Final = 5_000
"""How many finished answers stay at hand at most."""
_CANCELLED: Final = RequestRefused(
    409, "The answer was cancelled.", "cancelled", headers=(("x-should-retry", "false"),)
)
_STOPPING: Final = RequestRefused(
    503, "The server stopped before the answer was done. Ask again.", "server_stopping", headers=(("retry-after", "1"),)
)
DRAIN_SECONDS: Final = 30.0
"""How long a service that is told to stop waits for the answers that are being made."""


@dataclass(eq=False, slots=True)
class Run:
    """One answer in the making, as the events that tell it."""

    id: str
    tenant: str
    conversation: str | None
    events: list[bytes] = field(default_factory=list)
    done: bool = False
    failure: BaseException | None = None
    """Why it ended early, where nothing of that was told as an event."""
    task: "asyncio.Task[None] | None" = None
    cancelled: bool = False
    """Whether somebody asked that it be stopped."""
    watcher: "asyncio.Task[None] | None" = None
    """Who stops it when its client is gone, where that is wanted."""
    _waiting: "list[asyncio.Future[bool]]" = field(default_factory=list)

    def say(self, event: bytes) -> None:
        """Tell everybody who listens."""
        self.events.append(event)
        self._wake()

    async def give_way(self) -> None:
        """Let whoever listens pass on what was said before anything else is done: one round to write it, one to send."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _wake(self) -> None:
        for waiter in self._waiting:
            _set(waiter, True)
        self._waiting.clear()

    async def _news(self, seconds: float | None = None) -> bool:
        """Wait until something is said, or it ends; False if that took longer than it should."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        late = None if seconds is None else loop.call_later(seconds, _set, waiter, False)
        try:
            return await waiter
        finally:
            if late is not None:
                late.cancel()
            with suppress(ValueError):
                self._waiting.remove(waiter)

    @property
    def interruption(self) -> RequestRefused:
        """What a client is told of an answer that was stopped."""
        return _CANCELLED if self.cancelled else _STOPPING

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing more comes."""
        self.done, self.failure = True, failure
        self._wake()

    async def follow(self, after: int = 0) -> AsyncIterator[bytes]:
        """The events from number `after` on, as they come, to the end.

        Raises:
            Exception: what ended the run early.
        """
        place = after
        while True:
            while place < len(self.events):
                place += 1
                yield self.events[place - 1]
            if self.done:
                break
            await self._news()
        if self.failure is not None:
            raise self.failure

    async def told(self, after: int = 0, *, heartbeat_seconds: float) -> AsyncIterator[bytes]:
        """The events from number `after` on, those that came together in one piece; and a ping where none comes for long.

        Raises:
            Exception: what ended the run early.
        """
        place = after
        while True:
            if place < len(self.events):
                piece = b"".join(self.events[place:])
                place = len(self.events)
                yield piece
            elif self.done:
                break
            elif not await self._news(heartbeat_seconds):
                yield PING
        if self.failure is not None:
            raise self.failure

    async def begun(self) -> None:
        """Wait for the first event; what is refused before it is an HTTP error, not half a stream.

        Raises:
            Exception: what ended the run before it.
        """
        while not self.events and not self.done:
            await self._news()
        if self.failure is not None and not self.events:
            raise self.failure


def _set(waiter: "asyncio.Future[bool]", news: bool) -> None:
    if not waiter.done():
        waiter.set_result(news)


class Runs:
    """The runs of this process. A run is a task of its own: a client that goes away takes nothing with it."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._ended: deque[str] = deque()
        self.active = 0
        """How many are being made."""

    def start(self, run: Run, work: Coroutine[Any, Any, None], *, keep: bool = True) -> Run:
        """Begin to make an answer. Unless it is to be kept, nobody can come back to it when it is done."""
        self._runs[run.id] = run
        self.active += 1
        run.task = asyncio.create_task(self._made(run, work, keep=keep), name=run.id)
        return run

    def get(self, run_id: str, tenant: str) -> Run | None:
        """The run of that id, if it is this tenant's and still at hand."""
        run = self._runs.get(run_id)
        return run if run is not None and run.tenant == tenant else None

    async def cancel(self, run: Run) -> None:
        """Stop making an answer, and wait until it has put its things in order."""
        if run.task is not None and not run.task.done():
            run.cancelled = True
            run.task.cancel()
            with suppress(asyncio.CancelledError):
                await run.task

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Let what is being made come to its end; what takes longer is cancelled."""
        tasks = {run.task for run in self._runs.values() if run.task is not None and not run.task.done()}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=seconds)

    async def _made(self, run: Run, work: Coroutine[Any, Any, None], *, keep: bool) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not run.done:
                run.end(run.interruption)
            raise
        except Exception as error:  # noqa: BLE001 - whoever listens is told, and decides
            run.end(error)
        else:
            run.end()
        finally:
            self.active -= 1
            self._forget(run.id, later=keep)

    def _forget(self, run_id: str, *, later: bool) -> None:
        if not later:
            self._runs.pop(run_id, None)
            return
        self._ended.append(run_id)
        while len(self._ended) > MOST_KEPT:
            self._runs.pop(self._ended.popleft(), None)
        with suppress(RuntimeError):  # the loop is being closed: nobody will ask again
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._runs.pop, run_id, None)
