"""Conversations in a PostgreSQL database, shared by any number of processes and machines.

Concurrent appends share a transaction; reads use snapshots and do not block writes. Every transaction runs as a role that
owns nothing, with row-level security by tenant, so the database itself separates tenants. No state is kept in sessions,
so the store works through pgbouncer in transaction mode.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import psycopg
from psycopg import AsyncConnection, sql

from minutebook.errors import InvalidSetting, StoreRejected
from minutebook.store.backend import AppendCommand, LoadQuery
from minutebook.store.base import ConversationStore
from minutebook.store.postgres.append import NeedsJob, PendingAppend
from minutebook.store.postgres.connection import NOW, TenantConnection
from minutebook.store.postgres.engine import PostgresEngine
from minutebook.store.postgres.entries import StoredPieces
from minutebook.store.postgres.leases import acquire, release, renew
from minutebook.store.postgres.load import load_rows, loaded_conversation
from minutebook.store.postgres.settings import require_role_name, split_options
from minutebook.store.postgres.transaction import PostgresTransaction
from minutebook.store.rules import now
from minutebook.store.search import message_tokens, search_mode
from minutebook.store.sql import documents
from minutebook.store.sql.backend import SqlBackend, TransactionFunction
from minutebook.store.sql.transaction import SqlTransaction
from minutebook.store.types import LEASE_GRACE, Lease, LeasedConversation, LoadedConversation, StoreStatistics

T = TypeVar("T")
MAX_CACHED_SWEEPS: Final = 4096
_MAX_INLINE_BYTES: Final = 1024 * 1024
"""Longer texts are compressed and indexed in a thread, so that the event loop can serve others meanwhile."""
_TABLES: Final = ("conversation", "payload", "fold", "pin", "idempotency_key", "word", "lease")
"""Tables that an erasure deletes from, besides the partitions of `entry` that are marked in `removed`."""
_SELECT_REMOVED: Final = "SELECT number, relation::regclass::text AS name FROM minutebook.removed"
_HAS_DOCUMENTS: Final = "SELECT pg_relation_size('minutebook.document') > 0"
_HAS_JOBS: Final = "SELECT to_regclass('minutebook_jobs.procrastinate_jobs') IS NOT NULL"


class PostgresBackend(SqlBackend):
    """One tenant's rows in a PostgreSQL database."""

    def __init__(self, engine: PostgresEngine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    def use_keys(self, key_ids: Sequence[str]) -> None:
        self._engine.settings.key_ids = key_ids

    async def open(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def statistics(self) -> StoreStatistics:
        return await self._engine.statistics()

    async def vacuum(self, *, rewrite: bool = False) -> None:
        """Free the space of deleted rows, or rewrite the tables that rows were deleted from.

        Each table is locked while it is rewritten. After that, the server starts a new file of the write-ahead log and
        removes the old one, if this user may request that; otherwise the server removes it later.

        Raises:
            StoreRejected: this user does not own the tables.
        """
        await self.write(self._delete_expired)

        async def work(db: AsyncConnection) -> None:
            await _vacuum_tables(db, self._engine.address, rewrite=rewrite)

        await self._engine.run_on_new_connection(work)

    async def append(self, command: AppendCommand) -> int:
        """Append the entries; return the new version after the commit."""
        mode = await self._engine.search_mode()

        def pending() -> PendingAppend:
            stored_pieces = [StoredPieces(entry) for entry in command.packed]
            pairs = zip(command.packed, command.messages, strict=True)
            tokens = [message_tokens(message, entry.role, mode) for entry, message in pairs]
            return PendingAppend(self.tenant, command, stored_pieces, self.now(), tokens)

        is_large = sum(len(entry.text or b"") for entry in command.packed) > _MAX_INLINE_BYTES
        return await self._engine.append(await asyncio.to_thread(pending) if is_large else pending())

    async def load(self, query: LoadQuery) -> LoadedConversation:
        return self._decode_and_cache(await self._engine.call(lambda db: load_rows(db, self.tenant, query)), query)

    async def acquire_and_load(self, holder: str, seconds: float, query: LoadQuery) -> LeasedConversation:
        lease, rows = await self._acquire(holder, seconds, query, loads=True)
        return LeasedConversation(lease, self._decode_and_cache(rows, query) if rows else None)

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return (await self._acquire(holder, seconds, LoadQuery(conversation), loads=False))[0]

    async def _acquire(
        self, holder: str, seconds: float, query: LoadQuery, *, loads: bool
    ) -> tuple[Lease, Sequence[Sequence[bytes]]]:
        lock_milliseconds = self._engine.lock_milliseconds
        return await self._engine.call(
            lambda db: acquire(db, self.tenant, lock_milliseconds, holder, seconds, query, loads=loads)
        )

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease | None]:
        lock_milliseconds = self._engine.lock_milliseconds
        return await self._engine.call(lambda db: renew(db, lock_milliseconds, leases, seconds))

    async def release_lease(self, lease: Lease) -> None:
        lock_milliseconds = self._engine.lock_milliseconds
        await self._engine.call(lambda db: release(db, self.tenant, lock_milliseconds, lease))

    def _decode_and_cache(self, rows: Sequence[Sequence[bytes]], query: LoadQuery) -> LoadedConversation:
        """Decode the loaded part, and cache its header for the next append."""
        number, loaded = loaded_conversation(rows, query)
        self._engine.cache_header(number, loaded.conversation)
        return loaded

    async def read(
        self,
        work: TransactionFunction[T],
        *,
        inline_ok: bool = False,  # noqa: ARG002 - for SQLite only
        single_query: bool = False,
    ) -> T:
        async def run(conn: TenantConnection) -> T:
            conn.commits_each_query = single_query
            return await work(PostgresTransaction(conn))

        return await self._engine.read(self.tenant, run)

    async def write(
        self,
        work: TransactionFunction[T],
        *,
        inline_ok: bool = False,  # noqa: ARG002 - for SQLite only
        cache_safe: bool = False,  # noqa: ARG002 - headers are read under a lock
        no_fsync: bool = False,  # noqa: ARG002 - every commit is durable
    ) -> T:
        sweeps = self._engine.last_document_sweep
        if len(sweeps) > MAX_CACHED_SWEEPS:
            sweeps.clear()
        return await self._engine.write(self.tenant, lambda conn: work(PostgresTransaction(conn, sweeps)))

    async def _delete_expired(self, tx: SqlTransaction) -> None:
        await documents.sweep(tx, self.now())
        grace = LEASE_GRACE // timedelta(microseconds=1)
        await tx.execute(f"DELETE FROM lease WHERE until <= ({NOW}) - ?", grace)  # noqa: S608 - a constant


class PostgresStore(ConversationStore):
    """Stores conversations in a PostgreSQL database.

    `connections` is the maximum size of the pool of each event loop, 8 by default. Appends open up to two more. `role` is
    the role that transactions run as; it is chosen when the tables are created, and is `minutebook_app` by default. Both can
    be in the URL: `?connections=20&role=chat_app`. `timeout_seconds` is the maximum time to wait for a connection or a lock.
    `needs_job` decides, given the new header, whether an append enqueues a background job for the conversation: see
    `minutebook.conversation.jobs`.

    Raises:
        InvalidSetting: a setting or the URL is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        expire_after: timedelta | None = None,
        connections: int | None = None,
        timeout_seconds: float = 10.0,
        needs_job: NeedsJob | None = None,
        search: bool | str | None = None,
        role: str | None = None,
    ) -> None:
        if timeout_seconds <= 0:
            raise InvalidSetting("timeout_seconds", timeout_seconds, "more than 0")
        self.url, options = split_options(url)
        connections = options.connections if connections is None else connections
        if connections < 1:
            raise InvalidSetting("connections", connections, "1 or more")
        self.role = options.role if role is None else require_role_name(role)
        """The role of transactions if the database is new; None for the default."""
        self._engine = PostgresEngine(self.url, connections, timeout_seconds, needs_job, search_mode(search), self.role)
        super().__init__(PostgresBackend(self._engine, tenant=tenant, clock=clock), expire_after=expire_after)

    async def create_job_tables(self) -> None:
        """Create the tables of the job queue, if they do not exist."""
        await self._engine.create_job_tables()


async def _vacuum_tables(db: AsyncConnection, address: str, *, rewrite: bool) -> None:
    """Vacuum or rewrite the tables that rows were deleted from since they were last rewritten.

    Deletions of documents are frequent and not recorded, so their table is included if it is not empty. A rewrite deletes
    only the marks that it has read: an erasure meanwhile is left for the next one.
    """
    options = sql.SQL("FULL, ANALYZE" if rewrite else "ANALYZE")
    try:
        marks = await (await db.execute(_SELECT_REMOVED)).fetchall()
        has_documents = (await (await db.execute(_HAS_DOCUMENTS)).fetchone() or (None,))[0]
        if not marks and not has_documents:
            return
        tables = {name for _, name in marks} | {f"minutebook.{name}" for name in (_TABLES if marks else ())}
        if has_documents:
            tables.add("minutebook.document")
        if marks and (await (await db.execute(_HAS_JOBS)).fetchone() or (None,))[0]:
            tables.add("minutebook_jobs.procrastinate_jobs")
        for table in sorted(tables):
            await db.execute(sql.SQL("VACUUM ({}) {}").format(options, sql.Identifier(*table.split("."))))
        if rewrite:
            unmark = "DELETE FROM minutebook.removed WHERE number = ANY(%s)"
            await db.execute(unmark, ([number for number, _ in marks],))
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreRejected(address, "only the owner of the tables may vacuum them; connect as the owner") from error
    if rewrite:
        await _switch_wal(db)


async def _switch_wal(db: AsyncConnection) -> None:
    """Switch to a new write-ahead log file, so that the server can remove the old one. Needs a privileged role."""
    for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
        try:
            await db.execute(statement)
        except psycopg.errors.InsufficientPrivilege:  # the server removes it later by itself
            return
