"""Decides when a strategy that keeps failing is called again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

MAX_FAILURES: Final = 3
"""After this many failures in a row the strategy is not called until `RETRY_DELAY` has passed."""
RETRY_DELAY: Final = timedelta(minutes=5)
"""Then the strategy is called once: if it fails again, the next call is after another delay."""


@dataclass(slots=True)
class CircuitBreaker:
    """Counts failures of a strategy. Calls that use the same summarizer should share it."""

    failures: int = 0
    """Failures in a row."""
    retry_at: datetime | None = None
    """When the strategy may be called again; None if it may be called now."""

    def allow(self, time: datetime) -> bool:
        """Whether the strategy may be called. After the delay this is true once, until the outcome is known."""
        if self.retry_at is not None and time < self.retry_at:
            return False
        if self.retry_at is not None:
            self.retry_at = time + RETRY_DELAY
        return True

    def record(self, time: datetime, *, failed: bool) -> None:
        """Record the outcome of a call."""
        self.failures = self.failures + 1 if failed else 0
        self.retry_at = time + RETRY_DELAY if self.failures >= MAX_FAILURES else None
