"""Truncate the middle of a conversation: the first user message and the newest messages stay, a marker replaces the rest."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Final

from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    essential_indexes,
    foldable_ranges,
    last_turns_start,
    pinned_messages,
    required_indexes,
    tail_start,
)
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.errors import CannotFit
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.incremental import last_exchange
from minutebook.history.tool_results import cleared_result
from minutebook.record.fold import Fold
from minutebook.record.message import Message, role_of
from minutebook.record.transcript import Transcript

TARGET_RATIO: Final = 0.7
"""Share of the context window to which a truncated conversation is cut."""
_MARKER_TOKENS: Final = 24
"""Approximate tokens of the marker."""


@dataclass(frozen=True, slots=True)
class TruncateStrategy(WindowStrategy):
    """Above 80 % of the window, keep the first user message and as many of the last whole exchanges as fit in 70 %.

    With `keep_turns` at most that number of turns is kept, and they are kept whole if they fit.

    Raises:
        InvalidSetting: a share or `keep_turns` is out of range.
    """

    name = "truncate"
    target: float = TARGET_RATIO
    threshold: float = DEFAULT_THRESHOLD
    """Share of the window above which the conversation is truncated."""
    keep_turns: int | None = None

    async def apply(self, history: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:  # noqa: ARG002 - it needs none
        for fold in truncation_folds(history, int(history.limit * self.target), keep_turns=self.keep_turns):
            yield fold


def truncation_folds(history: CompactionInput, max_tokens: int, *, keep_turns: int | None = None) -> list[Fold]:
    """The folds that truncate a conversation to about `max_tokens`; an empty list if it cannot be truncated further."""
    record = history.record
    required = required_indexes(record)
    first = record.first_request
    if (
        first is not None
        and first != record.newest_request
        and _other_required_tokens(record, required) > max_tokens // 2
    ):
        # A first user message this long would leave too few tokens for the newest messages.
        required = essential_indexes(record)
    tail_tokens = max_tokens - history.overhead_tokens - _MARKER_TOKENS - _other_required_tokens(record, required)
    floor = history.folded_until
    kept_from = None if keep_turns is None else last_turns_start(record, keep_turns, tail_tokens, no_earlier_than=floor)
    if kept_from is None:
        kept_from = tail_start(record, tail_tokens, no_earlier_than=floor)
    folds = _marker_folds(history, required, kept_from)
    return folds if history.with_folds(folds).tokens < history.tokens else []


def fitting_folds(history: CompactionInput) -> list[Fold]:
    """The folds after which a conversation that exceeds the window fits. They remove as little as possible.

    Raises:
        CannotFit: the essential messages exceed the window, even with the newest tool results cleared.
    """
    for folds in _cuts(history):
        if history.with_folds(folds).tokens <= history.limit:
            return folds
    raise _cannot_fit(history)


def _cuts(history: CompactionInput) -> Iterator[list[Fold]]:
    """Lists of folds that remove more and more: old messages, then also the newest results and the first user message."""
    record = history.record
    yield from _with_newest_clipped(history, truncation_folds(history, int(history.limit * TARGET_RATIO)))
    essential, stop = essential_indexes(record), last_exchange(record).start
    yield from _with_newest_clipped(history, _marker_folds(history, essential, stop))
    bare = [
        replace(fold, shown=pinned_messages(record, range(fold.start, fold.stop)))
        for fold in _marker_folds(history, essential, stop)
    ]
    yield from _with_newest_clipped(history, bare)


def _with_newest_clipped(history: CompactionInput, folds: list[Fold]) -> Iterator[list[Fold]]:
    """The folds alone, then with one that clips the newest results, first so that tokens for the next messages are left."""
    yield folds
    for share in (TARGET_RATIO, 1.0):
        clip = clipped_newest_exchange(history.with_folds(folds), share)
        if clip is not None:
            yield [*folds, clip]


def _marker_folds(history: CompactionInput, required: set[int], stop: int) -> list[Fold]:
    """Folds over everything before `stop` that may be folded. The first shows the earlier summaries and a marker."""
    ranges = foldable_ranges(history, required, stop)
    count = sum(map(len, ranges))
    summaries = tuple(message for fold in history.active_folds for message in fold.shown if is_summary(message))
    text = f"{count} earlier messages truncated to fit context window"
    marker: Message = {"role": "system", "content": f"[{text}]", "kind": "marker"}
    return [
        Fold(
            f"truncate-{indexes.start}-{indexes.stop}-{number}-{count}",
            indexes.start,
            indexes.stop,
            (*(() if number else (*summaries, marker)), *pinned_messages(history.record, indexes)),
            text,
        )
        for number, indexes in enumerate(ranges)
    ]


def clipped_newest_exchange(history: CompactionInput, share: float = 1.0) -> Fold | None:
    """A fold that shows the newest exchange with its tool results cut to this share of the tokens left.

    None if that is not enough, or if the exchange is pinned.
    """
    record = history.record
    newest = last_exchange(record)
    if not newest or not record.pins.isdisjoint(newest):
        return None
    fold_id = f"clip-{newest.start}-{newest.stop}"
    other_tokens = history.with_folds([Fold(fold_id, newest.start, newest.stop, (), "")]).tokens
    exchange = Transcript(record[newest.start : newest.stop], counter=record.counter, broken="mark")
    tokens_left = int((history.limit - other_tokens) * share)
    try:
        view = TokenBudgetManager(max(1, tokens_left), counter=record.counter).curate(exchange)
    except CannotFit:
        return None
    reason = "the newest tool results have more tokens than are left"
    return Fold(fold_id, newest.start, newest.stop, tuple(view), reason)


def _cannot_fit(history: CompactionInput) -> CannotFit:
    record = history.record
    parts = []
    tokens = history.overhead_tokens
    for index in sorted(essential_indexes(record)):
        cleared = cleared_result(record, index) if index not in record.pins else None
        cost = (
            record.tokens_of(index)
            if cleared is None
            else min(record.tokens_of(index), record.counter.message(cleared[0]))
        )
        parts.append((f"the {role_of(record[index])} message", index, cost))
        tokens += cost
    return CannotFit(history.limit, max(tokens, history.limit + 1), parts)


def _other_required_tokens(record: Transcript, required: set[int]) -> int:
    """Tokens of the required messages that are not in the last exchange, which is in every tail."""
    return sum(record.tokens_of(index) for index in required - set(last_exchange(record)))
