"""So many requests in so many seconds, and then 429."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from minutebook.errors import InvalidSetting
from minutebook.testing.script import Failure


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `requests` in any stretch of `per_seconds`."""

    requests: int
    per_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.requests < 0 or self.per_seconds <= 0:
            raise InvalidSetting("rate_limit", self, "a number of requests and a time that is not nothing")


class Turnstile:
    """Lets requests through while there is room; the ones it turns away do not count."""

    def __init__(self, limit: RateLimit | None, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = Lock()
        self._passed: deque[float] = deque()

    def refusal(self) -> Failure | None:
        """None to let one through, or an error with the seconds until there is room again."""
        if self._limit is None:
            return None
        with self._lock:
            now = self._clock()
            while self._passed and now - self._passed[0] >= self._limit.per_seconds:
                self._passed.popleft()
            if len(self._passed) < self._limit.requests:
                self._passed.append(now)
                return None
            first = self._passed[0] if self._passed else now
        return Failure(429, retry_after=first + self._limit.per_seconds - now)
