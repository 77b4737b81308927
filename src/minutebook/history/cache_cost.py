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


@dataclass(slots=True)
class CacheLedger:
    """Adds up the cost of consecutive requests with prompt caching.

    Raises:
        InvalidSetting: `prices.input` is missing or 0.
    """

    prices: Prices = TYPICAL_PRICES
    """A model's prices. Cache prices that are missing equal that of plain input."""
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    busts: int = 0
    """Number of requests that were not the previous one with messages appended."""
    _last: Sequence[Message] = ()

    def __post_init__(self) -> None:
        if not self.prices.input:
            raise InvalidSetting("prices", self.prices, "prices with input above 0")

    def send(self, view: Sequence[Message], counts: Sequence[int]) -> None:
        """Add one request; `counts` are the tokens of its messages."""
        shared = shared_prefix_length(self._last, view)
        self.busts += shared < len(self._last)
        self.requests += 1
        self.tokens += sum(counts)
        self.cached += sum(counts[:shared])
        self._last = view

    @property
    def cost(self) -> float:
        """The cost in plain input tokens."""
        plain = self.prices.input or 1.0
        read, write = (plain if price is None else price for price in (self.prices.cache_read, self.prices.cache_write))
        return (read * self.cached + write * (self.tokens - self.cached)) / plain


def shared_prefix_length(view: Sequence[Message], other: Sequence[Message]) -> int:
    """The number of messages before the first difference between two views."""
    for index, (left, right) in enumerate(zip(view, other, strict=False)):
        if left is not right and left != right:
            return index
    return min(len(view), len(other))
