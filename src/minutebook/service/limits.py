"""How often a key may ask, and how many tokens it may use: decided before anything is asked of the provider."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from minutebook.errors import RequestRefused
from minutebook.service.caller import Caller
from minutebook.service.failures import FINAL
from minutebook.service.tally import Spent, Tally

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
