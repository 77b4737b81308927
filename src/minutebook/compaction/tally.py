"""How often each fact was named and how lately, in the order of what it is worth to keep.

It can be added to: what is folded of a record only grows, and what was counted before is not counted again.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from math import log2
from typing import Final, TypeAlias

from minutebook.record.message import Message, is_result
from minutebook.tokens import TokenCounter

Key: TypeAlias = tuple[str, str]
"""The kind of a fact, and its text."""

REQUEST: Final = 100
"""Characters of a user's request that are kept."""
_SURE: Final = 2
"""So many facts of each kind come before all others."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What is worth more, beside what is named often and costs little. All kinds of facts are weighed alike."""

    own_words: int = 4
    """What is named in a request, an answer or a call counts as so many uses: it comes again far more often than what
    only stands in a result."""
    half_life: float = 300
    """Messages after which a fact is half as likely to come again."""


WEIGHTS: Final = Weights()


class Tally:
    """The facts of some messages, as they are counted."""

    def __init__(self, counter: TokenCounter, weights: Weights = WEIGHTS) -> None:
        self.weights = weights
        self.counter = counter
        self.count: Callable[[str], int] = cache(counter.count)
        """The tokens of a short text, which is asked for again and again."""
        self.uses: dict[Key, int] = {}
        self.last: dict[Key, int] = {}
        """The message in which a fact was named last."""
        self._new: set[Key] = set()
        self._worths: dict[Key, float] = {}
        """What the facts are worth, negative, so that the best is the first."""
        self._ranked: dict[str, list[tuple[float, str]]] = {}
        """Of each kind what its facts are worth and their texts, in order."""

    def add(self, place: int, message: Message, named: Iterable[Key]) -> None:
        """Count what a message names. One that stands before others may come after them."""
        weight = 1 if is_result(message) else self.weights.own_words
        for key in named:
            self.uses[key] = self.uses.get(key, 0) + weight
            self.last[key] = max(place, self.last.get(key, place))
            self._new.add(key)

    def best(self, known: Container[Key], said: str = "") -> Iterator[Key]:
        """The facts that are neither known nor said, those first that are most likely needed again for what they cost.

        Of every kind the best come before all. A path of which a longer form came already is left out: who reads the
        one has the other.
        """
        self._rank()
        first = sorted(entry for kind in self._ranked for entry in islice(self._unknown(kind, known, said), _SURE))
        rest = heapq.merge(*(islice(self._unknown(kind, known, said), _SURE, None) for kind in self._ranked))
        told: set[Key] = set()
        for _, text, kind in chain(first, rest):  # many paths must not leave a request or the one order number no room
            if (kind, text) not in told:
                told.update(forms(kind, text))
                yield kind, text

    def _unknown(self, kind: str, known: Container[Key], said: str) -> Iterator[tuple[float, str, str]]:
        for worth, text in self._ranked[kind]:
            if (kind, text) not in known and text not in said:
                yield worth, text, kind

    def _rank(self) -> None:
        """Put what was counted since the last time in its place."""
        for key in self._new:
            kind, text = key
            ranked = self._ranked.setdefault(kind, [])
            if (before := self._worths.get(key)) is not None:
                del ranked[bisect_left(ranked, (before, text))]
            self._worths[key] = -self._worth(key)
            insort(ranked, (self._worths[key], text))
        self._new.clear()

    def _worth(self, key: Key) -> float:
        """How likely a fact is needed again, for each token that it costs in the ledger; as a logarithm.

        As such it need not be reckoned anew when time goes by: that takes as much from all of them.
        """
        kind, text = key
        folder, name = split(kind, text)
        # Its folder is shared with others, about. A short request is not a better one.
        cost = REQUEST / 5 if kind == "requests" else self.count(name) + 1 + self.count(folder) / 2
        return log2(self.uses[key] / cost) + self.last[key] / self.weights.half_life


def forms(kind: str, text: str) -> Iterator[Key]:
    """A fact, and what else is named by it: `src/app/main.py` names `app/main.py` and `main.py` too."""
    yield kind, text
    while kind == "paths" and "/" in text:
        text = text.partition("/")[2]
        yield kind, text


def split(kind: str, text: str) -> Key:
    """The folder of a path and the name in it; no folder for what is no path, or cannot be written with others."""
    if kind != "paths":
        return "", text
    folder, slash, name = text.rpartition("/")
    return (f"{folder}/", name) if slash and name and _MARKS.isdisjoint(text) else ("", text)


_MARKS: Final = frozenset("{},")
