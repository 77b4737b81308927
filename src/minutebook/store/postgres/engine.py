"""What all handles on one database share: its connections, the groups of appends, and the indexing when all is quiet."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import MinutebookError, StoreUnavailable
from minutebook.store.per_loop import Loop
from minutebook.store.postgres.append import Due, KnownHeaders, PendingAppend
from minutebook.store.postgres.connection import READING, WRITING, Connections, Work
from minutebook.store.postgres.search import SMALL_STEP, catch_up, is_behind
from minutebook.store.postgres.writer import GroupWriter

T = TypeVar("T")
IDLE_SECONDS: Final = 0.5
"""How long to wait for a moment in which nobody appends anything, to index what was appended."""
WRITERS: Final = 2
"""How many connections of its own a loop appends with. While the server writes what came through one of them, the loop
prepares what goes through another; a conversation has one writer, so its appends stay in their order."""


class Engine:
    """Methods without an underscore may be called from any thread and loop; the others run in the loop of their own."""

    def __init__(self, url: str, connections: int, patience_seconds: float, due: Due | None) -> None:
        self._connections = Connections(url, connections, patience_seconds, queue=due is not None)
        self.store = self._connections.store
        self._loop = Loop(self.store)
        self._known: KnownHeaders = {}
        self._writers: dict[asyncio.AbstractEventLoop, tuple[GroupWriter, ...]] = {}
        self._due = due
        self._unindexed: set[str] = set()
        self._indexer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and bring the database up to date."""
        await self._loop.call(self._start())

    async def read(self, tenant: str, work: Callable[[Work], Awaitable[T]]) -> T:
        """Carry out a reading on a snapshot."""
        return await self._loop.call(self._connections.carry_out(tenant, READING, work))

    async def write(self, tenant: str, work: Callable[[Work], Awaitable[T]]) -> T:
        """Carry out a change, in a transaction of its own."""
        return await self._loop.call(self._connections.carry_out(tenant, WRITING, work))

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group of this tenant's appends."""
        if self._loop.is_closed:
            raise StoreUnavailable(self.store, "is closed")
        version = await self._writer(pending).append(pending)
        if pending.tenant not in self._unindexed:
            self._loop.soon(self._note, pending.tenant)
        return version

    async def catch_up(self, tenant: str) -> None:
        """Have everything indexed that was appended, by whichever process."""
        await self._loop.call(self._catch_up(tenant))

    async def alone(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Carry out something outside of any transaction, as the user of the URL."""
        return await self._loop.call(self._connections.alone(work))

    async def install_queue(self) -> None:
        """Have the tables for background jobs."""
        await self._loop.call(self._connections.install_queue())

    async def close(self) -> None:
        """Finish what was begun and let go of the connections and the thread."""
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
        await self._connections.start()

    def _writer(self, pending: PendingAppend) -> GroupWriter:
        """The writer of this loop for a conversation; one that is not used takes no connection."""
        loop = asyncio.get_running_loop()
        writers = self._writers.get(loop)
        if writers is None:
            for closed in [one for one in self._writers if one.is_closed()]:
                for writer in self._writers.pop(closed):
                    writer.close()
            parts = (self._connections, self._loop, self._known, self._due)
            writers = self._writers[loop] = tuple(GroupWriter(*parts) for _ in range(WRITERS))
        return writers[hash(pending.name) % WRITERS]

    def _note(self, tenant: str) -> None:
        """Note that there is something to index, when there is time for it."""
        self._unindexed.add(tenant)
        if self._indexer is None or self._indexer.done():
            self._indexer = asyncio.get_running_loop().create_task(self._index_when_idle())

    async def _catch_up(self, tenant: str) -> None:
        behind = await self._connections.carry_out(tenant, READING, is_behind)
        while behind:
            behind = await self._connections.carry_out(tenant, WRITING, catch_up)

    async def _index_when_idle(self) -> None:
        """Index what was appended, when nobody is appending. What fails is done by whoever searches."""
        while self._unindexed:
            await asyncio.sleep(IDLE_SECONDS)
            tenants, self._unindexed = self._unindexed, set()
            for tenant in tenants:
                behind = True
                while behind and self._is_idle:
                    begun = time.monotonic()
                    try:
                        behind = await self._connections.carry_out(tenant, WRITING, _a_little)
                    except MinutebookError:
                        break
                    await asyncio.sleep(time.monotonic() - begun)  # half of the time is for others, who may be reading
                else:
                    self._unindexed.update({tenant} if behind else ())

    @property
    def _is_idle(self) -> bool:
        return all(writer.is_idle for writers in list(self._writers.values()) for writer in writers)

    async def _close(self) -> None:
        if self._indexer is not None:
            self._indexer.cancel()
            with suppress(asyncio.CancelledError):
                await self._indexer
        await self._connections.close()


async def _a_little(work: Work) -> bool:
    return await catch_up(work, SMALL_STEP, whole=True)
