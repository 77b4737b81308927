"""Runs coroutines in the caller's own thread, on an event loop that the thread keeps.

That is faster than a switch to the background thread and back. The background loop is still needed for what belongs to
one loop or continues between two calls: connections of a model's client, streams, and the renewal of a lease.
"""

import asyncio
import contextvars
import os
import signal
import threading
import weakref
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from minutebook.store.loop_thread import new_event_loop

T = TypeVar("T")
_THREAD: Final = threading.local()


def run_in_this_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, which must not be running an event loop, and return its result.

    Ctrl-C cancels the coroutine, and is raised after the coroutine has cleaned up.
    """
    thread_loop: _ThreadLoop | None = getattr(_THREAD, "loop", None)
    # A forked process must not share the loop, and functions that run at the exit of the program find it closed.
    if thread_loop is None or thread_loop.process != os.getpid() or thread_loop.loop.is_closed():
        thread_loop = _THREAD.loop = _ThreadLoop()
    loop = thread_loop.loop
    task = loop.create_task(coroutine, context=contextvars.copy_context())
    with _cancel_on_interrupt(task):
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # a signal handler of the program has raised an exception in the loop
                task.cancel()
                with suppress(BaseException):
                    loop.run_until_complete(task)
            raise


class _ThreadLoop:
    """The event loop of one thread. It is closed when the thread ends, and that of the main thread before the program ends."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = new_event_loop()
        finalizer = weakref.finalize(self, _close, self.loop, self.process)
        finalizer.atexit = threading.current_thread() is threading.main_thread()  # others may still use theirs


def _close(loop: asyncio.AbstractEventLoop, process: int) -> None:
    if loop.is_running():  # in a forked process: the copy of a loop that another thread was running
        return
    if process == os.getpid() and (tasks := asyncio.all_tasks(loop)):  # of a store's connections
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()


@contextmanager
def _cancel_on_interrupt(task: "asyncio.Task[Any]") -> Iterator[None]:
    """Cancel the task on Ctrl-C, so that no statement of a transaction is interrupted; raise `KeyboardInterrupt` at the end.

    `asyncio.Runner` does the same but is slower, because `signal.signal` formats its handler, which contains the task. A
    handler that the program has installed is kept.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    is_interrupted = False

    def cancel(_number: int, _frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        task.get_loop().call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if is_interrupted:
            raise KeyboardInterrupt from None
