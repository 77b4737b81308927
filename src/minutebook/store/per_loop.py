"""An event loop in a thread of its own, for callers of any thread and colour.

A connection belongs to one event loop, and a handle may be used from any. So one loop looks after all connections, and
whoever wants something asks it and waits: in async code with `Loop.call`, in other code with `Loop.wait`.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from minutebook.errors import StoreUnavailable

T = TypeVar("T")


class Loop:
    """Carries out coroutines for callers in any thread and loop; the thread is started by the first of them."""

    def __init__(
        self,
        store: str,
        make: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,  # what the driver takes everywhere
    ) -> None:
        self._store, self._make = store, make
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have something done by the loop, and wait for it."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise StoreUnavailable(self._store, "is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._start())
        return await asyncio.wrap_future(future)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have something done by the loop, and block until it is done.

        Interrupted (Ctrl-C), the coroutine is cancelled, and has the time to leave things in order.
        """
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

    def soon(self, callback: Callable[..., object], *values: object) -> None:
        """Have something called by the loop, if it runs, and do not wait for it."""
        with self._lock:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(callback, *values)

    async def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Take no more, have one last thing done, and end the thread."""
        with self._lock:
            begun, self._closed = not self._closed, True
            loop, thread = self._loop, self._thread
        if not begun or loop is None or thread is None:
            last.close()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(last, loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def _start(self) -> asyncio.AbstractEventLoop:
        """The loop, started if it does not run yet; the caller has the lock."""
        if self._loop is None:
            self._loop = self._make()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._store, daemon=True)
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


run_sync: Final = Loop("minutebook", asyncio.new_event_loop).wait
"""The result of a coroutine, for code that is not async.

One loop serves every such wait of the process, so that a client's open connections are of use to the next call, and code
that already runs in an event loop (a notebook) can wait too.
"""
