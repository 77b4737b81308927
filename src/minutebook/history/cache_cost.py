"""The cost of consecutive requests with a provider's prompt cache.

A cache hit covers the longest prefix that a request shares with the previous one. Reading from the cache costs a fraction
of plain input, writing to it a little more, so a view that changes early costs more than a longer one that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message
from minutebook.tokens.models import Prices

TYPICAL_PRICES: Final = Prices(input=1.0, cache_read=0.1, cache_write=1.25)
"""Typical prices of the cache, relative to plain input."""
READ: Final = TYPICAL_PRICES.cache_read or 1.0
WRITE: Final = TYPICAL_PRICES.cache_write or 1.0


@dataclass(slots=True)
class CacheLedger:
    """Adds up the cost of consecutive requests with prompt caching.

    Raises:
        InvalidSetting: `prices.input` is missing or 0.
    """

    prices: Prices = TYPICAL_PRICES
    """A model's prices. A missing cache price equals the price of plain input."""
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    busts: int = 0
    """Number of requests that were not the previous one with messages appended."""
    _last_view: Sequence[Message] = ()

    def __post_init__(self) -> None:
        if not self.prices.input:
            raise InvalidSetting("prices", self.prices, "prices with input above 0")

    def send(self, view: Sequence[Message], counts: Sequence[int]) -> None:
        """Add one request; `counts` are the tokens of its messages."""
        shared = shared_prefix_length(self._last_view, view)
        self.busts += shared < len(self._last_view)
        self.requests += 1
        self.tokens += sum(counts)
        self.cached += sum(counts[:shared])
        self._last_view = view

    @property
    def cost(self) -> float:
        """The cost of all requests, as the number of plain input tokens with the same price."""
        input_price = self.prices.input or 1.0
        read_price = input_price if self.prices.cache_read is None else self.prices.cache_read
        write_price = input_price if self.prices.cache_write is None else self.prices.cache_write
        return (read_price * self.cached + write_price * (self.tokens - self.cached)) / input_price


def shared_prefix_length(previous: Sequence[Message], view: Sequence[Message]) -> int:
    """The number of messages before the first difference between two views."""
    for index, (left, right) in enumerate(zip(previous, view, strict=False)):
        if left is not right and left != right:
            return index
    return min(len(previous), len(view))


@dataclass(slots=True)
class CostAccount:
    """The cost of the views and of the full history at the same calls, in tokens of plain input.

    The prices are the typical ones, so that the same messages give the same cuts with every model.
    """

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
