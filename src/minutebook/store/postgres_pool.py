"""A few connections to one database, and transactions on them. All of it belongs to one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from minutebook.errors import StoreUnavailable
from minutebook.store.postgres_errors import AGAIN, address_of, errors_of
from minutebook.store.postgres_open import SETTINGS, connected, migrate
from minutebook.store.postgres_rows import Again
from minutebook.store.postgres_work import Work, working

T = TypeVar("T")
TRIES: Final = 10
"""How often a transaction that met others is carried out again."""


class Connections:
    """Opened by the first transaction, or by `start`."""

    def __init__(self, url: str, most: int, patience_seconds: float, *, queue: bool = False) -> None:
        self.url = url
        self.store = address_of(url)
        self.patience_seconds = patience_seconds
        self._most = most
        self._queue = queue
        """Whether appends queue jobs, so that the tables for these must be there."""
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening = asyncio.Lock()

    async def start(self) -> AsyncConnectionPool[AsyncConnection]:
        """Connect, and bring the database up to date, once."""
        async with self._opening:
            if self._pool is None:
                await self._alone(self._prepare)
                self._pool = AsyncConnectionPool(
                    self.url,
                    min_size=0,
                    max_size=self._most,
                    open=False,
                    check=_require_open,
                    timeout=self.patience_seconds,
                    reconnect_timeout=self.patience_seconds,
                    kwargs={**SETTINGS, "connect_timeout": max(2, int(self.patience_seconds))},
                )
                await self._pool.open()
        return self._pool

    async def _prepare(self, db: AsyncConnection) -> None:
        await migrate(db, self.store)
        if self._queue:
            await _install(db)

    async def carry_out(
        self, tenant: str, kind: str, work: Callable[[Work], Awaitable[T]], lock_seconds: float | None = None
    ) -> T:
        """Carry out something in one transaction, and again if it met others through no fault of its own."""
        pool = await self.start()
        patience = int(1000 * (self.patience_seconds if lock_seconds is None else lock_seconds))
        with errors_of(self.store):
            for _ in range(TRIES):
                try:
                    async with pool.connection() as db, working(db, tenant, kind, patience) as unit:
                        return await work(unit)
                except (Again, *AGAIN):
                    continue
        raise StoreUnavailable(self.store, "is too busy: others went on changing the same conversation")

    async def install_queue(self) -> None:
        """Have the tables for jobs, too."""
        await self.alone(_install)

    async def alone(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Carry out something outside of any transaction and as the user of the URL, on a connection of its own."""
        await self.start()
        return await self._alone(work)

    async def _alone(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        db = await connected(self.url, self.store, self.patience_seconds)
        try:
            with errors_of(self.store):
                return await work(db)
        finally:
            await db.close()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


async def _install(db: AsyncConnection) -> None:
    from minutebook.store.postgres_jobs import install  # a queue is only loaded where one is used

    await install(db)


async def _require_open(db: AsyncConnection) -> None:
    """Raises if the server has hung up while nobody looked; it asks nobody, so it takes no time."""
    db.pgconn.consume_input()
