"""Rate limits (see `rate_limit`) and daily token quotas of API keys, checked before the provider is called.

Token quotas are shared by all replicas and survive restarts. Each replica has its own document per key and day, so
replicas neither wait for each other nor overwrite each other. A replica claims a block of tokens in its document before
requests may use them, so the sum of the claims is never less than the tokens used, even after a crash. It writes its
claim before it reads those of the others, so two replicas that claim the last tokens at the same time see each other.
A write covers a block, not a request. Blocks get smaller as the quota runs out.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationNotFound, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.access.rate_limit import RequestRates, counts_conversation, put_counts
from minutebook.service.http.errors import DO_NOT_RETRY
from minutebook.service.http.responses import iterate_pages
from minutebook.store.base import ConversationStore
from minutebook.store.rules import MAX_PAGE_ITEMS, now
from minutebook.store.types import RESERVED_TENANT, NewDocument

_LOG: Final = logging.getLogger("minutebook.service")
_KIND: Final = "tally"
_WAIT_POLL_SECONDS: Final = 0.1
_BLOCK_DIVISOR: Final = 8
"""A block is the remaining quota divided by this, or the tokens of one request if that is more."""


@dataclass(eq=False, slots=True)
class _KeyDay:
    """The tokens of one key on one day. The values of other replicas are as of the last read."""

    key_id: str
    date: str
    ends_at: datetime
    claimed: int = 0
    """The claim in this replica's document; never less than `used` + `reserved`."""
    used: int = 0
    stored_used: int = 0
    """The value of `used` in this replica's document."""
    reserved: int = 0
    """The maximum that requests in progress may use."""
    others_claimed: int = 0
    others_used: int = 0
    is_idle: bool = False
    """Nothing was reserved since the last flush."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def committed(self) -> int:
        """Tokens of this replica: used, and reserved by requests in progress."""
        return self.used + self.reserved


@dataclass(eq=False, slots=True)
class Reservation:
    """Tokens reserved for one provider call, until `commit`."""

    tokens: int
    _day: _KeyDay | None
    """None without a limit, and after `commit`."""

    def commit(self, used_tokens: int) -> None:
        """Replace the reservation by the tokens that were used. A second call has no effect."""
        if self._day is not None:
            self._day.reserved -= self.tokens
            self._day.used += used_tokens
            self._day = None


@dataclass(frozen=True, slots=True)
class QuotaExhausted:
    """Why no tokens can be reserved."""

    retry_seconds: float
    is_used_up: bool
    """Whether the tokens of the day were used. If not, requests in progress have reserved the rest, and may not need it."""


class TokenQuota:
    """Counts tokens per key and day. With `optional`, each replica counts for itself while the store is unavailable."""

    def __init__(
        self, store: ConversationStore, *, clock: Callable[[], datetime] = now, optional: bool = False
    ) -> None:
        self.store = store.for_tenant(RESERVED_TENANT).with_expiry(None)
        self.clock, self._optional = clock, optional
        self._replica = uuid4().hex
        self._days: dict[str, _KeyDay] = {}

    async def reserve(self, key_id: str, limit: int, max_tokens: int) -> Reservation | QuotaExhausted:
        """Reserve the maximum that a request may use, unless the day's limit is reached.

        The limit is exceeded at most by the last request, if no request uses more than its `max_tokens`.
        """
        day = self._today(key_id)
        async with day.lock:
            if day.others_claimed + day.committed >= limit or day.committed + max_tokens > day.claimed:
                exhausted = await self._claim_block(day, limit, max_tokens)
                if exhausted is not None:
                    return exhausted
            day.reserved += max_tokens
            day.is_idle = False
            return Reservation(max_tokens, day)

    async def read_usage(self, key_id: str) -> int:
        """The tokens used today by all replicas; those of the others as of their last write."""
        day = self._today(key_id)
        await self._read_others(day)
        return day.others_used + day.used

    async def flush(self, *, closing: bool = False) -> None:
        """Store the tokens used and release claims that are no longer needed.

        Called every few seconds and, with `closing`, at shutdown.
        """
        for day in list(self._days.values()):
            async with day.lock:
                try:
                    await self._flush_day(day, closing=closing)
                except StoreUnavailable:
                    _LOG.warning("token counts were not stored: the database is unavailable")
                    return
        today = self.clock().astimezone(UTC).date().isoformat()
        self._days = {key: day for key, day in self._days.items() if day.date == today or day.reserved}

    async def _flush_day(self, day: _KeyDay, *, closing: bool) -> None:
        claim = day.committed if day.is_idle or closing else max(day.claimed, day.committed)
        if (claim, day.used) != (day.claimed, day.stored_used):
            await self._write(day, claim)
        if not day.is_idle and not closing:
            await self._read_others(day)
        day.is_idle = True

    async def _claim_block(self, day: _KeyDay, limit: int, max_tokens: int) -> QuotaExhausted | None:
        """Claim more tokens for this replica; None if it succeeded."""
        try:
            await self._read_others(day)
            if day.others_claimed + day.committed >= limit:
                return self._exhausted(day, limit)
            remaining = limit - day.others_claimed - day.committed
            previous_claim = day.claimed
            await self._write(day, day.committed + max(max_tokens, remaining // _BLOCK_DIVISOR))
            await self._read_others(day)
            if day.others_claimed + day.committed >= limit:  # another replica claimed at the same time
                await self._write(day, max(previous_claim, day.committed))
                return self._exhausted(day, limit)
        except StoreUnavailable:
            if not self._optional:
                raise
            day.claimed = max(day.claimed, day.committed + max_tokens)
            return self._exhausted(day, limit) if day.others_claimed + day.committed >= limit else None
        return None

    def _exhausted(self, day: _KeyDay, limit: int) -> QuotaExhausted:
        if day.others_used + day.used < limit:
            return QuotaExhausted(1.0, is_used_up=False)
        return QuotaExhausted(max(1.0, (day.ends_at - self.clock()).total_seconds()), is_used_up=True)

    async def _read_others(self, day: _KeyDay) -> None:
        """Read the tokens that other replicas have claimed and used, including replicas that no longer run."""
        conversation, claimed, used = counts_conversation(day.key_id), 0, 0
        with suppress(ConversationNotFound):
            async for document in iterate_pages(
                lambda cursor: self.store.documents(conversation, _KIND, cursor=cursor, limit=MAX_PAGE_ITEMS)
            ):
                body = document.body
                if body["date"] == day.date and body["replica"] != self._replica:
                    claimed, used = claimed + body["claimed"], used + body["used"]
        day.others_claimed, day.others_used = claimed, used

    async def _write(self, day: _KeyDay, claimed: int) -> None:
        used = day.used
        body = {"date": day.date, "replica": self._replica, "claimed": claimed, "used": used}
        document = NewDocument(
            _KIND,
            f"{day.key_id}:{day.date}:{self._replica}",
            body,
            expires_at=day.ends_at + timedelta(days=1),
            replace=True,
        )
        await put_counts(self.store, day.key_id, document)
        day.claimed, day.stored_used = claimed, used

    def _today(self, key_id: str) -> _KeyDay:
        at = self.clock().astimezone(UTC)
        date = at.date().isoformat()
        day = self._days.get(key_id)
        if day is None or day.date != date:
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            day = self._days[key_id] = _KeyDay(key_id, date, midnight)
        return day


class Limiter:
    """Enforces the limits of API keys. The arguments apply to keys without their own limits; None is no limit.

    Both limits are shared by all replicas. Callers without a key, in a service that has no keys, are not limited.
    """

    def __init__(
        self,
        quota: TokenQuota,
        *,
        requests_per_minute: int | None = None,
        tokens_per_day: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests_per_minute, self.tokens_per_day = requests_per_minute, tokens_per_day
        self._quota, self._clock = quota, clock
        self._rates = RequestRates(quota.store, clock=quota.clock, monotonic=clock)

    def count_request(self, caller: Caller) -> None:
        """Count a request.

        Raises:
            RequestRefused: the rate limit is exceeded; `retry-after` is in its headers.
        """
        limit = caller.requests_per_minute or self.requests_per_minute
        if caller.key_id is None or limit is None:
            return
        wait_seconds = self._rates.take(caller.key_id, limit)
        if wait_seconds:
            seconds, milliseconds = math.ceil(wait_seconds), math.ceil(wait_seconds * 1_000)
            problem = f"This API key exceeded its limit of {limit} requests per minute. Retry in {seconds} s."
            headers = (("retry-after", str(seconds)), ("retry-after-ms", str(milliseconds)))
            raise RequestRefused(429, problem, "rate_limit_exceeded", None, headers)

    async def reserve_tokens(self, caller: Caller, max_tokens: int, *, wait_seconds: float = 0.0) -> Reservation:
        """Reserve tokens for one provider call, until `commit`.

        `max_tokens` is the maximum that it may use: the tokens sent and the longest possible answer. If requests in
        progress have reserved the rest of the limit, wait up to `wait_seconds` for them.

        Raises:
            RequestRefused: the daily limit is reached.
        """
        limit = caller.tokens_per_day or self.tokens_per_day
        if caller.key_id is None or limit is None:  # see `limits_tokens`
            return Reservation(max_tokens, None)
        deadline = self._clock() + wait_seconds
        while isinstance(reservation := await self._quota.reserve(caller.key_id, limit, max_tokens), QuotaExhausted):
            if reservation.is_used_up or self._clock() >= deadline:
                raise _quota_error(reservation, limit)
            await asyncio.sleep(_WAIT_POLL_SECONDS)
        return reservation

    def limits_tokens(self, caller: Caller) -> bool:
        """Whether the caller has a daily limit of tokens."""
        return caller.key_id is not None and (caller.tokens_per_day or self.tokens_per_day) is not None

    async def tokens_used(self, caller: Caller) -> int | None:
        """The tokens that the caller's key used today; None for a caller without a key."""
        return None if caller.key_id is None else await self._quota.read_usage(caller.key_id)

    def limits_of(self, caller: Caller) -> dict[str, int | None]:
        if caller.key_id is None:
            return {"requests_per_minute": None, "tokens_per_day": None}
        return {
            "requests_per_minute": caller.requests_per_minute or self.requests_per_minute,
            "tokens_per_day": caller.tokens_per_day or self.tokens_per_day,
        }

    async def flush(self, *, closing: bool = False) -> None:
        """Store the token counts and exchange request counts with the other replicas.

        Called every few seconds and, with `closing`, at shutdown.

        Raises:
            StoreUnavailable: the request counts were not exchanged.
        """
        await self._quota.flush(closing=closing)
        if not closing:
            await self._rates.exchange()


def _quota_error(exhausted: QuotaExhausted, limit: int) -> RequestRefused:
    seconds = math.ceil(exhausted.retry_seconds)
    headers = (("retry-after", str(seconds)),)
    if exhausted.is_used_up:
        problem = f"This API key has used its daily limit of {limit} tokens (UTC). Retry in {seconds} s."
        return RequestRefused(429, problem, "tokens_per_day_exceeded", None, (*headers, *DO_NOT_RETRY.items()))
    problem = (
        f"Requests in progress have reserved the rest of this API key's daily limit of {limit} tokens. Retry shortly."
    )
    return RequestRefused(429, problem, "tokens_per_day_reserved", None, headers)
