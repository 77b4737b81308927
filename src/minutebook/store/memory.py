"""Conversations in memory: the SQLite store on an in-memory database, in the caller's thread."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now
from minutebook.store.search import search_mode
from minutebook.store.sqlite.commit import WriteConnection
from minutebook.store.sqlite.connection import map_errors, migrations
from minutebook.store.sqlite.settings import SqliteSettings
from minutebook.store.sqlite.store import SqliteBackend, SqliteEngine

T = TypeVar("T")


class MemoryEngine(SqliteEngine):
    """One connection, guarded by a lock. Every write has its own transaction."""

    def __init__(self, search_mode: str | None = None) -> None:
        self.url = "memory:"
        self._lock = threading.RLock()
        self._db = apsw.Connection(":memory:")
        for migration in migrations():
            self._db.execute(migration.script)
        self.settings = SqliteSettings(self.url, search_mode)
        self.settings.check(self._db)
        self._closed = False

    async def start(self) -> None:
        self._require_open()

    @property
    def waiting_writes(self) -> int:
        return 0

    async def write(
        self,
        work: Callable[[WriteConnection], T],
        *,
        cache_safe: bool = False,  # noqa: ARG002 - each write has new caches
        exclusive: bool = False,
        no_fsync: bool = False,  # noqa: ARG002 - there is no disk
        inline_ok: bool = False,  # noqa: ARG002 - always in the caller's thread
    ) -> T:
        with self._lock, map_errors(self.url):
            self._require_open()
            writable = WriteConnection(self._db)
            if exclusive:
                return work(writable)
            with self._db:
                result = work(writable)
                writable.flush()
            return result

    async def read(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        inline_work: Callable[[apsw.Connection], T] | None = None,  # noqa: ARG002 - always in the caller's thread
    ) -> T:
        with self._lock, map_errors(self.url):
            self._require_open()
            return work(self._db)

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._db.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.url, "is closed")


class MemoryStore(ConversationStore):
    """Stores conversations for the life of the object: for tests and for services that need no persistence."""

    def __init__(
        self,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        expire_after: timedelta | None = None,
        search: bool | str | None = None,
    ) -> None:
        self._engine = MemoryEngine(search_mode(search))
        super().__init__(SqliteBackend(self._engine, tenant=tenant, clock=clock), expire_after=expire_after)
