"""What the PostgreSQL store keeps beside the record: documents and leases; and the trimming of single entries."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeVar

from minutebook.record.message import Message
from minutebook.store import postgres_documents, postgres_leases, postgres_rows, postgres_trim
from minutebook.store.base import Handle
from minutebook.store.documents import Document, NewDocument, require_document
from minutebook.store.leases import Lease, require_lease
from minutebook.store.postgres_engine import Engine
from minutebook.store.postgres_work import Work
from minutebook.store.rules import now, require_limit, require_name
from minutebook.store.types import Page

T = TypeVar("T")


class PostgresDesk(Handle):
    """The part of a PostgreSQL store that is not the record."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there."""
        wanted = require_document(document)

        async def work(unit: Work) -> Document:
            filed = await self._held(unit, conversation)
            known = await postgres_documents.find(unit, [(wanted.kind, wanted.id)])
            return await postgres_documents.put(unit, filed, wanted, known.get((wanted.kind, wanted.id)), self._now())

        return await self._write(work)

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._read(lambda unit: postgres_documents.found(unit, *name, self._now()))

    async def documents(
        self, conversation: str, kind: str, *, cursor: str | None = None, limit: int = 20, newest_first: bool = False
    ) -> Page[Document]:
        """The documents of a kind in a conversation, by their number."""
        require_name("kind", kind)
        require_limit(limit)

        async def work(unit: Work) -> Page[Document]:
            filed = await self._found(unit, conversation)
            return await postgres_documents.listed(
                unit, filed, kind, cursor, limit, self._now(), newest_first=newest_first
            )

        return await self._read(work)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._write(lambda unit: postgres_documents.delete(unit, *name, self._now()))

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time, by the clock of the database."""
        require_lease(conversation, holder, seconds)
        return await self._write(lambda unit: postgres_leases.acquire(unit, conversation, holder, seconds))

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on."""
        require_lease(lease.conversation, lease.holder, seconds)
        return await self._write(lambda unit: postgres_leases.renew(unit, lease, seconds))

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        await self._write(lambda unit: postgres_leases.release(unit, lease))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones."""
        wanted = dict(changes)

        async def work(unit: Work) -> int:
            return await postgres_trim.trim(unit, await self._held(unit, conversation), wanted)

        return await self._write(work)

    async def _sweep(self, unit: Work) -> None:
        """Remove what has expired."""
        await unit.ask(postgres_leases.sweep(self.tenant))
        await postgres_documents.sweep(unit, self._now())

    async def _read(self, work: Callable[[Work], Awaitable[T]]) -> T:
        return await self._engine.read(self.tenant, work)

    async def _write(self, work: Callable[[Work], Awaitable[T]]) -> T:
        return await self._engine.write(self.tenant, work)

    async def _found(self, unit: Work, conversation: str) -> postgres_rows.Filed:
        require_name("conversation", conversation)
        return await postgres_rows.found(unit, conversation)

    async def _held(self, unit: Work, conversation: str) -> postgres_rows.Filed:
        """The conversation, which nobody else changes before the transaction ends."""
        require_name("conversation", conversation)
        return await postgres_rows.found(unit, conversation, lock=True)
