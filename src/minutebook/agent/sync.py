"""Waiting for async code from code that is not.

One event loop in a thread of its own serves every such wait of the process, so that a client's open connections are of
use to the next call, and code that already runs in an event loop (a notebook) can wait too.

A provider's client for every event loop that asks for one: open connections belong to the loop that made them.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine. Interrupted (Ctrl-C), it is cancelled, and has the time to leave things in order."""
    loop, context = _running_loop(), copy_context()
    done: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(loop.create_task(work, context=context))
        tasks[0].add_done_callback(lambda task: _hand_over(task, done))

    def stop() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it could begin
            work.close()
            done.set_exception(asyncio.CancelledError())

    try:
        loop.call_soon_threadsafe(start)
        return done.result()
    except BaseException:
        if not done.done():
            loop.call_soon_threadsafe(stop)
            with suppress(BaseException):
                done.result()
        raise


def _hand_over(task: "asyncio.Task[T]", done: "Future[T]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop for the process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="minutebook", daemon=True).start()
        return _loop


class Client(Protocol):
    """What all official async clients have."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


class Clients(Generic[C]):
    """Makes a client the first time one is asked for in an event loop; one that was given serves all."""

    def __init__(self, make: Callable[[], C], given: C | None) -> None:
        self._make = make
        self._given = given
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, C] = WeakKeyDictionary()

    def here(self) -> C:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    async def close(self) -> None:
        """Close the one that was made in this event loop; one that was given is its owner's to close."""
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made.close()
