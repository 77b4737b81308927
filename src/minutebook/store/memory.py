"""Conversations in memory: the SQLite store on a database that no file holds, in the thread of whoever calls it."""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now
from minutebook.store.sqlite.commit import Unit
from minutebook.store.sqlite.connection import errors_of, migrations
from minutebook.store.sqlite.store import Engine, SqliteBackend

T = TypeVar("T")


class MemoryEngine(Engine):
    """One connection, under a lock; every write is a transaction of its own."""

    def __init__(self) -> None:
        self.url = "memory:"
        self._lock = threading.RLock()
        self._db = apsw.Connection(":memory:")
        for _, script in migrations():
            self._db.execute(script)
        self._closed = False

    async def start(self) -> None:
        self._require_open()

    async def write(
        self,
        work: Callable[[Unit], T],
        *,
        keeps: bool = False,  # noqa: ARG002 - nothing is kept between two of them
        alone: bool = False,
        light: bool = False,  # noqa: ARG002 - there is no disk to wait for
        brief: bool = False,  # noqa: ARG002 - the caller's thread does it in any case
    ) -> T:
        with self._lock, errors_of(self.url):
            self._require_open()
            unit = Unit(self._db)
            if alone:
                return work(unit)
            with self._db:
                result = work(unit)
                unit.flush()
            return result

    async def read(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        brief: Callable[[apsw.Connection], T] | None = None,  # noqa: ARG002 - as above
    ) -> T:
        with self._lock, errors_of(self.url):
            self._require_open()
            return work(self._db)

    def appended(self, count: int) -> None:
        """Leave it to whoever searches."""

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.url, "is closed")


class MemoryStore(ConversationStore):
    """Keeps conversations as long as it lives. For tests, trials, and services that need no more."""

    def __init__(self, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self._engine = MemoryEngine()
        super().__init__(SqliteBackend(self._engine, tenant=tenant, clock=clock))
