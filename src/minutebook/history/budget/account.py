"""What the views of a conversation have cost so far, compared with sending everything.

The prices are typical ones, relative to plain input, so that the same messages give the same cuts with every model.
"""

from dataclasses import dataclass
from typing import Final

from minutebook.history.cache_cost import TYPICAL_PRICES

READ: Final = TYPICAL_PRICES.cache_read or 1.0
WRITE: Final = TYPICAL_PRICES.cache_write or 1.0


@dataclass(slots=True)
class CostAccount:
    """The cost of the views and of the full history at the same calls, in tokens of plain input."""

    calls: int = 0
    record_tokens: int = 0
    """Tokens of the full history at the last call."""
    view_tokens: int = 0
    """Tokens of the view at the last call."""
    saved: float = 0.0
    """How much less the views cost than the full history."""

    def add_call(self, record_tokens: int) -> None:
        """Add the full history's cost of a call."""
        self.calls += 1
        self.saved += READ * self.record_tokens + WRITE * (record_tokens - self.record_tokens)
        self.record_tokens = record_tokens

    def add_view(self, view_tokens: int, cached_tokens: int) -> None:
        """Subtract the view's cost of that call."""
        self.saved -= READ * cached_tokens + WRITE * (view_tokens - cached_tokens)
        self.view_tokens = view_tokens

    def affordable_tokens(self, cached_tokens: int) -> int:
        """Tokens of a view, of which these are cached, such that all views still cost no more than the full history."""
        return cached_tokens + int((self.saved - READ * cached_tokens) / WRITE)

    @property
    def tokens_per_call(self) -> float:
        return self.record_tokens / max(4, self.calls)
