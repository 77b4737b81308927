"""Conversations in one SQLite file, safe for many tasks, threads and processes.

Writes go through one connection that commits them in groups; reads go beside it, each on a snapshot of its own. An
acknowledged append is on the disk: the write-ahead log is synced with every commit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Self

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.transcript import Broken
from minutebook.store import sqlite_change, sqlite_folds, sqlite_rows
from minutebook.store.documents import NewDocument
from minutebook.store.leases import Lease
from minutebook.store.request import require_append, require_status
from minutebook.store.rules import (
    labelled,
    now,
    require_labels,
    require_limit,
    require_name,
    require_part,
    require_position,
    require_target,
)
from minutebook.store.sqlite_desk import SqliteDesk
from minutebook.store.sqlite_engine import BRIEF, Engine
from minutebook.store.sqlite_load import load
from minutebook.store.sqlite_pages import listed, searched
from minutebook.store.sqlite_unit import Unit
from minutebook.store.types import (
    Conversation,
    ConversationStatus,
    Hit,
    Loaded,
    Page,
    Receipt,
    StoredFold,
)
from minutebook.store.words import query_words


class SqliteStore(SqliteDesk):
    """Keeps conversations in one SQLite file."""

    def __init__(
        self,
        path: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        _engine: Engine | None = None,
    ) -> None:
        super().__init__(_engine or Engine(path), tenant=tenant, clock=clock)
        self.path = path

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same file."""
        return type(self)(self.path, tenant=tenant, clock=self._clock, _engine=self._engine)

    async def append(
        self,
        conversation: str,
        entries: Sequence[ConversationEntry],
        *,
        recipient: str | None = None,
        labels: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        fingerprint: bytes | None = None,
        broken: Broken = "raise",
        documents: Sequence[NewDocument] = (),
        lease: Lease | None = None,
        release: bool = False,
    ) -> int:
        """Add entries at the end, all or none; return the new version once they are on the disk."""
        request = require_append(
            *(conversation, entries, recipient, labels, expected_version, idempotency_key, fingerprint),
            *(documents, lease, release),
        )
        version = await self._engine.write(
            lambda unit: sqlite_change.append(
                unit,
                self.tenant,
                conversation,
                request,
                recipient=recipient,
                labels=labels or {},
                expected_version=expected_version,
                idempotency_key=idempotency_key,
                broken=broken,
                at=self._now(),
            ),
            keeps=True,
            brief=len(entries) <= BRIEF,
        )
        self._engine.appended(len(entries))
        return version

    async def header(self, conversation: str) -> Conversation:
        """What is known of a conversation without reading an entry."""
        return await self._engine.read(lambda db: self._found(db, conversation).conversation, brief=True)

    async def load(
        self,
        conversation: str,
        *,
        last_turns: int | None = None,
        last_messages: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        folded: bool = False,
    ) -> Loaded:
        """A part of a conversation; it costs what it returns."""
        require_part(last_turns, last_messages, since, limit)
        return await self._engine.read(
            lambda db: load(db, self._found(db, conversation), last_turns, last_messages, since, limit, folded=folded),
            brief=lambda db: min(last_messages or limit or BRIEF + 1, self._length(db, conversation)) <= BRIEF,
        )

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was."""
        return await self._engine.read(lambda db: sqlite_folds.every(db, self._found(db, conversation)))

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges."""
        known = None if replacing is None else tuple(replacing)
        return await self._engine.write(
            lambda unit: sqlite_folds.add(unit.db, self._found(unit.db, conversation), fold, known, self._now())
        )

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away."""
        return await self._engine.write(
            lambda unit: sqlite_folds.undo(unit.db, self._found(unit.db, conversation), fold_id, self._now())
        )

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        await self._set_pin(conversation, position, "INSERT OR IGNORE INTO pin VALUES (?, ?)")

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        await self._set_pin(conversation, position, "DELETE FROM pin WHERE conversation = ? AND position = ?")

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all."""
        return await self._engine.write(
            lambda unit: sqlite_change.purge(unit.db, self._found(unit.db, conversation), before)
        )

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> Conversation:
        """A new conversation that begins with the entries before `at`; it takes no longer for a long one."""
        require_name("conversation", new_id)
        return await self._engine.write(
            lambda unit: sqlite_change.fork(unit.db, self._found(unit.db, conversation), new_id, at, self._now())
        )

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        """Say what the conversation is doing."""
        status = require_status(status)

        def work(unit: Unit) -> Conversation:
            filed = self._found(unit.db, conversation)
            changed = replace(filed.conversation, status=status, status_updated_at=self._now())
            sqlite_rows.set_status(unit.db, filed.number, changed)
            return changed

        return await self._engine.write(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        """Set some of its labels; None removes one."""
        require_labels(labels)

        def work(unit: Unit) -> Conversation:
            filed = self._found(unit.db, conversation)
            changed = labelled(filed.conversation, labels)
            sqlite_rows.set_labels(unit.db, filed.number, changed)
            return changed

        return await self._engine.write(work)

    async def list(
        self,
        *,
        recipient: str | None = None,
        status: ConversationStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Conversation]:
        """The conversations, newest first by the time they were made."""
        wanted = None if status is None else require_status(status)
        require_limit(limit)
        if recipient is not None:
            require_name("recipient", recipient)
        return await self._engine.read(lambda db: listed(db, self.tenant, recipient, wanted, cursor, limit))

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[Hit]:
        """The entries whose text has every word of the query."""
        wanted = query_words(query)
        require_limit(limit)
        await self._engine.catch_up()
        return await self._engine.read(
            lambda db: searched(db, self.tenant, wanted, conversation, recipient, cursor, limit)
        )

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> Receipt:
        """Remove a conversation, or all of a recipient's, and every fork made from them."""
        require_target(conversation, recipient)
        return await self._engine.write(
            lambda unit: sqlite_change.erase(unit.db, self.tenant, conversation, recipient, self._now())
        )

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

    async def close(self) -> None:
        """Finish what was begun and let go of the file."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    def _length(self, db: apsw.Connection, conversation: str) -> int:
        header = self._found(db, conversation).conversation
        return header.length - header.first

    async def _set_pin(self, conversation: str, position: int, statement: str) -> None:
        def work(unit: Unit) -> None:
            filed = self._found(unit.db, conversation)
            unit.db.execute(statement, (filed.number, require_position(filed.conversation, position)))

        await self._engine.write(work)
