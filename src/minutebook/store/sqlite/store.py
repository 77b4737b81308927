"""Conversations in one SQLite file, safe for many tasks, threads and processes.

Writes go through one connection that commits them in groups; reads go beside it, each on a snapshot of its own. An
acknowledged append is on the disk: the write-ahead log is synced with every commit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.rules import labelled, now, require_position
from minutebook.store.sqlite import conversations as sqlite_change
from minutebook.store.sqlite import documents as sqlite_documents
from minutebook.store.sqlite import folds as sqlite_folds
from minutebook.store.sqlite import headers as sqlite_rows
from minutebook.store.sqlite import leases as sqlite_leases
from minutebook.store.sqlite import trim as sqlite_trim
from minutebook.store.sqlite.connection import Unit
from minutebook.store.sqlite.engine import BRIEF, Engine
from minutebook.store.sqlite.load import load
from minutebook.store.sqlite.pages import listed, searched
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
_PIN: Final = "INSERT OR IGNORE INTO pin VALUES (?, ?)"
_UNPIN: Final = "DELETE FROM pin WHERE conversation = ? AND position = ?"


class SqliteBackend(Backend):
    """One tenant's rows in a SQLite database."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    async def open(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def vacuum(self) -> None:
        """Rewrite index, file and log, so that no byte of what was erased is left in them.

        Raises:
            StoreUnavailable: another process goes on reading, so the log could not be emptied.
        """
        await self._engine.catch_up()
        await self._engine.write(self._sweep, keeps=True)

        def work(unit: Unit) -> None:
            unit.db.execute("INSERT INTO word (word) VALUES ('optimize')")
            unit.db.execute("VACUUM")
            busy, _log, _done = unit.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
            if busy:
                raise StoreUnavailable(self._engine.url, "is being read by others, so its log could not be emptied")

        await self._engine.write(work, alone=True)

    async def append(self, command: AppendCommand) -> int:
        """It returns once the entries are on the disk."""
        version = await self._engine.write(
            lambda unit: sqlite_change.append(unit, self.tenant, command, self.now()),
            keeps=True,
            brief=len(command.packed) <= BRIEF,
        )
        self._engine.appended(len(command.packed))
        return version

    async def header(self, conversation: str) -> Conversation:
        return await self._engine.read(lambda db: self._found(db, conversation).conversation, brief=True)

    async def load(self, query: LoadQuery) -> Loaded:
        def work(db: apsw.Connection, most: int | None = None) -> Loaded:
            return load(db, self._found(db, query.conversation), query, most=most)

        return await self._engine.read(work, brief=lambda db: work(db, BRIEF))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        return await self._engine.read(lambda db: sqlite_folds.every(db, self._found(db, conversation)))

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        return await self._engine.write(
            lambda unit: sqlite_folds.add(unit.db, self._found(unit.db, conversation), fold, replacing, self.now())
        )

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        return await self._engine.write(
            lambda unit: sqlite_folds.undo(unit.db, self._found(unit.db, conversation), fold_id, self.now())
        )

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        def work(unit: Unit) -> None:
            filed = self._found(unit.db, conversation)
            place = (filed.number, require_position(filed.conversation, position))
            unit.db.execute(_PIN if pinned else _UNPIN, place)

        await self._engine.write(work)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._engine.write(
            lambda unit: sqlite_change.purge(unit.db, self._found(unit.db, conversation), before)
        )

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        return await self._engine.write(
            lambda unit: sqlite_trim.trim(unit.db, self._found(unit.db, conversation), changes)
        )

    async def fork(self, conversation: str, new_id: str, at: int | None) -> Conversation:
        """It takes no longer for a long conversation."""
        return await self._engine.write(
            lambda unit: sqlite_change.fork(unit.db, self._found(unit.db, conversation), new_id, at, self.now())
        )

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        def work(unit: Unit) -> Conversation:
            filed = self._found(unit.db, conversation)
            changed = replace(filed.conversation, status=status, status_updated_at=self.now())
            sqlite_rows.set_status(unit.db, filed.number, changed)
            return changed

        return await self._engine.write(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        def work(unit: Unit) -> Conversation:
            filed = self._found(unit.db, conversation)
            changed = labelled(filed.conversation, labels)
            sqlite_rows.set_labels(unit.db, filed.number, changed)
            return changed

        return await self._engine.write(work)

    async def list(self, query: ListQuery) -> Page[Conversation]:
        return await self._engine.read(lambda db: listed(db, self.tenant, query))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        await self._engine.catch_up()
        return await self._engine.read(lambda db: searched(db, self.tenant, query))

    async def erase(self, conversation: str | None, recipient: str | None) -> Receipt:
        return await self._engine.write(
            lambda unit: sqlite_change.erase(unit.db, self.tenant, conversation, recipient, self.now())
        )

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        def work(unit: Unit) -> Document:
            filed, at = self._found(unit.db, conversation), self.now()
            verdict = sqlite_documents.verdict(unit.db, self.tenant, conversation, filed.number, document, at)
            sqlite_documents.put(unit.db, filed, [document], [verdict], at)
            made = sqlite_documents.find(unit.db, self.tenant, document.kind, document.id)
            sqlite_documents.tidy(unit, self.tenant, [document], at)
            assert made is not None, "it was just written"
            return made

        return await self._engine.write(work, keeps=True, brief=True)

    async def document(self, kind: str, document_id: str) -> Document:
        return await self._engine.read(
            lambda db: sqlite_documents.found(db, self.tenant, kind, document_id, self.now()), brief=True
        )

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        return await self._engine.read(
            lambda db: sqlite_documents.listed(db, self._found(db, query.conversation), query, self.now()),
            brief=query.limit <= BRIEF,
        )

    async def delete_document(self, kind: str, document_id: str) -> bool:
        return await self._engine.write(
            lambda unit: sqlite_documents.delete(unit.db, self.tenant, kind, document_id, self.now()),
            keeps=True,
            brief=True,
        )

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return await self._write_lease(
            lambda unit: sqlite_leases.acquire(unit, self.tenant, conversation, holder, seconds, self.now())
        )

    async def renew_lease(self, lease: Lease, seconds: float) -> Lease:
        return await self._write_lease(
            lambda unit: sqlite_leases.renew(unit.db, self.tenant, lease, seconds, self.now())
        )

    async def release_lease(self, lease: Lease) -> None:
        await self._write_lease(lambda unit: sqlite_leases.release(unit.db, self.tenant, lease, self.now()))

    async def _write_lease(self, work: Callable[[Unit], T]) -> T:
        """Change a lease, without waiting for the disk: see `leases`."""
        return await self._engine.write(work, keeps=True, light=True, brief=True)

    def _sweep(self, unit: Unit) -> None:
        """Remove what has expired."""
        sqlite_documents.sweep(unit.db, self.tenant, self.now())
        sqlite_leases.sweep(unit.db, self.now())

    def _found(self, db: apsw.Connection, conversation: str) -> sqlite_rows.Filed:
        return sqlite_rows.found(db, self.tenant, conversation)


class SqliteStore(ConversationStore):
    """Keeps conversations in one SQLite file."""

    def __init__(self, path: str, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self.path = path
        self._engine = Engine(path)
        super().__init__(SqliteBackend(self._engine, tenant=tenant, clock=clock))
