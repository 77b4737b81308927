"""What a provider's prompt cache makes of a row of views.

A cache holds the longest beginning that a request shares with the one before it. What is read from it costs a fraction,
what has to be written costs a little more than plain input, so a view that changes early costs more than a longer one
that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from minutebook.record.message import Message


@dataclass(frozen=True, slots=True)
class CachePrices:
    """Prices relative to a plain input token."""

    read: float = 0.1
    write: float = 1.25


@dataclass(slots=True)
class CacheLedger:
    """Adds up what a row of requests costs with prompt caching."""

    prices: CachePrices = CachePrices()
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    busts: int = 0
    """How many requests were not the one before with something appended."""
    _last: Sequence[Message] = ()

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
        return self.prices.read * self.cached + self.prices.write * (self.tokens - self.cached)


def shared_beginning(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages two views have in common before they first differ."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left is not right and left != right:
            return place
    return min(len(one), len(other))
