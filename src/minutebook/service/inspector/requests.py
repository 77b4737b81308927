"""The requests of a conversation: what each one sent, what was read from the prompt cache, and what it cost.

Successive requests send the same messages with new ones appended, until a cut. So a request has a reference to the
`ViewBase` that it shares with its neighbours, and the length of the record at that time.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from minutebook.history.cache_cost import TYPICAL_PRICES
from minutebook.history.curation import NoteStatus
from minutebook.record.message import Message
from minutebook.tokens.models import Prices

NOT_SENT: Final = frozenset({NoteStatus.DROPPED, NoteStatus.FOLDED})


class SentPart(NamedTuple):
    """Neighbouring messages of the record that are sent unchanged, or one message that is sent in another form."""

    start: int
    stop: int
    """For a message that is not in the record, equal to `start`: it is sent before that position."""
    message: Message | None = None
    """What is sent instead; None if the messages are sent unchanged."""
    tokens: int = 0
    """Tokens of `message`."""

    @property
    def is_added(self) -> bool:
        return self.message is not None and self.start == self.stop


class FateRun(NamedTuple):
    """Neighbouring messages of the record that are changed or left out, with the same status and for the same reason."""

    start: int
    stop: int
    status: NoteStatus
    reason: str

    def is_like(self, other: "FateRun | None") -> bool:
        """Whether messages of both have the same fate. Another fold is another fate, with a fold's id in its reason."""
        return (
            other is not None
            and other.status is self.status
            and (self.status is not NoteStatus.FOLDED or other.reason == self.reason)
        )


def _start(run: FateRun) -> int:
    return run.start


@dataclass(frozen=True, eq=False)
class ViewBase:
    """What requests send of the first `length` messages of the record. Later messages are sent unchanged."""

    length: int
    parts: tuple[SentPart, ...]
    runs: tuple[FateRun, ...]
    """By start. Messages that are in no run are sent unchanged."""
    tokens: int

    @cached_property
    def added(self) -> tuple[SentPart, ...]:
        """The messages that are not in the record."""
        return tuple(part for part in self.parts if part.is_added)

    @cached_property
    def changed(self) -> dict[int, SentPart]:
        """By position, the messages that are sent in another form."""
        return {part.start: part for part in self.parts if part.message is not None and not part.is_added}

    def run_at(self, position: int) -> FateRun | None:
        """The run that contains a position; None if the message is sent unchanged."""
        index = bisect_right(self.runs, position, key=_start) - 1
        return self.runs[index] if index >= 0 and position < self.runs[index].stop else None

    def edges(self, start: int, stop: int) -> Iterator[int]:
        """The positions between `start` and `stop` where runs start or end."""
        for run in self.runs[max(0, bisect_right(self.runs, start, key=_start) - 1) :]:
            if run.start >= stop:
                break
            yield from (edge for edge in (run.start, run.stop) if start < edge < stop)

    def parts_at(self, length: int) -> Iterator[SentPart]:
        """The parts of a request when the record had that many messages."""
        yield from self.parts
        if length > self.length:
            yield SentPart(self.length, length)


class CacheBreak(NamedTuple):
    """Where a request differs from the one before, so that the prompt cache ends."""

    position: int
    """Position in the record after the last message that is read from the cache."""
    cost_uncut: float
    """The cost of the request if it had continued the one before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InspectedRequest:
    """One request to a model."""

    number: int
    length: int
    """The number of messages that the record had."""
    base: ViewBase | None
    """The view that the request sends, shared with its neighbours. None if there was no view: the request was refused."""
    record_tokens: int
    sent: int
    """Tokens of the messages that were sent."""
    cached: int
    cost: float
    """Input only, in the unit of `Pricing`."""
    full_cost: float
    """The cost of sending the whole record."""
    cache_break: CacheBreak | None = None
    folds: frozenset[str] = frozenset()
    """Ids of the folds that were applied."""
    new_folds: frozenset[str] = frozenset()
    """Of these, the folds that the request before did not have."""
    refusal: str | None = None
    """Why there is no view."""
    at: datetime | None = None
    model: str | None = None
    output: int | None = None
    """Tokens of the answer, if they were reported."""
    is_reported: bool = False
    """Whether `sent` and `cached` are the provider's figures. Otherwise they are counted and simulated."""
    problem: str | None = None
    """Why the request failed or was sent without its policy."""
    overflows: int = 0
    """How often the provider rejected a longer view, so that it was shortened and sent again."""

    @property
    def written(self) -> int:
        return max(0, self.sent - self.cached)

    @property
    def marks(self) -> tuple[str, ...]:
        """What happened at this request: `break`, `fold`, `overflow`, `refused`, `error`."""
        if self.cache_break is None and not (self.new_folds or self.overflows or self.refusal or self.problem):
            return ()  # most requests
        events = {
            "break": self.cache_break is not None,
            "fold": bool(self.new_folds),
            "overflow": self.overflows > 0,
            "refused": self.refusal is not None,
            "error": self.problem is not None,
        }
        return tuple(name for name, happened in events.items() if happened)


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of input tokens: US dollars if the model's prices are known, else relative to plain input."""

    prices: Prices = TYPICAL_PRICES
    is_known: bool = False

    def cost(self, cached: int, written: int, uncached: int = 0) -> float:
        """The cost of one request, in dollars or in tokens of plain input.

        `uncached` tokens are neither read from the cache nor written to it.
        """
        plain = self.prices.input or 1.0
        read = plain if self.prices.cache_read is None else self.prices.cache_read
        write = plain if self.prices.cache_write is None else self.prices.cache_write
        return (cached * read + written * write + uncached * plain) / (1e6 if self.is_known else plain)


