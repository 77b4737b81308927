"""Truncate the middle of a conversation: the first user message and the newest messages stay, a marker replaces the rest."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from operator import is_
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
from minutebook.compaction.summarizer import (
    Summarizer,
    SummaryRole,
    head,
    is_summary,
    summary_message,
    summary_text,
)
from minutebook.errors import CannotFit
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.incremental import last_exchange
from minutebook.history.tool_results import cleared_result
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user, role_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

TARGET_RATIO: Final = 0.7
"""Share of the context window to which a truncated conversation is cut."""
_SHORT_SUMMARY_SHARE: Final = 0.125
"""Share of the window to which earlier summaries are shortened, if the conversation would not fit otherwise."""
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
    required = required_indexes(history)
    has_early_request = record.first_request is not None and record.first_request != record.newest_request
    if has_early_request and _tokens_before_last_exchange(record, required) > max_tokens // 2:
        # A first user message this long would leave too few tokens for the newest messages.
        required = essential_indexes(history)
    tail_tokens = max_tokens - history.overhead_tokens - _MARKER_TOKENS - _tokens_before_last_exchange(record, required)
    folded_until = history.folded_until
    start = None
    if keep_turns is not None:
        start = last_turns_start(record, keep_turns, tail_tokens, no_earlier_than=folded_until)
    if start is None:
        start = tail_start(history, tail_tokens)
    folds = _marker_folds(history, required, start)
    return folds if history.with_folds(folds).tokens < history.tokens else []


def fitting_folds(history: CompactionInput) -> list[Fold]:
    """Folds that make a conversation fit which exceeds the window: the first of `_candidate_folds` that is enough.

    Raises:
        CannotFit: the essential messages exceed the window, even with the newest tool results cleared.
    """
    for folds in _candidate_folds(history):
        if history.with_folds(folds).tokens <= history.limit:
            return folds
    raise _cannot_fit(history)


def _candidate_folds(history: CompactionInput) -> Iterator[list[Fold]]:
    """Lists of folds, each removing more than the one before.

    First old messages are removed, then earlier summaries are also shortened or removed, then all messages before the last
    exchange that are not essential, then also the earlier summaries and the marker.
    """
    record = history.record
    max_tokens = int(history.limit * TARGET_RATIO)
    yield from _with_newest_clipped(history, truncation_folds(history, max_tokens))
    for share in (_SHORT_SUMMARY_SHARE, 0.0):
        shorter = _folds_with_short_summaries(history, int(history.limit * share))
        if shorter:
            truncation = truncation_folds(history.with_folds(shorter), max_tokens)
            yield from _with_newest_clipped(history, [*shorter, *truncation])
    marker_folds = _marker_folds(history, essential_indexes(history), history.newest_messages.start)
    yield from _with_newest_clipped(history, marker_folds)
    folds_without_marker = [
        replace(fold, shown=pinned_messages(record, range(fold.start, fold.stop))) for fold in marker_folds
    ]
    yield from _with_newest_clipped(history, folds_without_marker)


def _folds_with_short_summaries(history: CompactionInput, max_tokens: int) -> list[Fold]:
    """A replacement for each active fold with a summary above `max_tokens`: it shows the summary shortened, or not at all."""
    counter = history.record.counter
    result = []
    for fold in history.active_folds:
        shown = [
            shorter
            for message in fold.shown
            if (shorter := _short_summary(message, counter, max_tokens) if is_summary(message) else message) is not None
        ]
        if not all(map(is_, shown, fold.shown)) or len(shown) < len(fold.shown):
            fold_id = f"shorten-{fold.start}-{fold.stop}-{max_tokens}"
            result.append(Fold(fold_id, fold.start, fold.stop, tuple(shown), fold.reason))
    return result


def _short_summary(message: Message, counter: TokenCounter, max_tokens: int) -> Message | None:
    """The summary with at most `max_tokens`; None if that leaves no text."""
    if counter.message(message) <= max_tokens:
        return message
    role: SummaryRole = "user" if is_user(message) else "system"
    text_tokens = max_tokens - counter.message(summary_message("", role))
    text = head(summary_text(message), counter, text_tokens)
    return summary_message(text, role) if text else None


def _with_newest_clipped(history: CompactionInput, folds: list[Fold]) -> Iterator[list[Fold]]:
    """The folds alone, then with a fold that clips the newest results.

    The results are first clipped to a share of the tokens left, so that the next messages fit too, then to all of them.
    """
    yield folds
    for share in (TARGET_RATIO, 1.0):
        clip = clipped_newest_exchange(history.with_folds(folds), share)
        if clip is not None:
            yield [*folds, clip]


def _marker_folds(history: CompactionInput, required: set[int], stop: int) -> list[Fold]:
    """Folds over everything before `stop` that may be folded. The first fold shows the earlier summaries and a marker."""
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

    None if that is not enough, or if the exchange is pinned or folded with earlier messages.
    """
    record = history.record
    newest = last_exchange(record)
    if not newest or newest != history.newest_messages or not record.pins.isdisjoint(newest):
        return None
    fold_id = f"clip-{newest.start}-{newest.stop}"
    other_tokens = history.with_folds([Fold(fold_id, newest.start, newest.stop, (), "")]).tokens
    exchange = Transcript(record[newest.start : newest.stop], counter=record.counter, broken="mark")
    tokens_left = int((history.limit - other_tokens) * share)
    try:
        view = TokenBudgetManager(max(1, tokens_left), names=0, counter=record.counter).curate(exchange)
    except CannotFit:
        return None
    reason = "the newest tool results have more tokens than are left"
    return Fold(fold_id, newest.start, newest.stop, tuple(view), reason)


def _cannot_fit(history: CompactionInput) -> CannotFit:
    record = history.record
    parts = []
    tokens = history.overhead_tokens
    newest = last_exchange(record)
    clippable = set(newest) if record.pins.isdisjoint(newest) else set()
    for index in sorted(essential_indexes(history)):
        message_tokens = record.tokens_of(index)
        cleared = cleared_result(record, index) if index in clippable else None
        if cleared is not None:
            message_tokens = min(message_tokens, record.counter.message(cleared[0]))
        position = record.position_of(index)
        parts.append((f"the {role_of(record[index])} message", index if position is None else position, message_tokens))
        tokens += message_tokens
    return CannotFit(history.limit, max(tokens, history.limit + 1), parts)


def _tokens_before_last_exchange(record: Transcript, required: set[int]) -> int:
    """Tokens of the required messages that are not in the last exchange. That one is in every tail anyway."""
    return sum(record.tokens_of(index) for index in required - set(last_exchange(record)))
