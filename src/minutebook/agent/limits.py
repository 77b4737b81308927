"""Limits of evaluations: a token budget that several evaluations may share, and a deadline."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock

from minutebook.agent.messages import Usage
from minutebook.errors import BudgetExceeded, DeadlineExceeded, InvalidSetting


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum tokens of all model calls together; None means no limit.

    To limit the length of each prompt, use `max_tokens` of a manager or of the runner.

    Raises:
        InvalidSetting: a limit is below 1.
    """

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "max_input_tokens", "max_output_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidSetting(name, limit, "1 or more, or None for no limit")

    def check(self, used: Usage) -> None:
        """Check the usage against every limit.

        Raises:
            BudgetExceeded: the usage exceeds a limit.
        """
        for kind, tokens, limit in (
            ("total", used.total_tokens, self.max_total_tokens),
            ("input", used.input_tokens, self.max_input_tokens),
            ("output", used.output_tokens, self.max_output_tokens),
        ):
            if limit is not None and tokens > limit:
                raise BudgetExceeded(kind, tokens, limit)


@dataclass(slots=True)
class BudgetTracker:
    """Adds up the usage of all evaluations that share it, and checks it against a budget. Thread-safe."""

    budget: Budget = field(default_factory=Budget)
    consumed: Usage = field(default_factory=Usage, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def record(self, usage: Usage) -> None:
        """Add the usage of a model call."""
        with self._lock:
            self.consumed += usage

    def check(self, upcoming: Usage | None = None) -> None:
        """Check the usage so far, plus that of an `upcoming` call, against the budget.

        Raises:
            BudgetExceeded: the usage exceeds a limit.
        """
        self.budget.check(self.consumed + (upcoming or Usage()))


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which an evaluation is cancelled.

    Raises:
        InvalidSetting: `expires_at` has no time zone.
    """

    expires_at: datetime
    clock: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        if self.expires_at.tzinfo is None:
            expected = "an aware datetime, such as datetime.now(UTC) + timedelta(minutes=1)"
            raise InvalidSetting("expires_at", self.expires_at, expected)

    @classmethod
    def after(cls, seconds: float, *, clock: Callable[[], datetime] = now) -> "Deadline":
        """A deadline this number of seconds from now."""
        return cls(clock() + timedelta(seconds=seconds), clock)

    def remaining_seconds(self) -> float:
        """Seconds until the deadline; 0 if it has passed."""
        return max(0.0, (self.expires_at - self.clock()).total_seconds())

    def check(self, work: str) -> None:
        """Check that the deadline has not passed. `work` is the name of the evaluation in the error.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        if not self.remaining_seconds():
            raise self.exceeded_error(work)

    def exceeded_error(self, work: str) -> DeadlineExceeded:
        return DeadlineExceeded(work, self.expires_at.isoformat(timespec="seconds"))
