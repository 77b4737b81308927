"""How full the context is: what the next call would send, beside what the model can read."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from minutebook.errors import InvalidSetting

Recommendation: TypeAlias = Literal["ok", "consider_summarizing", "urgent"]

CONSIDER: Final = 0.7
URGENT: Final = 0.9


@dataclass(frozen=True, slots=True)
class ContextPressure:
    """How much of the model's window the next call would fill.

    Raises:
        InvalidSetting: there is no window.
    """

    used_tokens: int
    max_tokens: int

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "a number above 0")

    @property
    def raw(self) -> float:
        """The share that is used; above 1 where it is too much."""
        return self.used_tokens / self.max_tokens

    @property
    def utilization(self) -> float:
        """The same, from 0 to 1."""
        return min(1.0, max(0.0, self.raw))

    @property
    def recommendation(self) -> Recommendation:
        if self.raw < CONSIDER:
            return "ok"
        return "consider_summarizing" if self.raw < URGENT else "urgent"

    def render(self) -> str:
        """What the model is told."""
        return (
            f"used_tokens: {self.used_tokens}, max_tokens: {self.max_tokens}, utilization: {self.utilization:.2f}, "
            f"recommendation: {self.recommendation}"
        )
