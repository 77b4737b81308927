"""The state that all stores on one database share: connection pool and append writers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import StoreUnavailable
from minutebook.store.loop_thread import LoopThread
from minutebook.store.postgres.append import HeaderCache, NeedsJob, PendingAppend
from minutebook.store.postgres.connection import BEGIN_READ, BEGIN_WRITE, ConnectionPool, TenantConnection
from minutebook.store.postgres.writer import GroupWriter
from minutebook.store.search import WORDS

T = TypeVar("T")
WRITERS_PER_LOOP: Final = 2
"""Number of writers of an event loop, each with its own connection. One prepares a group of appends while the server
writes the group of the other. A conversation always uses the same writer, so its appends stay in order."""


class PostgresEngine:
    """The pool and its event loop, and the writers of each event loop.

    Public methods may be called from any thread and event loop. Private coroutines run on the pool's event loop.
    """

    def __init__(
        self,
        url: str,
        connections: int,
        timeout_seconds: float,
        needs_job: NeedsJob | None,
        search_mode: str | None = None,
    ) -> None:
        self._pool = ConnectionPool(
            url, connections, timeout_seconds, with_jobs=needs_job is not None, search_mode=search_mode
        )
        self.address = self._pool.address
        self._loop = LoopThread(self.address)
        self._header_cache: HeaderCache = {}
        self._writers: dict[asyncio.AbstractEventLoop, tuple[GroupWriter, ...]] = {}
        self._needs_job = needs_job

    async def start(self) -> None:
        """Connect, and migrate the database."""
        await self._loop.call(self._start())

    async def read(self, tenant: str, work: Callable[[TenantConnection], Awaitable[T]]) -> T:
        """Run `work` in a read-only transaction on a snapshot."""
        return await self._loop.call(self._pool.run_transaction(tenant, BEGIN_READ, work))

    async def write(self, tenant: str, work: Callable[[TenantConnection], Awaitable[T]]) -> T:
        """Run `work` in a transaction that may write."""
        return await self._loop.call(self._pool.run_transaction(tenant, BEGIN_WRITE, work))

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group of the tenant; return the new version."""
        if self._loop.is_closed:
            raise StoreUnavailable(self.address, "is closed")
        return await self._writer_of(pending).append(pending)

    def use_keys(self, key_ids: Sequence[str]) -> None:
        """Expect a database that is encrypted with one of these master keys."""
        self._pool.settings.key_ids = key_ids

    async def search_mode(self) -> str:
        """The database's setting `search`."""
        if self._pool.search_mode is None:
            await self.start()
        return self._pool.search_mode or WORDS

    async def run_on_new_connection(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Call `work` with a new connection: outside any transaction, as the database user that the URL names."""
        return await self._loop.call(self._pool.run_on_new_connection(work))

    async def create_job_tables(self) -> None:
        """Create the tables of the job queue, if they do not exist."""
        await self._loop.call(self._pool.create_job_tables())

    async def close(self) -> None:
        """Finish the appends, then close the connections and stop the thread."""
        while self._writers:
            loop, writers = self._writers.popitem()
            for writer in writers:
                if loop is asyncio.get_running_loop():
                    await writer.finish()
                elif loop.is_running():
                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(writer.finish(), loop))
                else:
                    writer.close()
        await self._loop.close(self._close())

    async def _start(self) -> None:
        await self._pool.start()

    def _writer_of(self, pending: PendingAppend) -> GroupWriter:
        """The conversation's writer on the running event loop. A writer connects when it is first used."""
        loop = asyncio.get_running_loop()
        writers = self._writers.get(loop)
        if writers is None:
            for closed_loop in [other for other in self._writers if other.is_closed()]:
                for writer in self._writers.pop(closed_loop):
                    writer.close()
            writers = self._writers[loop] = tuple(
                GroupWriter(self._pool, self._loop, self._header_cache, self._needs_job)
                for _ in range(WRITERS_PER_LOOP)
            )
        return writers[hash(pending.name) % WRITERS_PER_LOOP]

    async def _close(self) -> None:
        await self._pool.close()
