"""Waiting for async code from code that is not.

One event loop in a thread of its own serves every such wait of the process, so that a client's open connections are of
use to the next call, and code that already runs in an event loop (a notebook) can wait too.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

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
