"""Conversations in a PostgreSQL database, for as many processes and machines as want to.

Appends that wait for each other share a transaction; reads are snapshots beside them. Every transaction runs as a role
that owns nothing and says whose rows it may see, so the database itself keeps tenants apart. No session holds any
state, so a pgbouncer in transaction mode may stand in between.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from psycopg import AsyncConnection

from minutebook.errors import InvalidSetting
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import microseconds
from minutebook.store.postgres import conversations as postgres_change
from minutebook.store.postgres import documents as postgres_documents
from minutebook.store.postgres import folds as postgres_folds
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres import leases as postgres_leases
from minutebook.store.postgres import load as postgres_trim
from minutebook.store.postgres.append import Due, PendingAppend
from minutebook.store.postgres.connection import Work
from minutebook.store.postgres.engine import Engine
from minutebook.store.postgres.entries import Kept
from minutebook.store.postgres.headers import Filed
from minutebook.store.postgres.load import load
from minutebook.store.postgres.search import listed, searched
from minutebook.store.postgres.vacuum import vacuum
from minutebook.store.rules import labelled, now, require_position
from minutebook.store.types import (
    Conversation,
    ConversationStatus,
    Document,
    Hit,
    Lease,
    Loaded,
    PackedDocument,
    Page,
    Receipt,
    StoredFold,
)

T = TypeVar("T")
_PIN: Final = "INSERT INTO minutebook.pin (tenant, conversation, position) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_UNPIN: Final = "DELETE FROM minutebook.pin WHERE tenant = %s AND conversation = %s AND position = %s"
_HERE: Final = "WHERE tenant = %s AND number = %s"


class PostgresBackend(Backend):
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
        await self._write(self._sweep)

        async def work(db: AsyncConnection) -> None:
            await vacuum(db, self._engine.store)

        await self._engine.alone(work)

    async def append(self, command: AppendCommand) -> int:
        """It returns once the database has committed the entries."""
        kept = [Kept(one) for one in command.packed]
        return await self._engine.append(PendingAppend(self.tenant, command, kept, self.now()))

    async def header(self, conversation: str) -> Conversation:
        return (await self._read(lambda unit: postgres_rows.found(unit, conversation))).conversation

    async def load(self, query: LoadQuery) -> Loaded:
        return await self._read(lambda unit: load(unit, query))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        async def work(unit: Work) -> tuple[StoredFold, ...]:
            return await postgres_folds.every(unit, await postgres_rows.found(unit, conversation))

        return await self._read(work)

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        return await self._change(
            conversation, lambda unit, filed: postgres_folds.add(unit, filed, fold, replacing, self.now())
        )

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        return await self._change(
            conversation, lambda unit, filed: postgres_folds.undo(unit, filed, fold_id, self.now())
        )

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        async def work(unit: Work, filed: Filed) -> None:
            place = (filed.number, require_position(filed.conversation, position))
            await unit.put(_PIN if pinned else _UNPIN, self.tenant, *place)

        await self._change(conversation, work)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._change(conversation, lambda unit, filed: postgres_change.purge(unit, filed, before))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        return await self._change(conversation, lambda unit, filed: postgres_trim.trim(unit, filed, changes))

    async def fork(self, conversation: str, new_id: str, at: int | None) -> Conversation:
        """It takes no longer for a long conversation."""
        return await self._change(
            conversation, lambda unit, filed: postgres_change.fork(unit, filed, new_id, at, self.now())
        )

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        async def work(unit: Work, filed: Filed) -> Conversation:
            at = self.now()
            change = f"UPDATE minutebook.conversation SET status = %s, status_updated_at = %s {_HERE}"  # noqa: S608 - a constant
            await unit.put(change, status.value, microseconds(at), self.tenant, filed.number)
            return replace(filed.conversation, status=status, status_updated_at=at)

        return await self._change(conversation, work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        async def work(unit: Work, filed: Filed) -> Conversation:
            changed = labelled(filed.conversation, labels)
            change = f"UPDATE minutebook.conversation SET labels = %s {_HERE}"  # noqa: S608 - a constant
            await unit.put(change, postgres_rows.json_of(dict(changed.labels)), self.tenant, filed.number)
            return changed

        return await self._change(conversation, work)

    async def list(self, query: ListQuery) -> Page[Conversation]:
        return await self._read(lambda unit: listed(unit, query))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        await self._engine.catch_up(self.tenant)
        return await self._read(lambda unit: searched(unit, query))

    async def erase(self, conversation: str | None, recipient: str | None) -> Receipt:
        return await self._write(lambda unit: postgres_change.erase(unit, conversation, recipient, self.now()))

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        async def work(unit: Work, filed: Filed) -> Document:
            name = (document.kind, document.id)
            known = await postgres_documents.find(unit, [name])
            return await postgres_documents.put(unit, filed, document, known.get(name), self.now())

        return await self._change(conversation, work)

    async def document(self, kind: str, document_id: str) -> Document:
        return await self._read(lambda unit: postgres_documents.found(unit, kind, document_id, self.now()))

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        async def work(unit: Work) -> Page[Document]:
            filed = await postgres_rows.found(unit, query.conversation)
            return await postgres_documents.listed(unit, filed, query, self.now())

        return await self._read(work)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        return await self._write(lambda unit: postgres_documents.delete(unit, kind, document_id, self.now()))

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """It goes by the clock of the database."""
        return await self._write(lambda unit: postgres_leases.acquire(unit, conversation, holder, seconds))

    async def renew_lease(self, lease: Lease, seconds: float) -> Lease:
        return await self._write(lambda unit: postgres_leases.renew(unit, lease, seconds))

    async def release_lease(self, lease: Lease) -> None:
        await self._write(lambda unit: postgres_leases.release(unit, lease))

    async def _sweep(self, unit: Work) -> None:
        """Remove what has expired."""
        await unit.ask(postgres_leases.sweep(self.tenant))
        await postgres_documents.sweep(unit, self.now())

    async def _read(self, work: Callable[[Work], Awaitable[T]]) -> T:
        return await self._engine.read(self.tenant, work)

    async def _write(self, work: Callable[[Work], Awaitable[T]]) -> T:
        return await self._engine.write(self.tenant, work)

    async def _change(self, conversation: str, work: Callable[[Work, Filed], Awaitable[T]]) -> T:
        """Change a conversation, which nobody else changes before the transaction ends."""

        async def locked(unit: Work) -> T:
            return await work(unit, await postgres_rows.found(unit, conversation, lock=True))

        return await self._write(locked)


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
