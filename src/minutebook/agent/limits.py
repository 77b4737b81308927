"""The limits of evaluations: how many tokens they may use together, and when one must be done."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock

from minutebook.agent.messages import Usage
from minutebook.errors import BudgetExceeded, DeadlineExceeded, InvalidSetting


@dataclass(frozen=True, slots=True)
class Budget:
    """The most tokens to spend; None is no limit.

    This is about what all calls cost together, and has nothing to do with how long one prompt may be: for that, give a
    manager a `max_tokens`.

    Raises:
        InvalidSetting: a limit is not above 0.
    """

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "max_input_tokens", "max_output_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidSetting(name, limit, "a number above 0, or None for no limit")

    def check(self, used: Usage) -> None:
        """Do nothing while the budget lasts.

        Raises:
            BudgetExceeded: more was used than one of the limits.
        """
        for kind, spent, limit in (
            ("total", used.total_tokens, self.max_total_tokens),
            ("input", used.input_tokens, self.max_input_tokens),
            ("output", used.output_tokens, self.max_output_tokens),
        ):
            if limit is not None and spent > limit:
                raise BudgetExceeded(kind, spent, limit)


@dataclass(slots=True)
class BudgetTracker:
    """What was used of a budget, by all evaluations that are given this tracker. Any thread may use it."""

    budget: Budget = field(default_factory=Budget)
    consumed: Usage = field(default_factory=Usage, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def record(self, usage: Usage) -> None:
        """Add what a call used."""
        with self._lock:
            self.consumed += usage

    def check(self, upcoming: Usage | None = None) -> None:
        """Do nothing while the budget lasts, with what is to come.

        Raises:
            BudgetExceeded: it does not.
        """
        self.budget.check(self.consumed + (upcoming or Usage()))


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
