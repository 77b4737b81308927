"""A rate limit: at most a number of requests in a time window, then status 429."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from minutebook.errors import InvalidSetting
from minutebook.testing.script import ScriptedFailure


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `requests` in any window of `per_seconds`."""

    requests: int
    per_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.requests < 0 or self.per_seconds <= 0:
            raise InvalidSetting("rate_limit", self, "requests of 0 or more and per_seconds above 0")


class RateLimiter:
    """Accepts requests within the limit. Rejected requests do not count."""

    def __init__(self, limit: RateLimit | None, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = Lock()
        self._accepted_at: deque[float] = deque()

    def check(self) -> ScriptedFailure | None:
        """Accept a request and return None, or return an error with the seconds until the next one is accepted."""
        if self._limit is None:
            return None
        with self._lock:
            now = self._clock()
            while self._accepted_at and now - self._accepted_at[0] >= self._limit.per_seconds:
                self._accepted_at.popleft()
            if len(self._accepted_at) < self._limit.requests:
                self._accepted_at.append(now)
                return None
            first = self._accepted_at[0] if self._accepted_at else now
        return ScriptedFailure(429, retry_after=first + self._limit.per_seconds - now)
