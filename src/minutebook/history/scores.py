"""Scores of exchanges: which of them a cut of `TokenBudgetManager(scorer=…)` leaves out first.

A scorer is any object with `score`. The default order, oldest first, needs none, and in recorded sessions no score kept
more of what later answers used. A scorer helps where relevance is known better than age tells, as in support chats.
"""

import re
import reprlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isnan, log, nan, sqrt
from typing import Any, Final, Protocol, runtime_checkable

from minutebook.errors import InvalidResult, MinutebookError, PromptEvaluationError
from minutebook.history.names import full_text
from minutebook.record.message import Message

_WORD: Final = re.compile(r"\w+")
_SATURATION: Final = 1.2
"""How soon further occurrences of a word count less (BM25's k1)."""
_LENGTH_WEIGHT: Final = 0.75
"""How much long exchanges are scored lower (BM25's b)."""
_CACHED_VECTORS: Final = 10_000


@dataclass(frozen=True, eq=False)
class ScoreContext:
    """What the scores of one cut are relative to."""

    request: Message | None
    """The newest user message; None if there is none."""
    exchanges: Sequence[Sequence[Message]]
    """All exchanges that are scored, oldest first."""

    @cached_property
    def request_words(self) -> frozenset[str]:
        """The different words of the request, in lower case."""
        return frozenset(words_of([self.request] if self.request else []))

    @cached_property
    def _words(self) -> list[list[str]]:
        return list(map(words_of, self.exchanges))

    @cached_property
    def average_length(self) -> float:
        """The mean number of words of the exchanges."""
        return sum(map(len, self._words)) / max(1, len(self._words))

    @cached_property
    def frequencies(self) -> Counter[str]:
        """In how many exchanges each word occurs."""
        return Counter(word for words in self._words for word in set(words))


@runtime_checkable
class Scorer(Protocol):
    """Decides which exchanges a cut keeps. It must be hashable, and give equal scores for equal arguments."""

    def score(self, exchange: Sequence[Message], context: ScoreContext) -> float:
        """How important the exchange is for the next calls. The exchanges with the lowest scores are left out first."""
        ...


@dataclass(frozen=True, slots=True)
class BM25Scorer:
    """Scores an exchange by the words that it shares with the newest request: rare words count more."""

    def score(self, exchange: Sequence[Message], context: ScoreContext) -> float:
        words = words_of(exchange)
        counts = Counter(words)
        length_factor = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(words) / max(1.0, context.average_length)
        score = 0.0
        for word in sorted(context.request_words & counts.keys()):  # in one order, so that equal sums are equal floats
            matches = context.frequencies[word]
            rarity = log(1 + (len(context.exchanges) - matches + 0.5) / (matches + 0.5))
            score += rarity * counts[word] * (_SATURATION + 1) / (counts[word] + _SATURATION * length_factor)
        return score


class EmbeddingScorer:
    """Scores an exchange by the cosine of its embedding and that of the newest request."""

    def __init__(self, embed: Callable[[str], Sequence[float]]) -> None:
        """`embed` returns the vector of a text, such as `lambda text: model.encode(text)`."""
        self._embed = lru_cache(_CACHED_VECTORS)(lambda text: tuple(map(float, embed(text))))

    def score(self, exchange: Sequence[Message], context: ScoreContext) -> float:
        if context.request is None:
            return 0.0
        vector, request_vector = self._embed(_text_of(exchange)), self._embed(full_text(context.request))
        norm = sqrt(sum(x * x for x in vector) * sum(y * y for y in request_vector))
        return sum(x * y for x, y in zip(vector, request_vector, strict=True)) / norm if norm else 0.0


def scores_of(
    scorer: Scorer, messages: Sequence[Message], exchanges: Sequence[range], request: int | None
) -> dict[range, float]:
    """The score of each of these exchanges of some messages; `request` is the index of the newest user message.

    Raises:
        InvalidResult: the scorer returned no number.
        PromptEvaluationError: the scorer raised.
    """
    contents = [[messages[index] for index in exchange] for exchange in exchanges]
    context = ScoreContext(None if request is None else messages[request], contents)
    scores: dict[range, float] = {}
    for exchange, content in zip(exchanges, contents, strict=True):
        scores[exchange] = _score(scorer, content, context)
    return scores


def _score(scorer: Scorer, exchange: Sequence[Message], context: ScoreContext) -> float:
    method = f"{type(scorer).__name__}.score"
    try:
        value: Any = scorer.score(exchange, context)
    except MinutebookError:
        raise
    except Exception as error:  # the scorer is user code
        raise PromptEvaluationError("view_of", "request", f"{method} raised {type(error).__name__}: {error}") from error
    try:
        score = nan if isinstance(value, str) else float(value)  # also a number of another library
    except (TypeError, ValueError, OverflowError):
        score = nan
    if isnan(score):
        raise InvalidResult(method, reprlib.repr(value), "return a number")
    return score


def words_of(exchange: Sequence[Message]) -> list[str]:
    """The words of some messages, in lower case."""
    return _WORD.findall(_text_of(exchange).lower())


def _text_of(exchange: Sequence[Message]) -> str:
    return "\n".join(map(full_text, exchange))
