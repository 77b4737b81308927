"""What a compaction strategy is.

What a strategy looks at before it decides: the record, what of it is folded already, and the model's window.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.errors import InvalidSetting
from minutebook.history.incremental import last_exchange
from minutebook.record.fold import Fold, active_folds, record_with_folds
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A conversation before a call of a model."""

    record: Transcript
    folds: tuple[Fold, ...]
    """All folds that were made, in their order."""
    model: ModelInfo
    overhead_tokens: int = 0
    """What the call sends besides messages: tools, and a system prompt that is not in the record."""
    reply_tokens: int | None = None
    """What is kept free for the answer."""

    @property
    def shown(self) -> Transcript:
        """The record as its folds show it."""
        return record_with_folds(self.record, self.folds).transcript

    @property
    def tokens(self) -> int:
        """What the next call would send, before any manager."""
        return self.shown.tokens + self.overhead_tokens

    @property
    def turns(self) -> int:
        """How many turns no fold covers; found without a look at each of them."""
        starts = self.record.turn_starts
        hidden = (bisect_left(starts, fold.stop) - bisect_left(starts, fold.start) for fold in self.standing)
        return len(starts) - sum(hidden)

    @property
    def limit(self) -> int:
        """What it may send."""
        if self.reply_tokens is None:
            return self.model.max_input_tokens
        return self.model.room(reply_tokens=self.reply_tokens)

    def with_folds(self, added: Iterable[Fold]) -> "CompactionInput":
        return replace(self, folds=(*self.folds, *added))

    @property
    def standing(self) -> list[Fold]:
        """The folds that no later one has taken the place of, in the order of the record."""
        return active_folds(self.record, self.folds)

    @property
    def summary(self) -> Fold | None:
        """The standing fold that shows a summary."""
        return next(filter(is_summary_fold, self.standing), None)


def is_summary_fold(fold: Fold) -> bool:
    """Whether a fold shows a summary, so that its maker has read what it covers. A marker's has not."""
    return any(map(is_summary, fold.shown))


def essentials(record: Transcript) -> set[int]:
    """Where the messages stand that no compaction takes: system, pins, the first and the newest request, what is open."""
    kept = set(range(record.lead)) | set(last_exchange(record))
    kept |= {place for pin in record.pins for place in record.exchange_of(pin)}
    for request in (record.first_request, record.newest_request):
        if request is not None:
            kept |= set(record.exchange_of(request))
    return kept


def tail_start(record: Transcript, room: int, *, no_earlier_than: int = 0) -> int:
    """Where the last whole exchanges begin that have so many tokens together; the last one is always among them."""
    start = last_exchange(record).start
    room -= sum(map(record.tokens_of, range(start, len(record))))
    while start > no_earlier_than:
        before = record.exchange_of(start - 1)
        room -= sum(map(record.tokens_of, before))
        if room < 0 or before.start < no_earlier_than:
            break
        start = before.start
    return start


def turns_start(record: Transcript, keep_turns: int, room: int, *, no_earlier_than: int = 0) -> int | None:
    """Where the last so many turns begin, if they have no more than so many tokens together."""
    turns = record.turn_starts
    starts = turns[max(bisect_left(turns, no_earlier_than), len(turns) - keep_turns) :]
    return starts[0] if starts and has_at_most(record, starts[0], len(record), room) else None


def has_at_most(record: Transcript, start: int, stop: int, tokens: int) -> bool:
    """Whether a stretch has no more than so many tokens; of a longer one only so much is looked at."""
    for place in range(start, stop):
        tokens -= record.tokens_of(place)
        if tokens < 0:
            return False
    return tokens >= 0


def runs(situation: CompactionInput, kept: set[int], stop: int) -> list[range]:
    """The stretches up to `stop` that may be folded: all that is not kept, and all that is folded already."""
    standing, start = situation.standing, situation.record.lead
    between = sorted(
        place
        for place in kept
        if start <= place < stop and not any(fold.start <= place < fold.stop for fold in standing)
    )
    found = [range(before + 1, after) for before, after in pairwise([start - 1, *between, max(start, stop)])]
    return [run for run in found if run]


def outside(run: range, others: Sequence[range]) -> Iterator[int]:
    """The places of a stretch that are in none of the others, which are in order."""
    place = run.start
    for other in others:
        yield from range(place, min(other.start, run.stop))
        place = max(place, other.stop)
    yield from range(place, run.stop)


DEFAULT_THRESHOLD: Final = 0.8
"""A window that is fuller than this is compacted."""


@runtime_checkable
class HistoryStrategy(Protocol):
    """Decides that a fold is due, and makes it. It changes nothing itself: whoever asked keeps the folds, or not."""

    @property
    def name(self) -> str:
        """What notices and reasons call it."""
        ...

    def should_trigger(self, situation: CompactionInput) -> bool:
        """Whether something must be folded before the next call."""
        ...

    def apply(self, situation: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        """The folds to add. Whatever is raised, nothing is changed."""
        ...


class WindowStrategy:
    """What the strategies share that fold when the window is fuller than a share of it."""

    __slots__ = ()
    threshold: float
    target: float

    def __post_init__(self) -> None:
        require_thresholds(self.threshold, self.target)
        keep_turns = getattr(self, "keep_turns", None)
        if keep_turns is not None and keep_turns < 1:
            raise InvalidSetting("keep_turns", keep_turns, "1 or more, or None for as much as there is room for")

    def should_trigger(self, situation: CompactionInput) -> bool:
        return is_too_full(situation, self.threshold)


def is_too_full(situation: CompactionInput, threshold: float = DEFAULT_THRESHOLD) -> bool:
    """Whether the next call would send more than this share of the window; exactly as much is not too much."""
    return situation.tokens > int(situation.limit * threshold)


def require_thresholds(threshold: float, target: float) -> None:
    """Raise InvalidSetting unless both are shares of the window, and compacting leads to below where it is due."""
    if not 0 < threshold <= 1:
        raise InvalidSetting("threshold", threshold, "a share of the window above 0 and up to 1, such as 0.8")
    if not 0 < target < threshold:
        raise InvalidSetting("target", target, f"a share of the window above 0 and below the threshold, {threshold}")
