"""The state that all stores on one database share: connection pool, append writers, and background indexing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import MinutebookError, StoreUnavailable
from minutebook.store.loop_thread import LoopThread
from minutebook.store.postgres.append import HeaderCache, NeedsJob, PendingAppend
from minutebook.store.postgres.connection import BEGIN_READ, BEGIN_WRITE, ConnectionPool, TenantConnection
from minutebook.store.postgres.search import IDLE_STEP_ENTRIES, has_unindexed_entries, index_next
from minutebook.store.postgres.writer import GroupWriter

T = TypeVar("T")
IDLE_SECONDS: Final = 0.5
"""Pause between checks whether the writers are idle and new entries can be indexed."""
WRITERS_PER_LOOP: Final = 2
"""Number of writers of an event loop, each with its own connection. One prepares a group of appends while the server
writes the group of the other. A conversation always uses the same writer, so its appends stay in order."""


class PostgresEngine:
    """The pool and its event loop, the writers of each event loop, and the indexer.

    Public methods may be called from any thread and event loop. Private coroutines run on the pool's event loop.
    """

    def __init__(self, url: str, connections: int, timeout_seconds: float, needs_job: NeedsJob | None) -> None:
        self._pool = ConnectionPool(url, connections, timeout_seconds, with_jobs=needs_job is not None)
        self.address = self._pool.address
        self._loop = LoopThread(self.address)
        self._header_cache: HeaderCache = {}
        self._writers: dict[asyncio.AbstractEventLoop, tuple[GroupWriter, ...]] = {}
        self._needs_job = needs_job
        self._unindexed_tenants: set[str] = set()
        self._indexer: asyncio.Task[None] | None = None

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
        version = await self._writer_of(pending).append(pending)
        if pending.tenant not in self._unindexed_tenants:
            self._loop.call_soon(self._schedule_indexing, pending.tenant)
        return version

    async def index_all(self, tenant: str) -> None:
        """Index all of the tenant's entries that are not indexed yet, also those of other processes."""
        await self._loop.call(self._index_all(tenant))

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

    def _schedule_indexing(self, tenant: str) -> None:
        self._unindexed_tenants.add(tenant)
        if self._indexer is None or self._indexer.done():
            self._indexer = asyncio.get_running_loop().create_task(self._index_when_idle())

    async def _index_all(self, tenant: str) -> None:
        has_more = await self._pool.run_transaction(tenant, BEGIN_READ, has_unindexed_entries)
        while has_more:
            has_more = await self._pool.run_transaction(tenant, BEGIN_WRITE, index_next)

    async def _index_when_idle(self) -> None:
        """Index new entries while no append is in progress. After an error, the next search indexes the rest."""
        while self._unindexed_tenants:
            await asyncio.sleep(IDLE_SECONDS)
            tenants, self._unindexed_tenants = self._unindexed_tenants, set()
            for tenant in tenants:
                has_more = True
                while has_more and self._is_idle:
                    started = time.monotonic()
                    try:
                        has_more = await self._pool.run_transaction(tenant, BEGIN_WRITE, _index_idle_step)
                    except MinutebookError:
                        break
                    await asyncio.sleep(time.monotonic() - started)  # leaves half of the time to readers
                else:
                    self._unindexed_tenants.update({tenant} if has_more else ())

    @property
    def _is_idle(self) -> bool:
        return all(writer.is_idle for writers in list(self._writers.values()) for writer in writers)

    async def _close(self) -> None:
        if self._indexer is not None:
            self._indexer.cancel()
            with suppress(asyncio.CancelledError):
                await self._indexer
        await self._pool.close()


async def _index_idle_step(conn: TenantConnection) -> bool:
    return await index_next(conn, IDLE_STEP_ENTRIES, full_ranges_only=True)
