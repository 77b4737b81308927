"""What a provider's prompt cache makes of a row of views.

A cache holds the longest beginning that a request shares with the one before it. What is read from it costs a fraction,
what has to be written costs a little more than plain input, so a view that changes early costs more than a longer one
that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message
from minutebook.tokens.models import Prices

TYPICAL_PRICES: Final = Prices(input=1.0, cache_read=0.1, cache_write=1.25)
"""How the prices of most providers relate to that of plain input."""


@dataclass(slots=True)
class CacheLedger:
    """Adds up what a row of requests costs with prompt caching.

    Raises:
        InvalidSetting: `prices` has no price of input, or a price of 0.
    """

    prices: Prices = TYPICAL_PRICES
    """A model's prices; where the cache has none, it costs as much as plain input."""
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    busts: int = 0
    """How many requests were not the one before with something appended."""
    _last: Sequence[Message] = ()

    def __post_init__(self) -> None:
        if not self.prices.input:
            raise InvalidSetting("prices", self.prices, "ones with a price of input above 0")

    def send(self, view: Sequence[Message], counts: Sequence[int]) -> None:
        """Add one request; `counts` are the tokens of its messages."""
        shared = shared_beginning(self._last, view)
        self.busts += shared < len(self._last)
        self.requests += 1
        self.tokens += sum(counts)
        self.cached += sum(counts[:shared])
        self._last = view

    @property
    def cost(self) -> float:
        """In plain input tokens."""
        plain = self.prices.input or 1.0
        read, write = (plain if price is None else price for price in (self.prices.cache_read, self.prices.cache_write))
        return (read * self.cached + write * (self.tokens - self.cached)) / plain


def shared_beginning(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages two views have in common before they first differ."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left is not right and left != right:
            return place
    return min(len(one), len(other))
