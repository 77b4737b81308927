"""An event loop in a thread of its own.

A connection belongs to one event loop, and a handle may be used from any. So one loop looks after all connections, and
whoever wants something asks it and waits.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from minutebook.errors import StoreUnavailable

T = TypeVar("T")


class Loop:
    """Carries out coroutines for callers in any thread and loop; the thread is started by the first of them."""

    def __init__(self, store: str) -> None:
        self._store = store
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
            if self._loop is None:
                self._loop = asyncio.SelectorEventLoop()  # the only kind that the driver takes on every system
                self._thread = threading.Thread(target=_run, args=(self._loop,), name=self._store, daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return await asyncio.wrap_future(future)

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


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
