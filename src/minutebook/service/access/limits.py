"""How often a key may ask, and how many tokens it may use: decided before anything is asked of the provider.

How many tokens a key has used today, over all replicas and restarts.

Every replica has a document of its own for each key and day, so nobody waits for another and nothing is overwritten. In
it the replica claims tokens ahead, a block at a time, and only then lets requests use them: the sum of the claims is
never less than what was used, whoever crashes. A claim is written before the others' are read, so two replicas that
claim the last tokens at one moment see each other. A write is made for a block, not for a request; blocks get smaller
as the day's tokens run out.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationNotFound, RequestRefused, StoreUnavailable, VersionConflict
from minutebook.service.access.api_keys import RESERVED_TENANT, Caller
from minutebook.service.http.errors import FINAL
from minutebook.service.http.responses import each_item
from minutebook.store.base import ConversationStore
from minutebook.store.rules import LARGEST_PAGE, now
from minutebook.store.types import NewDocument

_LOG: Final = logging.getLogger("minutebook.service")
_KIND: Final = "tally"
_SHARE: Final = 8
"""A block is this part of what is left, or one request if that is more."""


@dataclass(eq=False, slots=True)
class _Day:
    """One key's tokens on one day, as this replica knows them."""

    key_id: str
    date: str
    ends_at: datetime
    claimed: int = 0
    """What our document says; never less than what we used and have promised."""
    used: int = 0
    told: int = 0
    """What our document says we used."""
    promised: int = 0
    """What requests on their way may use at most."""
    others_claimed: int = 0
    others_used: int = 0
    quiet: bool = False
    """Whether nothing was promised since the last flush."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def ours(self) -> int:
        return self.used + self.promised


@dataclass(eq=False, slots=True)
class Promise:
    """Tokens that a request may use. What it used in truth is told once, with `settle`."""

    most: int
    _day: _Day | None

    def settle(self, tokens: int) -> None:
        """Say what was used."""
        if self._day is not None:
            self._day.promised -= self.most
            self._day.used += tokens
            self._day = None


@dataclass(frozen=True, slots=True)
class Spent:
    """Why no tokens can be promised."""

    retry_seconds: float
    for_today: bool
    """Whether they are used up; if not, requests on their way may still give some back."""


class Tally:
    """Tokens per key and day. With `optional` it counts on alone while the store is away."""

    def __init__(
        self, store: ConversationStore, *, clock: Callable[[], datetime] = now, optional: bool = False
    ) -> None:
        self._store = store.for_tenant(RESERVED_TENANT)
        self._clock, self._optional = clock, optional
        self._replica = uuid4().hex
        self._days: dict[str, _Day] = {}

    async def promise(self, key_id: str, limit: int, most: int) -> Promise | Spent:
        """Tokens for a request that uses `most` at most, if the day's limit is not reached.

        What the last one uses beyond the limit is all that goes beyond it, if requests keep within their `most`.
        """
        day = self._today(key_id)
        async with day.lock:
            if day.others_claimed + day.ours >= limit or day.ours + most > day.claimed:
                refused = await self._claim(day, limit, most)
                if refused is not None:
                    return refused
            day.promised += most
            day.quiet = False
            return Promise(most, day)

    async def used(self, key_id: str) -> int:
        """What was used today, by all replicas; the others' as they last wrote it."""
        day = self._today(key_id)
        await self._look(day)
        return day.others_used + day.used

    async def flush(self, *, closing: bool = False) -> None:
        """Write down what was used, and give back what was claimed and is not needed.

        It is called every few seconds and, with `closing`, at the end.
        """
        for day in list(self._days.values()):
            async with day.lock:
                try:
                    await self._settle(day, closing=closing)
                except StoreUnavailable:
                    _LOG.warning("tallies of tokens could not be written: the database cannot be reached")
                    return
        today = self._clock().astimezone(UTC).date().isoformat()
        self._days = {key: day for key, day in self._days.items() if day.date == today or day.promised}

    async def _settle(self, day: _Day, *, closing: bool) -> None:
        """Bring our document up to date, and what we know of the others' as well while requests come."""
        needed = day.ours if day.quiet or closing else max(day.claimed, day.ours)
        if (needed, day.used) != (day.claimed, day.told):
            await self._write(day, needed)
        if not day.quiet and not closing:
            await self._look(day)
        day.quiet = True

    async def _claim(self, day: _Day, limit: int, most: int) -> Spent | None:
        try:
            await self._look(day)
            if day.others_claimed + day.ours >= limit:
                return self._spent(day, limit)
            left = limit - day.others_claimed - day.ours
            before = day.claimed
            await self._write(day, day.ours + max(most, left // _SHARE))
            await self._look(day)
            if day.others_claimed + day.ours >= limit:  # somebody else claimed at the same moment
                await self._write(day, max(before, day.ours))
                return self._spent(day, limit)
        except StoreUnavailable:
            if not self._optional:
                raise
            day.claimed = max(day.claimed, day.ours + most)
            return self._spent(day, limit) if day.others_claimed + day.ours >= limit else None
        return None

    def _spent(self, day: _Day, limit: int) -> Spent:
        if day.others_used + day.used < limit:
            return Spent(1.0, for_today=False)
        return Spent(max(1.0, (day.ends_at - self._clock()).total_seconds()), for_today=True)

    async def _look(self, day: _Day) -> None:
        """Read what the other replicas claim, and what those claimed that are gone."""
        room, claimed, used = _room(day.key_id), 0, 0
        with suppress(ConversationNotFound):
            async for document in each_item(
                lambda cursor: self._store.documents(room, _KIND, cursor=cursor, limit=LARGEST_PAGE)
            ):
                body = document.body
                if body["date"] == day.date and body["replica"] != self._replica:
                    claimed, used = claimed + body["claimed"], used + body["used"]
        day.others_claimed, day.others_used = claimed, used

    async def _write(self, day: _Day, claimed: int) -> None:
        used = day.used
        body = {"date": day.date, "replica": self._replica, "claimed": claimed, "used": used}
        document = NewDocument(
            _KIND,
            f"{day.key_id}:{day.date}:{self._replica}",
            body,
            expires_at=day.ends_at + timedelta(days=1),
            replace=True,
        )
        try:
            await self._store.put_document(_room(day.key_id), document)
        except ConversationNotFound:
            with suppress(VersionConflict):
                await self._store.append(_room(day.key_id), [], expected_version=0)
            await self._store.put_document(_room(day.key_id), document)
        day.claimed, day.told = claimed, used

    def _today(self, key_id: str) -> _Day:
        at = self._clock().astimezone(UTC)
        date = at.date().isoformat()
        day = self._days.get(key_id)
        if day is None or day.date != date:
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            day = self._days[key_id] = _Day(key_id, date, midnight)
        return day


def _room(key_id: str) -> str:
    return f"tally:{key_id}"


_MINUTE: Final = 60.0


class Bucket:
    """Lets so many through a minute: all at once, after a quiet minute, or evenly."""

    def __init__(self, per_minute: int, at: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = at

    def take(self, at: float) -> float:
        """Take one out and return 0, or return the seconds until there is one again."""
        self._left = min(self.per_minute, self._left + (at - self._at) * self.per_minute / _MINUTE)
        self._at = at
        if self._left < 1:
            return (1 - self._left) * _MINUTE / self.per_minute
        self._left -= 1
        return 0.0


@dataclass(slots=True)
class Spending:
    """What a request uses: whoever makes it sets `tokens` as soon as it is known. Until then it is all it might use."""

    tokens: int


class Limiter:
    """Holds every key to its limits; these hold for keys that have none of their own, and None is no limit.

    Requests are counted by each replica for itself, tokens by all together. Whoever comes without a key, on a service
    that asks for none, is not limited.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        requests_per_minute: int | None = None,
        tokens_per_day: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests_per_minute, self.tokens_per_day = requests_per_minute, tokens_per_day
        self._tally = tally
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def request(self, caller: Caller) -> None:
        """Count a request.

        Raises:
            RequestRefused: it is one too many; its headers say when to come again.
        """
        limit = caller.requests_per_minute or self.requests_per_minute
        if caller.key_id is None or limit is None:
            return
        at = self._clock()
        bucket = self._buckets.get(caller.key_id)
        if bucket is None or bucket.per_minute != limit:
            bucket = self._buckets[caller.key_id] = Bucket(limit, at)
        wait = bucket.take(at)
        if wait:
            said = f"This API key may make {limit} requests a minute. Ask again in {math.ceil(wait)} s."
            headers = (("retry-after", str(math.ceil(wait))), ("retry-after-ms", str(math.ceil(wait * 1_000))))
            raise RequestRefused(429, said, "rate_limit_exceeded", None, headers)

    @asynccontextmanager
    async def spending(self, caller: Caller, most_tokens: int) -> AsyncIterator[Spending]:
        """Around everything that a request asks of the provider.

        `most_tokens` is what it may use at most: what is sent, and the longest answer.

        Raises:
            RequestRefused: the day's tokens are used up, before anything was asked.
        """
        limit = caller.tokens_per_day or self.tokens_per_day
        spending = Spending(most_tokens)
        if caller.key_id is None or limit is None:
            yield spending
            return
        promise = await self._tally.promise(caller.key_id, limit, most_tokens)
        if isinstance(promise, Spent):
            raise _refused(promise, limit)
        try:
            yield spending
        finally:
            promise.settle(spending.tokens)

    async def tokens_used(self, caller: Caller) -> int | None:
        """What its key used today; None for whoever has no key."""
        return None if caller.key_id is None else await self._tally.used(caller.key_id)

    def limits_of(self, caller: Caller) -> dict[str, int | None]:
        """The limits that hold for a caller."""
        if caller.key_id is None:
            return {"requests_per_minute": None, "tokens_per_day": None}
        return {
            "requests_per_minute": caller.requests_per_minute or self.requests_per_minute,
            "tokens_per_day": caller.tokens_per_day or self.tokens_per_day,
        }

    async def flush(self, *, closing: bool = False) -> None:
        """Write down what is not yet; called every few seconds, and at the end."""
        await self._tally.flush(closing=closing)


def _refused(spent: Spent, limit: int) -> RequestRefused:
    seconds = math.ceil(spent.retry_seconds)
    headers = (("retry-after", str(seconds)),)
    if spent.for_today:
        said = f"This API key has used its {limit} tokens of today (UTC). Ask again in {seconds} s."
        return RequestRefused(429, said, "tokens_per_day_exceeded", None, (*headers, *FINAL.items()))
    said = f"Requests on their way may use the rest of this API key's {limit} tokens of today (UTC). Ask again soon."
    return RequestRefused(429, said, "tokens_per_day_reserved", None, headers)
