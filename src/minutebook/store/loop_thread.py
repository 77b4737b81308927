"""An event loop that runs in its own thread, for callers in any thread or event loop.

A connection belongs to one event loop, but a store may be used from any. So one loop has all connections, and callers
submit coroutines to it: async code with `LoopThread.call`, other code with `LoopThread.wait`.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from minutebook.errors import StoreUnavailable

T = TypeVar("T")


def new_event_loop() -> asyncio.SelectorEventLoop:
    """A loop that drivers support on every platform, and that shares no state with forked processes.

    The default selector does: a connection that is closed in the child would be silent in the parent's loop.
    """
    selector = selectors.PollSelector() if hasattr(selectors, "PollSelector") else selectors.SelectSelector()
    return asyncio.SelectorEventLoop(selector)


class LoopThread:
    """Runs coroutines for callers in any thread or event loop. The thread starts with the first coroutine."""

    def __init__(
        self,
        name: str,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        """`name` is the name of the thread, and of the store in errors."""
        self._name, self._loop_factory = name, loop_factory
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and await its result."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise StoreUnavailable(self._name, "is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._start())
        return await asyncio.wrap_future(future)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and block until it is done.

        Ctrl-C cancels the coroutine, and is raised after the coroutine has cleaned up.

        Raises:
            RuntimeError: the caller runs on the loop itself, so it would wait for itself.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("an async tool called a blocking function; await the methods of AsyncConversation there")
        with self._lock:
            loop = self._start()
        tasks: list[asyncio.Task[T]] = []
        done = threading.Event()

        def start() -> None:
            tasks.append(loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda _: done.set())

        def stop() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before `start` was scheduled
                coroutine.close()
                done.set()

        try:
            loop.call_soon_threadsafe(start)
            done.wait()
        except BaseException:
            if not done.is_set():
                loop.call_soon_threadsafe(stop)
                with suppress(BaseException):
                    done.wait()
            raise
        return tasks[0].result()

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self, last_coroutine: Coroutine[Any, Any, None]) -> None:
        """Accept no more coroutines, run a last one, and end the thread."""
        with self._lock:
            was_closed, self._closed = self._closed, True
            loop, thread = self._loop, self._thread
        if was_closed or loop is None or thread is None:
            last_coroutine.close()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(last_coroutine, loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def _start(self) -> asyncio.AbstractEventLoop:
        """Start the loop if necessary, and return it. The caller holds the lock."""
        if self._loop is None or self._thread is None or not self._thread.is_alive():  # after a fork it is not
            self._loop = self._loop_factory()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _run_until_stopped(loop):
            pass
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Run the loop; return False if a task raised an exception that stops the loop. The task's caller gets it too."""
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        return False
    return True


run_sync: Final = LoopThread("minutebook", asyncio.new_event_loop).wait
"""Run a coroutine and return its result, for code that is not async.

All calls in the process share one loop, so that the next call can reuse a client's open connections. It also works in code
that already runs in an event loop, such as a notebook.
"""
