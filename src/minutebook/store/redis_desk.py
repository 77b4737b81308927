"""What the Redis store keeps beside the record: documents and leases; and the trimming of single entries."""

from collections.abc import Callable, Mapping
from datetime import datetime

from minutebook.record.message import Message
from minutebook.store import redis_documents, redis_leases, redis_trim
from minutebook.store.base import Handle
from minutebook.store.documents import Document, NewDocument, require_document
from minutebook.store.leases import Lease, require_lease
from minutebook.store.redis_engine import Engine
from minutebook.store.redis_keys import Keys
from minutebook.store.redis_shelf import Shelf
from minutebook.store.rules import now, require_limit, require_name
from minutebook.store.types import Page


class RedisDesk(Handle):
    """The part of a Redis store that is not the record."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine
        self._shelf = Shelf(engine, Keys(engine.address.prefix, self.tenant))

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there."""
        wanted = require_document(document)
        return await self._engine.run(lambda: redis_documents.put(self._shelf, conversation, wanted, self._now()))

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._engine.run(lambda: redis_documents.found(self._shelf, *name, self._now()))

    async def documents(
        self, conversation: str, kind: str, *, cursor: str | None = None, limit: int = 20, newest_first: bool = False
    ) -> Page[Document]:
        """The documents of a kind in a conversation, by their number."""
        require_name("kind", kind)
        require_limit(limit)
        return await self._engine.run(
            lambda: redis_documents.listed(
                self._shelf, conversation, kind, cursor, limit, self._now(), newest_first=newest_first
            )
        )

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._engine.run(lambda: redis_documents.delete(self._shelf, *name, self._now()))

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time, by the clock of the server."""
        require_lease(conversation, holder, seconds)
        return await self._engine.run(lambda: redis_leases.acquire(self._shelf, conversation, holder, seconds))

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on."""
        require_lease(lease.conversation, lease.holder, seconds)
        return await self._engine.run(lambda: redis_leases.renew(self._shelf, lease, seconds))

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        await self._engine.run(lambda: redis_leases.release(self._shelf, lease))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones."""
        wanted = dict(changes)
        return await self._engine.run(lambda: redis_trim.trim(self._shelf, conversation, wanted))
