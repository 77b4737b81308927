"""Conversations in a PostgreSQL database, for as many processes and machines as want to.

Appends that wait for each other share a transaction; reads are snapshots beside them. Every transaction runs as a role
that owns nothing and says whose rows it may see, so the database itself keeps tenants apart. No session holds any
state, so a pgbouncer in transaction mode may stand in between.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

import psycopg
from psycopg import AsyncConnection, sql

from minutebook.errors import InvalidSetting, StoreUnavailable
from minutebook.store.backend import AppendCommand, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.postgres import connection
from minutebook.store.postgres.append import Due, PendingAppend
from minutebook.store.postgres.connection import NOW
from minutebook.store.postgres.engine import Engine
from minutebook.store.postgres.entries import Kept
from minutebook.store.postgres.search import searched
from minutebook.store.postgres.transaction import PostgresTransaction
from minutebook.store.rules import now
from minutebook.store.sql import documents, headers
from minutebook.store.sql.backend import SqlBackend, Work
from minutebook.store.sql.transaction import SqlTransaction
from minutebook.store.types import Hit, Page

T = TypeVar("T")
_ALSO: Final = ("conversation", "payload", "fold", "pin", "answer", "word", "lease")
"""The tables that an erasure reaches besides the part of the entries that is noted."""
_MARKS: Final = "SELECT relation, times, relation::regclass::text AS name FROM minutebook.removed"
_DOCUMENTS: Final = "SELECT pg_relation_size('minutebook.document') > 0"
_QUEUE: Final = "SELECT to_regclass('minutebook_jobs.procrastinate_jobs') IS NOT NULL"


class PostgresBackend(SqlBackend):
    """One tenant's rows in a PostgreSQL database."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    async def open(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def vacuum(self) -> None:
        """Write anew the tables that something was removed from, so that no byte of it is left in them.

        It keeps others out of each table while that is written, and is for the owner of the tables to do. The server
        keeps its write-ahead log for a while longer: it is renewed here too if this user may do that.

        Raises:
            StoreUnavailable: this user is not the owner of the tables.
        """
        await self.write(self._sweep)

        async def work(db: AsyncConnection) -> None:
            await _rewrite_tables(db, self._engine.store)

        await self._engine.alone(work)

    async def append(self, command: AppendCommand) -> int:
        """It returns once the database has committed the entries."""
        kept = [Kept(one) for one in command.packed]
        return await self._engine.append(PendingAppend(self.tenant, command, kept, self.now()))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        await self._engine.catch_up(self.tenant)

        async def run(work: connection.Work) -> Page[Hit]:
            tx = PostgresTransaction(work)
            within = None if query.conversation is None else await headers.get(tx, query.conversation)
            return await searched(work, query, within)

        return await self._engine.read(self.tenant, run)

    async def read(self, work: Work[T], *, brief: bool = False) -> T:  # noqa: ARG002 - the server does the work
        return await self._engine.read(self.tenant, lambda unit: work(PostgresTransaction(unit)))

    async def write(
        self,
        work: Work[T],
        *,
        brief: bool = False,  # noqa: ARG002 - as above
        keeps_headers: bool = False,  # noqa: ARG002 - headers are looked up under a lock
        durable: bool = True,  # noqa: ARG002 - a commit always is
    ) -> T:
        return await self._engine.write(self.tenant, lambda unit: work(PostgresTransaction(unit)))

    async def _sweep(self, tx: SqlTransaction) -> None:
        """Remove what has expired."""
        await documents.sweep(tx, self.now())
        await tx.put(f"DELETE FROM lease WHERE until <= ({NOW})")  # noqa: S608 - a constant of ours


class PostgresStore(ConversationStore):
    """Keeps conversations in a PostgreSQL database.

    `connections` is how many it opens at most, besides one for each event loop that appends; `patience_seconds` how long
    it waits for a connection, for a lock, or for a database that is away. `due` says which conversations an append queues a background job for: see
    `minutebook.conversation.jobs`.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        connections: int = 8,
        patience_seconds: float = 10.0,
        due: Due | None = None,
    ) -> None:
        if connections < 1:
            raise InvalidSetting("connections", connections, "1 or more")
        if patience_seconds <= 0:
            raise InvalidSetting("patience_seconds", patience_seconds, "more than 0")
        self.url = url
        self._engine = Engine(url, connections, patience_seconds, due)
        super().__init__(PostgresBackend(self._engine, tenant=tenant, clock=clock))

    async def ready_for_jobs(self) -> None:
        """Have the tables of the queue of background jobs, for whoever works on them."""
        await self._engine.install_queue()


async def _rewrite_tables(db: AsyncConnection, store: str) -> None:
    """Write anew what rows were removed from since the last time; nothing, if there were none.

    Documents come and go all the time, and are not noted: their table is written anew whenever there is something in it.
    A mark is taken away only if nothing was removed again in the meantime: an erasure during the work is for the next.
    """
    try:
        marks = await (await db.execute(_MARKS)).fetchall()
        documents = (await (await db.execute(_DOCUMENTS)).fetchone() or (None,))[0]
        if not marks and not documents:
            return
        relations = {name for _, _, name in marks} | {f"minutebook.{name}" for name in (_ALSO if marks else ())}
        if documents:
            relations.add("minutebook.document")
        if marks and (await (await db.execute(_QUEUE)).fetchone() or (None,))[0]:
            relations.add("minutebook_jobs.procrastinate_jobs")
        for relation in sorted(relations):
            await db.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(*relation.split("."))))
        for relation, times, _ in marks:
            gone = "DELETE FROM minutebook.removed WHERE relation = %s AND times = %s"
            await db.execute(gone, (relation, times))
    except psycopg.errors.InsufficientPrivilege as problem:
        raise StoreUnavailable(store, "may only be vacuumed by the owner of its tables") from problem
    await _renew_log(db)


async def _renew_log(db: AsyncConnection) -> None:
    """Begin a new write-ahead log, so that the server can do away with the old one; it needs a role of its own."""
    for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
        try:
            await db.execute(statement)
        except psycopg.errors.InsufficientPrivilege:  # the server does it by itself, later
            return
