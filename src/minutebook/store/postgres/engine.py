"""The state that all stores on one database share: connections, append writers and expected settings."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import StoreUnavailable
from minutebook.store.loop_thread import LoopThread
from minutebook.store.postgres.append import HeaderCache, NeedsJob, PendingAppend
from minutebook.store.postgres.connection import BEGIN_READ, BEGIN_WRITE, ConnectionPool, TenantConnection, address_of
from minutebook.store.postgres.settings import PostgresSettings
from minutebook.store.postgres.writer import MAX_CACHED_HEADERS, GroupWriter
from minutebook.store.process_fork import ForkAware
from minutebook.store.types import ConversationHeader, StoreStatistics

T = TypeVar("T")
WRITERS_PER_LOOP: Final = 2
"""Number of writers of an event loop, each with its own connection. One prepares a group of appends while the server
writes the group of the other. A conversation always uses the same writer, so its appends stay in order."""


class LoopConnections(NamedTuple):
    """The connections of one event loop."""

    pool: ConnectionPool
    writers: tuple[GroupWriter, ...]

    async def close(self) -> None:
        """Finish the appends and close the connections."""
        for writer in self.writers:
            await writer.finish()
        await self.pool.close()

    def abandon(self) -> None:
        """Close the connections. The event loop need not be running."""
        for writer in self.writers:
            writer.close()
        self.pool.abandon()


class PostgresEngine(ForkAware):
    """The connections of each event loop.

    Public methods may be called from any thread and event loop. Each loop has its own connections, because a switch to
    another loop takes longer than most operations. Operations of callers on a loop that psycopg does not support run on a
    separate loop.
    """

    def __init__(
        self,
        url: str,
        connections: int,
        timeout_seconds: float,
        needs_job: NeedsJob | None,
        search_mode: str | None = None,
        role: str | None = None,
    ) -> None:
        self.address = address_of(url)
        self.settings = PostgresSettings(self.address, search_mode, role)
        self._new_pool = partial(
            ConnectionPool, url, connections, timeout_seconds, self.settings, with_jobs=needs_job is not None
        )
        self.lock_milliseconds = int(1000 * timeout_seconds)
        self._loop = LoopThread(self.address)
        self._header_cache: HeaderCache = {}
        self.last_document_sweep: dict[tuple[str, str], datetime] = {}
        """Tenant and kind → when expired documents were last removed."""
        self._connections: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._needs_job = needs_job
        super().__init__()

    def after_fork_in_child(self) -> None:
        self._connections = {}
        if not self._loop.is_closed:
            self._loop = LoopThread(self.address)

    async def start(self) -> None:
        """Connect, and migrate the database."""
        await self._run(lambda connections: connections.pool.start())

    async def read(self, tenant: str, work: Callable[[TenantConnection], Awaitable[T]]) -> T:
        """Run `work` in a read-only transaction on a snapshot."""
        return await self._run(lambda connections: connections.pool.run_transaction(tenant, BEGIN_READ, work))

    async def write(self, tenant: str, work: Callable[[TenantConnection], Awaitable[T]]) -> T:
        """Run `work` in a transaction that may write."""
        return await self._run(lambda connections: connections.pool.run_transaction(tenant, BEGIN_WRITE, work))

    async def call(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work`, which calls one server function, on a connection without a transaction."""
        return await self._run(lambda connections: connections.pool.run(work))

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group of the tenant; return the new version."""
        return await self._run(
            lambda connections: connections.writers[hash(pending.name) % WRITERS_PER_LOOP].append(pending)
        )

    async def search_mode(self) -> str:
        """The database's setting `search`."""
        return (await self._run(lambda connections: connections.pool.read_settings())).search_mode

    def cache_header(self, number: int, header: ConversationHeader) -> None:
        """Remember a header that was just read, so that the next append need not read it."""
        if len(self._header_cache) > MAX_CACHED_HEADERS:
            self._header_cache.clear()
        self._header_cache[header.tenant, header.id] = (number, header)

    async def run_on_new_connection(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Call `work` with a new connection: outside any transaction, as the database user that the URL names."""
        return await self._run(lambda connections: connections.pool.run_on_new_connection(work))

    async def create_job_tables(self) -> None:
        """Create the tables of the job queue, if they do not exist."""
        await self._run(lambda connections: connections.pool.create_job_tables())

    async def statistics(self) -> StoreStatistics:
        """Figures of all event loops, and the length of the job queue if this process queues jobs."""
        loops = list(self._connections.values())
        figures = [connections.pool.statistics() for connections in loops]
        names = ("pool_size", "pool_available", "requests_waiting", "requests_num", "requests_wait_ms")
        size, idle, waiting, requests, wait_ms = (sum(pool.get(name, 0) for pool in figures) for name in names)
        return StoreStatistics(
            sum(writer.waiting for connections in loops for writer in connections.writers),
            *(size, idle, waiting, requests, wait_ms / 1000),
            None if self._needs_job is None else await self.call(_count_jobs),
        )

    async def close(self) -> None:
        """Finish the appends, then close the connections and stop the thread."""
        await self._loop.close(self._close_own())
        while self._connections:
            loop, connections = self._connections.popitem()
            if loop is asyncio.get_running_loop():
                await connections.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connections.close(), loop))
            else:
                connections.abandon()

    async def _run(self, work: Callable[[LoopConnections], Coroutine[Any, Any, T]]) -> T:
        """Run `work` with the connections of the running event loop, if psycopg supports it."""
        if self._loop.is_closed:
            raise StoreUnavailable(self.address, "is closed")
        if isinstance(asyncio.get_running_loop(), getattr(asyncio, "ProactorEventLoop", ())):
            return await self._loop.call(self._run(work))
        return await work(self._loop_connections())

    def _loop_connections(self) -> LoopConnections:
        """The connections of the running event loop. They are opened when they are first used."""
        loop = asyncio.get_running_loop()
        connections = self._connections.get(loop)
        if connections is None:
            for other_loop, unused_connections in list(self._connections.items()):
                if other_loop.is_closed() and self._connections.pop(other_loop, None) is not None:
                    unused_connections.abandon()
            pool = self._new_pool()
            writers = tuple(GroupWriter(pool, self._header_cache, self._needs_job) for _ in range(WRITERS_PER_LOOP))
            connections = self._connections[loop] = LoopConnections(pool, writers)
        return connections

    async def _close_own(self) -> None:
        """Close the connections of the running event loop."""
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()


async def _count_jobs(db: AsyncConnection) -> int:
    row = await (await db.execute("SELECT minutebook_jobs.waiting()")).fetchone()
    return int(row[0]) if row else 0
