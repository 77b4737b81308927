"""What the SQLite store keeps beside the record: documents and leases; and the trimming of single entries."""

from collections.abc import Callable, Mapping
from datetime import datetime

import apsw

from minutebook.record.message import Message
from minutebook.store import sqlite_documents, sqlite_leases, sqlite_rows, sqlite_trim
from minutebook.store.base import Handle
from minutebook.store.documents import Document, NewDocument, require_document
from minutebook.store.leases import Lease, require_lease
from minutebook.store.rules import now, require_limit, require_name
from minutebook.store.sqlite_engine import BRIEF, Engine
from minutebook.store.sqlite_unit import Unit
from minutebook.store.types import Page


class SqliteDesk(Handle):
    """The part of a SQLite store that is not the record."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there."""
        wanted = require_document(document)

        def work(unit: Unit) -> Document:
            filed, at = self._found(unit.db, conversation), self._now()
            verdict = sqlite_documents.verdict(unit.db, self.tenant, conversation, filed.number, wanted, at)
            sqlite_documents.put(unit.db, filed, [wanted], [verdict], at)
            made = sqlite_documents.find(unit.db, self.tenant, wanted.kind, wanted.id)
            sqlite_documents.tidy(unit, self.tenant, [wanted], at)
            assert made is not None, "it was just written"
            return made

        return await self._engine.write(work, keeps=True, brief=True)

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._engine.read(
            lambda db: sqlite_documents.found(db, self.tenant, *name, self._now()), brief=True
        )

    async def documents(
        self, conversation: str, kind: str, *, cursor: str | None = None, limit: int = 20, newest_first: bool = False
    ) -> Page[Document]:
        """The documents of a kind in a conversation, by their number."""
        require_name("kind", kind)
        require_limit(limit)

        def work(db: apsw.Connection) -> Page[Document]:
            filed = self._found(db, conversation)
            return sqlite_documents.listed(db, filed, kind, cursor, limit, self._now(), newest_first=newest_first)

        return await self._engine.read(work, brief=limit <= BRIEF)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        name = (require_name("kind", kind), require_name("document id", document_id))
        return await self._engine.write(
            lambda unit: sqlite_documents.delete(unit.db, self.tenant, *name, self._now()), keeps=True, brief=True
        )

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time; it is not waited for the disk."""
        require_lease(conversation, holder, seconds)
        return await self._engine.write(
            lambda unit: sqlite_leases.acquire(unit, self.tenant, conversation, holder, seconds, self._now()),
            keeps=True,
            light=True,
            brief=True,
        )

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on."""
        require_lease(lease.conversation, lease.holder, seconds)
        return await self._engine.write(
            lambda unit: sqlite_leases.renew(unit.db, self.tenant, lease, seconds, self._now()),
            keeps=True,
            light=True,
            brief=True,
        )

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        await self._engine.write(
            lambda unit: sqlite_leases.release(unit.db, self.tenant, lease, self._now()),
            keeps=True,
            light=True,
            brief=True,
        )

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones."""
        wanted = dict(changes)
        return await self._engine.write(
            lambda unit: sqlite_trim.trim(unit.db, self._found(unit.db, conversation), wanted)
        )

    def _sweep(self, unit: Unit) -> None:
        """Remove what has expired."""
        sqlite_documents.sweep(unit.db, self.tenant, self._now())
        sqlite_leases.sweep(unit.db, self._now())

    def _found(self, db: apsw.Connection, conversation: str) -> sqlite_rows.Filed:
        require_name("conversation", conversation)
        return sqlite_rows.found(db, self.tenant, conversation)
