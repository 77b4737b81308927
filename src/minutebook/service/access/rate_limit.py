"""Limits of requests per minute, shared by all replicas.

A request must not wait for the database, so each replica decides with its own token bucket. Every few seconds the replicas
exchange the number of requests they accepted, and each takes those of the others from its bucket. A burst on several
replicas can therefore exceed a limit for a few seconds; the excess is missing from the bucket afterwards.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationNotFound, VersionConflict
from minutebook.service.http.responses import iterate_pages
from minutebook.store.base import ConversationStore
from minutebook.store.rules import MAX_PAGE_ITEMS, now
from minutebook.store.types import NewDocument

_KIND: Final = "rate"
_MINUTE: Final = 60.0
_SLOT_SECONDS: Final = 5
"""Requests are counted in slots of this length. The slots of the last minute are exchanged: older requests no longer count."""


class TokenBucket:
    """A token bucket: allows `per_minute` requests per minute, evenly or as one burst after an idle minute."""

    def __init__(self, per_minute: int, at: float) -> None:
        self.per_minute = per_minute
        self._available = float(per_minute)
        self._refilled_at = at

    def take(self, at: float) -> float:
        """Take one request and return 0, or return the seconds until the next one is available."""
        refill = (at - self._refilled_at) * self.per_minute / _MINUTE
        self._available, self._refilled_at = min(self.per_minute, self._available + refill), at
        if self._available < 1:
            return (1 - self._available) * _MINUTE / self.per_minute
        self._available -= 1
        return 0.0

    def deduct(self, count: int) -> None:
        """Take requests that were accepted elsewhere. The bucket is empty for at most a minute after that."""
        self._available = max(float(-self.per_minute), self._available - count)


class RequestRates:
    """Limits the requests of each key, together with the other replicas."""

    def __init__(
        self,
        store: ConversationStore,
        *,
        clock: Callable[[], datetime] = now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is that of the reserved tenant."""
        self._store, self._clock, self._monotonic = store, clock, monotonic
        self._replica = uuid4().hex
        self._buckets: dict[str, TokenBucket] = {}
        self._counts: dict[str, Counter[int]] = {}
        """Key → slot → requests that this replica accepted in it."""
        self._deducted: dict[tuple[str, str], Counter[int]] = {}
        """Key and other replica → slot → its requests that were deducted here."""

    def take(self, key_id: str, limit: int) -> float:
        """Count a request of a key and return 0, or return the seconds until the key may send the next one."""
        at = self._monotonic()
        bucket = self._buckets.get(key_id)
        if bucket is None or bucket.per_minute != limit:
            bucket = self._buckets[key_id] = TokenBucket(limit, at)
        wait_seconds = bucket.take(at)
        if not wait_seconds:
            self._counts.setdefault(key_id, Counter())[self._slot()] += 1
        return wait_seconds

    async def exchange(self) -> None:
        """Store the counts of this replica, and deduct those of the others. Keys without recent requests are skipped.

        Raises:
            StoreUnavailable: the database is unavailable. The next call exchanges these counts too.
        """
        first_slot = self._slot() - math.ceil(_MINUTE / _SLOT_SECONDS)
        for key_id, counts in list(self._counts.items()):
            recent = Counter({slot: count for slot, count in counts.items() if slot >= first_slot})
            if not recent:
                del self._counts[key_id]
                continue
            self._counts[key_id] = recent
            body = {"replica": self._replica, "counts": {str(slot): count for slot, count in recent.items()}}
            expires_at = self._clock() + timedelta(days=1)
            document = NewDocument(_KIND, f"{key_id}:{self._replica}", body, expires_at=expires_at, replace=True)
            await put_counts(self._store, key_id, document)
            await self._deduct_others(key_id, first_slot)
        self._deducted = {pair: counts for pair, counts in self._deducted.items() if pair[0] in self._counts}

    async def _deduct_others(self, key_id: str, first_slot: int) -> None:
        async for document in iterate_pages(
            lambda cursor: self._store.documents(
                counts_conversation(key_id), _KIND, cursor=cursor, limit=MAX_PAGE_ITEMS
            )
        ):
            replica = document.body["replica"]
            if replica != self._replica:
                slots = {int(slot): count for slot, count in document.body["counts"].items()}
                counts = Counter({slot: count for slot, count in slots.items() if slot >= first_slot})
                self._buckets[key_id].deduct((counts - self._deducted.get((key_id, replica), Counter())).total())
                self._deducted[key_id, replica] = counts

    def _slot(self) -> int:
        return int(self._clock().timestamp() // _SLOT_SECONDS)


def counts_conversation(key_id: str) -> str:
    """The conversation with the documents that count the requests and tokens of a key."""
    return f"tally:{key_id}"


async def put_counts(store: ConversationStore, key_id: str, document: NewDocument) -> None:
    """Store a count of a key. The key's conversation is created if it does not exist."""
    conversation = counts_conversation(key_id)
    try:
        await store.put_document(conversation, document)
    except ConversationNotFound:
        with suppress(VersionConflict):
            await store.append(conversation, [], expected_version=0)
        await store.put_document(conversation, document)