@dataclass(slots=True)
class RequestSeries:
    """The requests of a conversation so far. Each is compared with the one before it."""

    token_sums: Sequence[int]
    """Tokens of the record before each position. It grows with the record."""
    pricing: Pricing
    requests: list[InspectedRequest] = field(default_factory=list)
    cost: float = 0.0
    """Of all requests together."""
    full_cost: float = 0.0
    bases: list[tuple[ViewBase, int]] = field(default_factory=list)
    """Each base, with the number of the first request that has it."""
    _last: InspectedRequest | None = None
    """The last request that was not refused."""
    _reads_cache: bool = True
    """Whether the provider reported tokens from its cache for the last request that could have some."""

    def add(
        self,
        length: int,
        base: ViewBase | None,
        *,
        folds: frozenset[str] = frozenset(),
        refusal: str | None = None,
        reported: "ReportedUsage | None" = None,
        at: datetime | None = None,
        model: str | None = None,
        problem: str | None = None,
        overflows: int = 0,
    ) -> InspectedRequest:
        """Append a request. `base` is None if it was refused."""
        record_tokens, last = self.token_sums[length], self._last
        facts: dict[str, Any] = {
            "number": len(self.requests) + 1,
            "length": length,
            "at": at,
            "model": model,
            "problem": problem,
            "overflows": overflows,
        }
        if base is None:
            request = InspectedRequest(
                **facts, base=None, record_tokens=record_tokens, sent=0, cached=0, cost=0.0, full_cost=0.0,
                refusal=refusal,
            )  # fmt: skip
            self.requests.append(request)
            return request
        sent = base.tokens + record_tokens - self.token_sums[min(base.length, length)]
        cached, position = (0, None) if last is None else self._shared(last, base, length)
        cost = self.pricing.cost(cached, sent - cached)
        if reported is not None:
            sent, cached = reported.input, min(reported.cached, reported.input)
            written = min(reported.cache_written, sent - cached)
            cost = self.pricing.cost(cached, written, sent - cached - written)
            if cached or (last is not None and position is None):
                self._reads_cache = cached > 0
        cache_break = None
        if last is not None and position is not None:
            growth = record_tokens - last.record_tokens
            cache_break = CacheBreak(position, self._cost_of_longer(last.sent, max(0, growth), reported))
        last_tokens = 0 if last is None else min(last.record_tokens, record_tokens)
        request = InspectedRequest(
            **facts,
            base=base,
            record_tokens=record_tokens,
            sent=sent,
            cached=cached,
            cost=cost,
            full_cost=self._cost_of_longer(last_tokens, record_tokens - last_tokens, reported),
            cache_break=cache_break,
            folds=folds,
            new_folds=folds if last is None else folds - last.folds,
            output=None if reported is None else reported.output,
            is_reported=reported is not None,
        )
        if not self.bases or self.bases[-1][0] is not base:
            self.bases.append((base, request.number))
        self.requests.append(request)
        self.cost += request.cost
        self.full_cost += request.full_cost
        self._last = request
        return request

    def _cost_of_longer(self, earlier: int, added: int, reported: "ReportedUsage | None") -> float:
        """The cost if the request had sent what was sent earlier and what was added since.

        The provider is taken to use its cache as it reported.
        """
        if reported is None:
            return self.pricing.cost(earlier, added)
        cached, rest = (earlier, added) if self._reads_cache else (0, earlier + added)
        return self.pricing.cost(cached, rest) if reported.cache_written else self.pricing.cost(cached, 0, rest)

    def _shared(self, last: InspectedRequest, base: ViewBase, length: int) -> tuple[int, int | None]:
        """Tokens of the prefix that two requests share, and the position after it.

        The position is None if the second request is the first one with messages appended.
        """
        assert last.base is not None
        if last.base is base and length >= last.length:
            return last.sent if not last.is_reported else self._view_tokens(last), None
        tokens = end = 0
        pieces, others = _pieces(last.base.parts_at(last.length)), _pieces(base.parts_at(length))
        before, now = next(pieces, None), next(others, None)
        while before is not None and now is not None:
            if before.message is None and now.message is None and before.start == now.start:
                end = min(before.stop, now.stop)
                tokens += self.token_sums[end] - self.token_sums[before.start]
                before = before._replace(start=end) if end < before.stop else next(pieces, None)
                now = now._replace(start=end) if end < now.stop else next(others, None)
            elif before.message is not None and (before.message is now.message or before.message == now.message):
                tokens += now.tokens
                end = now.stop
                before, now = next(pieces, None), next(others, None)
            else:
                break
        return tokens, None if before is None else end

    def _view_tokens(self, request: InspectedRequest) -> int:
        assert request.base is not None
        base = request.base
        return base.tokens + request.record_tokens - self.token_sums[min(base.length, request.length)]


class ReportedUsage(NamedTuple):
    """The token counts that a provider reported for a request."""

    input: int
    cached: int
    cache_written: int
    """Tokens that were written to the cache at an extra price."""
    output: int


def _pieces(parts: Iterator[SentPart]) -> Iterator[SentPart]:
    return (part for part in parts if part.message is not None or part.start < part.stop)
