"""Conversations in a PostgreSQL database, for as many processes and machines as want to.

Appends that wait for each other share a transaction; reads are snapshots beside them. Every transaction runs as a role
that owns nothing and says whose rows it may see, so the database itself keeps tenants apart. No session holds any
state, so a pgbouncer in transaction mode may stand in between.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Self

from psycopg import AsyncConnection

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.transcript import Broken
from minutebook.store import postgres_change, postgres_folds, postgres_rows
from minutebook.store.codec import microseconds
from minutebook.store.documents import NewDocument
from minutebook.store.leases import Lease
from minutebook.store.postgres_append import Ask, Due
from minutebook.store.postgres_desk import PostgresDesk
from minutebook.store.postgres_engine import Engine
from minutebook.store.postgres_entries import Kept
from minutebook.store.postgres_load import load
from minutebook.store.postgres_pages import listed, searched
from minutebook.store.postgres_vacuum import vacuum
from minutebook.store.postgres_work import Work
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

_PIN: Final = "INSERT INTO minutebook.pin (tenant, conversation, position) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_UNPIN: Final = "DELETE FROM minutebook.pin WHERE tenant = %s AND conversation = %s AND position = %s"
_HERE: Final = "WHERE tenant = %s AND number = %s"


class PostgresStore(PostgresDesk):
    """Keeps conversations in a PostgreSQL database.

    `connections` is how many it opens at most, besides one for each event loop that appends; `patience_seconds` how long
    it waits for a connection, for a lock, or for a database that is away. `due` says which conversations an append queues a background job for: see
    `minutebook.store.postgres_jobs`.
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
        _engine: Engine | None = None,
    ) -> None:
        if connections < 1:
            raise InvalidSetting("connections", connections, "1 or more")
        if patience_seconds <= 0:
            raise InvalidSetting("patience_seconds", patience_seconds, "more than 0")
        engine = _engine or Engine(url, connections, patience_seconds, due)
        super().__init__(engine, tenant=tenant, clock=clock)
        self.url = url

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same database."""
        return type(self)(self.url, tenant=tenant, clock=self._clock, _engine=self._engine)

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
        """Add entries at the end, all or none; return the new version once the database has committed them."""
        request = require_append(
            *(conversation, entries, recipient, labels, expected_version, idempotency_key, fingerprint),
            *(documents, lease, release),
        )
        ask = Ask(
            conversation,
            request,
            [Kept(one) for one in request.packed],
            recipient,
            labels or {},
            expected_version,
            idempotency_key,
            broken,
            self._now(),
        )
        return await self._engine.append(self.tenant, ask)

    async def header(self, conversation: str) -> Conversation:
        """What is known of a conversation without reading an entry."""

        async def work(unit: Work) -> Conversation:
            return (await self._found(unit, conversation)).conversation

        return await self._read(work)

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
        require_name("conversation", conversation)

        async def work(unit: Work) -> Loaded:
            return await load(unit, conversation, last_turns, last_messages, since, limit, folded=folded)

        return await self._read(work)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was."""

        async def work(unit: Work) -> tuple[StoredFold, ...]:
            return await postgres_folds.every(unit, await self._found(unit, conversation))

        return await self._read(work)

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges."""
        known = None if replacing is None else tuple(replacing)

        async def work(unit: Work) -> StoredFold:
            return await postgres_folds.add(unit, await self._held(unit, conversation), fold, known, self._now())

        return await self._write(work)

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away."""

        async def work(unit: Work) -> StoredFold:
            return await postgres_folds.undo(unit, await self._held(unit, conversation), fold_id, self._now())

        return await self._write(work)

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        await self._set_pin(conversation, position, _PIN)

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        await self._set_pin(conversation, position, _UNPIN)

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all."""

        async def work(unit: Work) -> int:
            return await postgres_change.purge(unit, await self._held(unit, conversation), before)

        return await self._write(work)

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> Conversation:
        """A new conversation that begins with the entries before `at`; it takes no longer for a long one."""
        require_name("conversation", new_id)

        async def work(unit: Work) -> Conversation:
            return await postgres_change.fork(unit, await self._held(unit, conversation), new_id, at, self._now())

        return await self._write(work)

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        """Say what the conversation is doing."""
        status = require_status(status)

        async def work(unit: Work) -> Conversation:
            filed = await self._held(unit, conversation)
            at = self._now()
            change = f"UPDATE minutebook.conversation SET status = %s, status_updated_at = %s {_HERE}"  # noqa: S608 - a constant
            await unit.put(change, status.value, microseconds(at), self.tenant, filed.number)
            return replace(filed.conversation, status=status, status_updated_at=at)

        return await self._write(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        """Set some of its labels; None removes one."""
        require_labels(labels)

        async def work(unit: Work) -> Conversation:
            filed = await self._held(unit, conversation)
            changed = labelled(filed.conversation, labels)
            change = f"UPDATE minutebook.conversation SET labels = %s {_HERE}"  # noqa: S608 - a constant
            await unit.put(change, postgres_rows.json_of(dict(changed.labels)), self.tenant, filed.number)
            return changed

        return await self._write(work)

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
        return await self._read(lambda unit: listed(unit, recipient, wanted, cursor, limit))

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
        for kind, name in (("conversation", conversation), ("recipient", recipient)):
            if name is not None:
                require_name(kind, name)
        await self._engine.catch_up(self.tenant)
        return await self._read(lambda unit: searched(unit, wanted, conversation, recipient, cursor, limit))

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> Receipt:
        """Remove a conversation, or all of a recipient's, and every fork made from them."""
        require_target(conversation, recipient)
        return await self._write(lambda unit: postgres_change.erase(unit, conversation, recipient, self._now()))

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

    async def ready_for_jobs(self) -> None:
        """Have the tables of the queue of background jobs, for whoever works on them."""
        await self._engine.install_queue()

    async def close(self) -> None:
        """Finish what was begun and let go of the connections."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    async def _set_pin(self, conversation: str, position: int, statement: str) -> None:
        async def work(unit: Work) -> None:
            filed = await self._held(unit, conversation)
            await unit.put(statement, self.tenant, filed.number, require_position(filed.conversation, position))

        await self._write(work)
