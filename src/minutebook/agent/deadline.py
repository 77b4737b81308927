"""When an evaluation must be done."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from minutebook.errors import DeadlineExceeded, InvalidSetting


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nobody waits any more.

    Raises:
        InvalidSetting: it has no time zone.
    """

    expires_at: datetime
    clock: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            expected = "an aware datetime, such as datetime.now(UTC) + timedelta(minutes=1)"
            raise InvalidSetting("expires_at", self.expires_at, expected)

    @classmethod
    def after(cls, seconds: float, *, clock: Callable[[], datetime] = now) -> "Deadline":
        """That many seconds from now."""
        return cls(clock() + timedelta(seconds=seconds), clock)

    def remaining_seconds(self) -> float:
        """How long there is still; 0 when it has passed."""
        return max(0.0, (self.expires_at - self.clock()).total_seconds())

    def check(self, what: str) -> None:
        """Do nothing while there is time.

        Raises:
            DeadlineExceeded: there is none.
        """
        if not self.remaining_seconds():
            raise self.exceeded(what)

    def exceeded(self, what: str) -> DeadlineExceeded:
        return DeadlineExceeded(what, self.expires_at.isoformat(timespec="seconds"))
