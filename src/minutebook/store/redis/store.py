"""Conversations in Redis, or in Valkey, for those who have it anyway: quick, and shared by many machines.

`redis://user:password@host:6379/0`, `rediss://…` for TLS, and of our own `?ttl=SECONDS`: a conversation goes as a whole
so many seconds after its last append, or that of a fork of it, with its idempotency keys; and `?prefix=WORD`: what every
key begins with. Needs Redis 6.2 or newer, or Valkey.

What it costs: an append is one script, a load two, whatever the length of the record. A fork copies what it shares, and
the server does nothing else meanwhile. There is no index of words: a search reads the record, newest conversation first,
some thousand entries for a page. `list` with a status reads the headers of the others, too. What is stored once by its
hash is so within one conversation, since each may expire by itself.

A new document takes its name in a list of the tenant's before it is written, and a lease is the tenant's, too, for there
may be no conversation yet: both cost an append a round trip or two. Leases run by the server's clock, and a fence is shown
to the conversation before its lease is given. A server that forgets what it took may give a fence twice.

How safe it is depends on the server. With `appendonly yes` and `appendfsync always` what was acknowledged is on its disk.
With `everysec`, the usual setting, a crash of the machine loses up to a second or two; without `appendonly` it loses all
since the last snapshot. A failover to a replica may lose what the replica had not got. `durable` says what we found, and
a warning is logged. `maxmemory-policy` must be `noeviction`: any other may drop a part of a conversation, which a load
then finds to be damaged.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Self

from redis.exceptions import ResponseError

from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import microseconds
from minutebook.store.redis import conversations as redis_change
from minutebook.store.redis import documents as redis_documents
from minutebook.store.redis import folds as redis_folds
from minutebook.store.redis import leases as redis_leases
from minutebook.store.redis import trim as redis_trim
from minutebook.store.redis.append import append
from minutebook.store.redis.connection import Engine, Value, address_of
from minutebook.store.redis.keys import Keys
from minutebook.store.redis.load import load
from minutebook.store.redis.pages import listed
from minutebook.store.redis.rows import labels_text
from minutebook.store.redis.tenant import Shelf
from minutebook.store.rules import now, require_position, with_labels
from minutebook.store.search import scan
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    Document,
    ErasureReceipt,
    Lease,
    LoadedConversation,
    PackedDocument,
    Page,
    SearchHit,
    StoredFold,
)

POLL_SECONDS: Final = 0.02


class RedisBackend(Backend):
    """One tenant's keys on a server."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine
        self.shelf = Shelf(engine, Keys(engine.address.prefix, tenant))

    def for_tenant(self, tenant: str) -> Self:
        return type(self)(self._engine, tenant=tenant, clock=self._clock)

    async def open(self) -> None:
        await self._engine.run(self._engine.check)

    async def close(self) -> None:
        await self._engine.close()

    async def vacuum(self) -> None:
        """Forget the ids of what has expired, and have the server write its files anew, without what was erased.

        Its memory is its own affair: Redis overwrites what was freed only when it uses it again.

        Raises:
            StoreUnavailable: the server does not let us, as some that are rented do.
        """
        await self._engine.run(self._vacuum)

    async def append(self, command: AppendCommand) -> int:
        at = self.now()
        return await self._engine.run(lambda: append(self.shelf, command, at))

    async def header(self, conversation: str) -> ConversationHeader:
        return (await self._engine.run(lambda: self.shelf.found(conversation))).conversation

    async def load(self, query: LoadQuery) -> LoadedConversation:
        return await self._engine.run(lambda: load(self.shelf, query))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        _, found = await self._engine.run(lambda: redis_folds.every(self.shelf, conversation))
        return tuple(found.values())

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        return await self._engine.run(lambda: redis_folds.add(self.shelf, conversation, fold, replacing, self.now()))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        return await self._engine.run(lambda: redis_folds.undo(self.shelf, conversation, fold_id, self.now()))

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        async def work() -> None:
            reply = await self.shelf.ask("pin", conversation, position, "SADD" if pinned else "SREM")
            if reply[0] == b"outside":
                require_position(self.shelf.filed(conversation, reply[1]).conversation, position)

        await self._engine.run(work)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._engine.run(lambda: redis_folds.purge(self.shelf, conversation, before))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        return await self._engine.run(lambda: redis_trim.trim(self.shelf, conversation, changes))

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        """The entries are copied."""
        return await self._engine.run(lambda: redis_change.fork(self.shelf, conversation, new_id, at, self.now()))

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        fields: list[Value] = ["status", status.value, "status_updated_at", microseconds(self.now())]

        async def work() -> ConversationHeader:
            reply = await self.shelf.ask("set_header_field", conversation, "", "", *fields)
            self._engine.known.pop((self.tenant, conversation), None)
            return self.shelf.filed(conversation, reply[1]).conversation

        return await self._engine.run(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        async def work() -> ConversationHeader:
            while True:
                header = (await self.shelf.found(conversation)).conversation
                changed = with_labels(header, labels)
                values = (labels_text(header.labels), "labels", labels_text(changed.labels))
                reply = await self.shelf.ask("set_header_field", conversation, "labels", *values)
                self._engine.known.pop((self.tenant, conversation), None)
                if reply[0] == b"done":
                    return self.shelf.filed(conversation, reply[1]).conversation

        return await self._engine.run(work)

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        return await self._engine.run(lambda: listed(self.shelf, query))

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """It reads the entries."""
        return await scan(self, query)

    async def erase(self, conversation: str | None, recipient: str | None) -> ErasureReceipt:
        at = self.now()
        if conversation is not None:
            return await self._engine.run(lambda: redis_change.erase_conversation(self.shelf, conversation, at))
        return await self._engine.run(lambda: redis_change.erase_recipient(self.shelf, recipient or "", at))

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        return await self._engine.run(lambda: redis_documents.put(self.shelf, conversation, document, self.now()))

    async def document(self, kind: str, document_id: str) -> Document:
        return await self._engine.run(lambda: redis_documents.found(self.shelf, kind, document_id, self.now()))

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        return await self._engine.run(lambda: redis_documents.listed(self.shelf, query, self.now()))

    async def delete_document(self, kind: str, document_id: str) -> bool:
        return await self._engine.run(lambda: redis_documents.delete(self.shelf, kind, document_id, self.now()))

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """It goes by the clock of the server."""
        return await self._engine.run(lambda: redis_leases.acquire(self.shelf, conversation, holder, seconds))

    async def renew_lease(self, lease: Lease, seconds: float) -> Lease:
        return await self._engine.run(lambda: redis_leases.renew(self.shelf, lease, seconds))

    async def release_lease(self, lease: Lease) -> None:
        await self._engine.run(lambda: redis_leases.release(self.shelf, lease))

    async def _vacuum(self) -> None:
        await redis_change.forget_expired(self.shelf)
        await redis_documents.sweep(self.shelf, self.now())
        client = self._engine.client
        if (await self._persistence())["aof_enabled"]:
            await self._rewritten("aof_rewrite_in_progress", client.bgrewriteaof)
        if await self._engine.persists_snapshots():
            await self._rewritten("rdb_bgsave_in_progress", client.bgsave)

    async def _rewritten(self, busy: str, begin: Callable[[], object]) -> None:
        """Have a file written, from now on, and wait for it."""
        while True:
            await self._until_not(busy)
            try:
                await self._engine.send(begin())  # type: ignore[arg-type]
                break
            except ResponseError as problem:
                if "in progress" not in str(problem):
                    raise
        await self._until_not(busy)

    async def _until_not(self, busy: str) -> None:
        while True:
            state = await self._persistence()
            if not (state[busy] or state.get("aof_rewrite_scheduled")):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _persistence(self) -> Mapping[str, int]:
        found: Mapping[str, int] = await self._engine.send(self._engine.client.info("persistence"))
        return found


class RedisStore(ConversationStore):
    """Keeps conversations in Redis."""

    def __init__(self, url: str, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self._engine = Engine(address_of(url))
        super().__init__(RedisBackend(self._engine, tenant=tenant, clock=clock))

    @property
    def durable(self) -> bool | None:
        """Whether what was acknowledged is on the server's disk. None where it does not say, or was not asked yet."""
        return self._engine.durable
