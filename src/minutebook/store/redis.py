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
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Self

from redis.exceptions import ResponseError

from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.transcript import Broken
from minutebook.store import redis_change, redis_documents, redis_folds
from minutebook.store.codec import microseconds
from minutebook.store.documents import NewDocument
from minutebook.store.leases import Lease
from minutebook.store.redis_append import Append, append
from minutebook.store.redis_desk import RedisDesk
from minutebook.store.redis_engine import Engine, Value, address_of
from minutebook.store.redis_load import load
from minutebook.store.redis_pages import listed
from minutebook.store.redis_rows import labels_text
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
from minutebook.store.scan import scanned
from minutebook.store.types import Conversation, ConversationStatus, Hit, Loaded, Page, Receipt, StoredFold
from minutebook.store.words import query_words

POLL_SECONDS: Final = 0.02


class RedisStore(RedisDesk):
    """Keeps conversations in Redis."""

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        _engine: Engine | None = None,
    ) -> None:
        super().__init__(_engine or Engine(address_of(url)), tenant=tenant, clock=clock)
        self._url = url

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same server."""
        return type(self)(self._url, tenant=tenant, clock=self._clock, _engine=self._engine)

    @property
    def durable(self) -> bool | None:
        """Whether what was acknowledged is on the server's disk. None where it does not say, or was not asked yet."""
        return self._engine.durable

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
        """Add entries at the end, all or none; return the new version."""
        request = require_append(
            *(conversation, entries, recipient, labels, expected_version, idempotency_key, fingerprint),
            *(documents, lease, release),
        )
        wanted = Append(
            conversation,
            request,
            recipient,
            labels or {},
            expected_version,
            idempotency_key,
            broken,
            self._now(),
        )
        return await self._engine.run(lambda: append(self._shelf, wanted))

    async def header(self, conversation: str) -> Conversation:
        """What is known of a conversation without reading an entry."""
        return (await self._engine.run(lambda: self._shelf.found(conversation))).conversation

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
        return await self._engine.run(
            lambda: load(self._shelf, conversation, last_turns, last_messages, since, limit, folded=folded)
        )

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was."""
        _, found = await self._engine.run(lambda: redis_folds.every(self._shelf, conversation))
        return tuple(found.values())

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges."""
        known = None if replacing is None else tuple(replacing)
        return await self._engine.run(lambda: redis_folds.add(self._shelf, conversation, fold, known, self._now()))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away."""
        return await self._engine.run(lambda: redis_folds.undo(self._shelf, conversation, fold_id, self._now()))

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        await self._engine.run(lambda: self._set_pin(conversation, position, "SADD"))

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        await self._engine.run(lambda: self._set_pin(conversation, position, "SREM"))

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all."""
        return await self._engine.run(lambda: redis_folds.purge(self._shelf, conversation, before))

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> Conversation:
        """A new conversation that begins with a copy of the entries before `at`."""
        require_name("conversation", new_id)
        return await self._engine.run(lambda: redis_change.fork(self._shelf, conversation, new_id, at, self._now()))

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        """Say what the conversation is doing."""
        status = require_status(status)
        fields: list[Value] = ["status", status.value, "status_updated_at", microseconds(self._now())]

        async def work() -> Conversation:
            reply = await self._shelf.ask("set", conversation, "", "", *fields)
            self._engine.known.pop((self.tenant, conversation), None)
            return self._shelf.filed(conversation, reply[1]).conversation

        return await self._engine.run(work)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        """Set some of its labels; None removes one."""
        require_labels(labels)

        async def work() -> Conversation:
            while True:
                header = (await self._shelf.found(conversation)).conversation
                changed = labelled(header, labels)
                values = (labels_text(header.labels), "labels", labels_text(changed.labels))
                reply = await self._shelf.ask("set", conversation, "labels", *values)
                self._engine.known.pop((self.tenant, conversation), None)
                if reply[0] == b"done":
                    return self._shelf.filed(conversation, reply[1]).conversation

        return await self._engine.run(work)

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
        return await self._engine.run(lambda: listed(self._shelf, recipient, wanted, cursor, limit))

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[Hit]:
        """The entries whose text has every word of the query, found by reading them."""
        wanted = query_words(query)
        require_limit(limit)
        return await scanned(self, wanted, conversation, recipient, cursor, limit)

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> Receipt:
        """Remove a conversation, or all of a recipient's, and every fork made from them."""
        require_target(conversation, recipient)
        at = self._now()
        if conversation is not None:
            name = conversation
            return await self._engine.run(lambda: redis_change.erase_conversation(self._shelf, name, at))
        return await self._engine.run(lambda: redis_change.erase_recipient(self._shelf, recipient or "", at))

    async def vacuum(self) -> None:
        """Forget the ids of what has expired, and have the server write its files anew, without what was erased.

        Its memory is its own affair: Redis overwrites what was freed only when it uses it again.

        Raises:
            StoreUnavailable: the server does not let us, as some that are rented do.
        """
        await self._engine.run(self._vacuum)

    async def close(self) -> None:
        """Finish what was begun and hang up."""
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self._engine.run(self._engine.check)
        return self

    async def _set_pin(self, conversation: str, position: int, command: str) -> None:
        reply = await self._shelf.ask("pin", conversation, position, command)
        if reply[0] == b"outside":
            require_position(self._shelf.filed(conversation, reply[1]).conversation, position)

    async def _vacuum(self) -> None:
        await redis_change.forget_expired(self._shelf)
        await redis_documents.sweep(self._shelf, self._now())
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
