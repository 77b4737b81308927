"""Conversations in Redis or Valkey, shared by many machines.

The URL is `redis://user:password@host:6379/0`, or `rediss://…` for TLS, with two options. With `?ttl=SECONDS`, a conversation
and its idempotency keys expire after this time without an append to it or one of its forks. `?prefix=WORD` is the start of
the name of every key. Needs Redis 6.2 or newer, or Valkey.

Costs: an append runs one script and a load two, whatever the length of the record. A fork copies the entries that it
shares, and the server executes no other command meanwhile. There is no index of words: a search reads the entries, newest
conversation first, about 5,000 for each page. `list` with a status also reads the headers with another status. Large payloads are stored
once per conversation, not once per tenant, because each conversation may expire separately.

A new document is claimed in the tenant's index before it is written. A lease is in the tenant's keys too, because its
conversation may not exist yet. An append with documents or a lease takes one or two more round trips. Leases use the clock of the server, and a
fence is written to the conversation before the lease is returned. A server that loses data may issue a fence twice.

Durability depends on the server. With `appendonly yes` and `appendfsync always`, acknowledged writes are on its disk. With
`everysec`, the default, a crash of the machine loses up to two seconds; without `appendonly`, everything since the last
snapshot. A failover may lose writes that the replica had not received. Opening the store checks the server's settings:
`RedisStore.durable` has the result, and a warning is logged if writes may be lost. `maxmemory-policy` must be `noeviction`:
with any other the server may evict parts of a conversation, and a load then raises `StoreDamaged`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Final, Self, TypeVar

from redis.exceptions import ResponseError

from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import microseconds
from minutebook.store.redis import conversations, documents, entries, folds, leases
from minutebook.store.redis.append import append
from minutebook.store.redis.connection import RedisEngine, Value, parse_url
from minutebook.store.redis.keys import TenantKeys
from minutebook.store.redis.rows import labels_json
from minutebook.store.redis.tenant import TenantIndex
from minutebook.store.rules import now, require_position, with_labels
from minutebook.store.scan import scan
from minutebook.store.search import WORDS, search_mode
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
T = TypeVar("T")


class RedisBackend(Backend):
    """One tenant's keys on a server."""

    def __init__(
        self,
        engine: RedisEngine,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        search_mode: str = WORDS,
    ) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine
        self._search_mode = search_mode
        self.index = TenantIndex(engine, TenantKeys(engine.address.prefix, tenant))

    def for_tenant(self, tenant: str) -> Self:
        return type(self)(self._engine, tenant=tenant, clock=self._clock, search_mode=self._search_mode)

    async def open(self) -> None:
        await self._engine.run(self._engine.check)

    async def close(self) -> None:
        await self._engine.close()

    async def _run(self, work: Callable[[TenantIndex], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the engine's loop."""
        return await self._engine.run(lambda: work(self.index))

    async def vacuum(self, *, rewrite: bool = False) -> None:  # noqa: ARG002 - the files are always rewritten
        """Remove expired ids and documents, and have the server rewrite its files without the erased data.

        The server's memory is not overwritten: Redis does that when it allocates the freed memory again.

        Raises:
            StoreUnavailable: the server does not allow it, as some hosted ones do not.
        """
        await self._run(self._vacuum)

    async def append(self, command: AppendCommand) -> int:
        at = self.now()
        return await self._run(lambda index: append(index, command, at))

    async def header(self, conversation: str) -> ConversationHeader:
        return (await self._run(lambda index: index.get(conversation))).conversation

    async def load(self, query: LoadQuery) -> LoadedConversation:
        return await self._run(lambda index: entries.load(index, query))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        _, numbered = await self._run(lambda index: folds.get_all(index, conversation))
        return tuple(numbered.values())

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        return await self._run(lambda index: folds.add(index, conversation, fold, replacing, self.now()))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        return await self._run(lambda index: folds.undo(index, conversation, fold_id, self.now()))

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        async def work(index: TenantIndex) -> None:
            reply = await index.run_script("set_pin", conversation, position, "SADD" if pinned else "SREM")
            if reply[0] == b"no entry":
                require_position(index.row(conversation, reply[1]).conversation, position)

        await self._run(work)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._run(lambda index: folds.purge(index, conversation, before))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        return await self._run(lambda index: entries.trim(index, conversation, changes))

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        return await self._run(lambda index: conversations.fork(index, conversation, new_id, at, self.now()))

    async def rewind(self, conversation: str, to: int, expected_version: int | None, reason: str) -> ConversationHeader:
        return await self._run(
            lambda index: folds.rewind(index, conversation, to, expected_version, reason, self.now())
        )

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        fields: list[Value] = ["status", status.value, "status_updated_at", microseconds(self.now())]

        async def work(index: TenantIndex) -> ConversationHeader:
            reply = await index.run_script("set_header_fields", conversation, "", "", *fields)
            self._engine.rows.pop((self.tenant, conversation), None)
            return index.row(conversation, reply[1]).conversation

        return await self._run(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        async def work(index: TenantIndex) -> ConversationHeader:
            while True:
                header = (await index.get(conversation)).conversation
                new_header = with_labels(header, labels)
                fields = (labels_json(header.labels), "labels", labels_json(new_header.labels))
                reply = await index.run_script("set_header_fields", conversation, "labels", *fields)
                self._engine.rows.pop((self.tenant, conversation), None)
                if reply[0] == b"done":
                    return index.row(conversation, reply[1]).conversation

        return await self._run(work)

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        return await self._run(lambda index: conversations.list_page(index, query))

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        return await scan(self, query, self._search_mode)

    async def search_mode(self) -> str:
        return self._search_mode

    def use_keys(self, key_ids: Sequence[str]) -> None:
        self._engine.key_ids = key_ids

    async def set_setting(self, name: str, value: str) -> None:
        async def work(_index: TenantIndex) -> None:
            await self._engine.send(self._engine.client.hset(self._engine.settings_key, name, value))

        await self._run(work)

    async def erase(self, conversation: str | None, recipient: str | None, *, block: bool = False) -> ErasureReceipt:
        at = self.now()
        if conversation is not None:
            return await self._run(lambda index: conversations.erase_conversation(index, conversation, at))
        return await self._run(lambda index: conversations.erase_recipient(index, recipient or "", at, block=block))

    async def readmit(self, recipient: str) -> bool:
        return await self._run(lambda index: conversations.readmit(index, recipient))

    async def remove_expired(self, conversation: str, before: datetime) -> ErasureReceipt:
        at = self.now()
        return await self._run(lambda index: conversations.remove_expired(index, conversation, before, at))

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        return await self._run(lambda index: documents.put(index, conversation, document, self.now()))

    async def document(self, kind: str, document_id: str) -> Document:
        return await self._run(lambda index: documents.get(index, kind, document_id, self.now()))

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        return await self._run(lambda index: documents.list_page(index, query, self.now()))

    async def requests_before(self, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
        return await self._run(lambda index: documents.requests_before(index, before, cursor, limit))

    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        return await self._run(lambda index: documents.delete(index, kind, document_ids, self.now()))

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return await self._run(lambda index: leases.acquire(index, conversation, holder, seconds))

    async def renew_leases(self, renewed: Sequence[Lease], seconds: float) -> Sequence[Lease | None]:
        indexes = [self.for_tenant(lease.tenant).index for lease in renewed]

        async def work() -> Sequence[Lease | None]:
            return await asyncio.gather(*map(leases.renew, indexes, renewed, repeat(seconds)))

        return await self._engine.run(work)

    async def release_lease(self, lease: Lease) -> None:
        await self._run(lambda index: leases.release(index, lease))

    async def _vacuum(self, index: TenantIndex) -> None:
        await conversations.remove_expired_ids(index)
        await documents.sweep(index, self.now())
        client = self._engine.client
        if (await self._persistence_info())["aof_enabled"]:
            await self._rewrite_file("aof_rewrite_in_progress", client.bgrewriteaof)
        if await self._engine.has_snapshots():
            await self._rewrite_file("rdb_bgsave_in_progress", client.bgsave)

    async def _rewrite_file(self, busy_field: str, start: Callable[[], object]) -> None:
        """Have the server rewrite a file, and wait until it is done.

        A rewrite that is already running may have started before the erasure, so another one is started after it.
        """
        while True:
            await self._wait_while(busy_field)
            try:
                await self._engine.send(start())  # type: ignore[arg-type]
                break
            except ResponseError as error:
                if "in progress" not in str(error):
                    raise
        await self._wait_while(busy_field)

    async def _wait_while(self, busy_field: str) -> None:
        while True:
            info = await self._persistence_info()
            if not (info[busy_field] or info.get("aof_rewrite_scheduled")):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _persistence_info(self) -> Mapping[str, int]:
        info: Mapping[str, int] = await self._engine.send(self._engine.client.info("persistence"))
        return info


class RedisStore(ConversationStore):
    """Stores conversations in Redis or Valkey."""

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        expire_after: timedelta | None = None,
        search: bool | str | None = None,
    ) -> None:
        self._engine = RedisEngine(parse_url(url))
        backend = RedisBackend(self._engine, tenant=tenant, clock=clock, search_mode=search_mode(search) or WORDS)
        super().__init__(backend, expire_after=expire_after)

    @property
    def durable(self) -> bool | None:
        """Whether acknowledged writes are on the server's disk; None if the store is not open or the server does not say."""
        return self._engine.durable
