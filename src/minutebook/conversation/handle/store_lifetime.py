"""The store that a conversation opens itself: it is closed when nothing uses it any more, also without a call of `close`."""

import _thread
import asyncio
import weakref
from pathlib import Path

from minutebook.store.backend import Backend
from minutebook.store.base import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.store.url import open_store


class _Lifetime:
    """An object that a store and its copies for other tenants refer to. When it is collected, the backend is closed."""

    def __init__(self, backend: Backend) -> None:
        self.finalizer = weakref.finalize(self, _close, backend)
        self.finalizer.atexit = False


def open_own_store(url: str | Path) -> ConversationStore:
    """Open a store that is closed when it is garbage-collected, so that its threads do not run until the program ends."""
    store = open_store(url)
    if not isinstance(store, MemoryStore):  # it has no thread
        vars(store)["_lifetime"] = _Lifetime(store.backend)  # copied with the store
    return store


async def close_own_store(store: ConversationStore) -> None:
    """Close a store that `open_own_store` has opened."""
    lifetime: _Lifetime | None = vars(store).get("_lifetime")
    if lifetime is not None:
        lifetime.finalizer.detach()
    await store.close()


def _close(backend: Backend) -> None:
    # The garbage collector may call this anywhere, so it must not wait for a lock: `threading.Thread.start` would.
    _thread.start_new_thread(asyncio.run, (backend.close(),))
