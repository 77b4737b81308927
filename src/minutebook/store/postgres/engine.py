"""What all handles on one database share: its connections, the groups of appends, and the indexing when all is quiet."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import MinutebookError
from minutebook.store.per_loop import Loop
from minutebook.store.postgres.append import Due, Groups, PendingAppend
from minutebook.store.postgres.connection import READING, WRITING, Connections, Work
from minutebook.store.postgres.quick_append import Lane
from minutebook.store.postgres.search import SMALL_STEP, catch_up, is_behind

T = TypeVar("T")
IDLE_SECONDS: Final = 0.5
"""How long to wait for a moment in which nobody appends anything, to index what was appended."""
LANES: Final = 2
"""How many connections of its own a loop appends with. While the server writes what came through one of them, the loop
prepares what goes through another; a conversation has one lane, so its appends stay in their order."""


class Engine:
    """Methods without an underscore may be called from any thread and loop; the others run in the loop of their own."""

    def __init__(self, url: str, connections: int, patience_seconds: float, due: Due | None) -> None:
        self._connections = Connections(url, connections, patience_seconds, queue=due is not None)
        self.store = self._connections.store
        self._groups = Groups(self._connections, due)
        self._loop = Loop(self.store)
        self._lanes: dict[asyncio.AbstractEventLoop, tuple[Lane, ...]] = {}
        self._is_quick = due is None
        """Whether appends may be tried the quick way, which knows nothing of jobs."""
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
        tenant = pending.tenant
        if self._is_quick and not self._loop.is_closed:
            lane = self._lane(tenant, pending.conversation)
            version = await lane.append(pending) if lane.takes(pending) else None
            if version is not None:
                if tenant not in self._unindexed:
                    self._loop.soon(self._note, tenant)
                return version
        return await self._loop.call(self._append(pending))

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
        self._is_quick = False
        while self._lanes:
            loop, lanes = self._lanes.popitem()
            for lane in lanes:
                if loop is asyncio.get_running_loop():
                    await lane.finish()
                elif loop.is_running():
                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(lane.finish(), loop))
                else:
                    lane.abandon()
        await self._loop.close(self._close())

    async def _start(self) -> None:
        await self._connections.start()

    def _lane(self, tenant: str, conversation: str) -> Lane:
        """The lane of this loop for a conversation; one that is not used takes no connection."""
        loop = asyncio.get_running_loop()
        lanes = self._lanes.get(loop)
        if lanes is None:
            self._leave_closed_loops()
            reach = (self._connections.url, self.store, self._connections.patience_seconds, self._groups.known)
            lanes = self._lanes[loop] = tuple(Lane(*reach) for _ in range(LANES))
        return lanes[hash((tenant, conversation)) % LANES]

    def _leave_closed_loops(self) -> None:
        for old in [one for one in self._lanes if one.is_closed()]:
            for lane in self._lanes.pop(old):
                lane.abandon()

    async def _append(self, pending: PendingAppend) -> int:
        version = await self._groups.append(pending)
        self._note(pending.tenant)
        return version

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
        return self._groups.is_idle and all(lane.is_idle for lanes in list(self._lanes.values()) for lane in lanes)

    async def _close(self) -> None:
        await self._groups.finish()
        if self._indexer is not None:
            self._indexer.cancel()
            with suppress(asyncio.CancelledError):
                await self._indexer
        await self._connections.close()


async def _a_little(work: Work) -> bool:
    return await catch_up(work, SMALL_STEP, whole=True)
