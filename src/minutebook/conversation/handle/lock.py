"""A lock for tasks of any thread and event loop. `asyncio.Lock` is for the tasks of one event loop only."""

import asyncio
import os
import threading
from collections import deque
from types import TracebackType


class TaskLock:
    """Held by one task at a time, of any thread. Tasks get it in the order in which they requested it."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._guard = threading.Lock()
        """Guards the two attributes below, for a few instructions."""
        self._is_locked = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._process != os.getpid():  # in a forked process, which does not have the task that holds the lock
            self._reset()
        with self._guard:
            if not self._is_locked:
                self._is_locked = True
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            with self._guard:
                is_waiting = waiter in self._waiters
                if is_waiting:
                    self._waiters.remove(waiter)
            if not is_waiting:  # the lock was passed to this task when it was cancelled
                self._pass_on()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass the lock to the next task that waits for it, or unlock it."""
        while True:
            with self._guard:
                if not self._waiters:
                    self._is_locked = False
                    return
                waiter = self._waiters.popleft()
            try:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # its event loop was closed
                continue
            return


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
