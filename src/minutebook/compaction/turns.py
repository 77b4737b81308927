"""Summarize old turns when the conversation has more than a maximum number of turns, whatever their size."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, get_args

from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.strategy import (
    CompactionInput,
    exceeds_threshold,
    indexes_outside,
    is_summary_fold,
    pinned_messages,
)
from minutebook.compaction.summarize import write_summary
from minutebook.compaction.summarizer import Summarizer, SummaryRole, is_summary, summary_message
from minutebook.errors import InvalidSetting, SummaryRejected
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user
from minutebook.tokens import total

_MIN_SUMMARY_TOKENS: Final = 12
"""If fewer tokens are left for the summary, nothing is folded."""
_SUMMARY_SHARE: Final = 0.25
_LEDGER_SHARE: Final = 0.125
"""Maximum shares of the window for the summary and its ledger."""
_MARGIN_TOKENS: Final = 4
"""A summary must save at least this many tokens."""


@dataclass(frozen=True, slots=True)
class TurnStrategy:
    """Summarize all but the last few turns when more than `max_turns` turns are not folded.

    One fold shows the summary and, after it, the pinned messages. With a `threshold`, compaction is also due when the
    conversation uses more than that share of the window.

    Raises:
        InvalidSetting: `keep_turns` exceeds `max_turns`, or a setting is out of range.
    """

    name = "turns"
    max_turns: int = 10
    """Maximum number of turns that are not folded."""
    keep_turns: int = 3
    """Number of turns that are kept whole when the others are summarized."""
    max_summary_tokens: int = 1_000
    max_ledger_tokens: int = 500
    """0 for no ledger."""
    summary_role: SummaryRole = "system"
    """Role of the message that shows the summary."""
    threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_turns", "keep_turns", "max_summary_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidSetting(name, value, "a whole number above 0")
        if self.keep_turns > self.max_turns:
            raise InvalidSetting("keep_turns", self.keep_turns, f"1 to max_turns, which is {self.max_turns}")
        if self.summary_role not in get_args(SummaryRole):
            raise InvalidSetting("summary_role", self.summary_role, "'system' or 'user'")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise InvalidSetting("threshold", self.threshold, "a share of the window above 0 and up to 1, or None")

    def should_trigger(self, history: CompactionInput) -> bool:
        return history.turns > self.max_turns or (
            self.threshold is not None and exceeds_threshold(history, self.threshold)
        )

    async def apply(self, history: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        record, counter = history.record, history.record.counter
        folded = self._range_to_fold(history)
        previous = next(
            (fold for fold in history.active_folds if fold.start == folded.start and is_summary_fold(fold)), None
        )
        summarized_ranges = [] if previous is None else [range(previous.start, previous.stop)]
        leading = record.leading_system_count
        new_messages = [record[index] for index in indexes_outside(folded, summarized_ranges) if index >= leading]
        turn_count = sum(map(is_user, new_messages))
        if not turn_count:
            return
        tokens = _shown_tokens(history, folded)
        summary_tokens = min(
            self.max_summary_tokens,
            int(history.limit * _SUMMARY_SHARE),
            tokens - self._tokens_with_summary(history, folded, "") - _MARGIN_TOKENS,
        )
        if summary_tokens < _MIN_SUMMARY_TOKENS:
            return

        def max_ledger_tokens(summary: str) -> int:
            tokens_left = tokens - self._tokens_with_summary(history, folded, summary) - _MARGIN_TOKENS
            return min(self.max_ledger_tokens, int(history.limit * _LEDGER_SHARE), tokens_left)

        text = await write_summary(
            record,
            [folded],
            new_messages,
            summarizer,
            previous_summary=next(filter(is_summary, previous.shown)) if previous else None,
            max_summary_tokens=summary_tokens,
            max_ledger_tokens=max_ledger_tokens,
        )
        shown = self._messages_with_summary(history, folded, text)
        if total(counter, shown) >= tokens:
            shown = self._messages_with_summary(history, folded, without_ledger(text))
        tokens_after = total(counter, shown)
        if tokens_after >= tokens:
            raise SummaryRejected(f"has {tokens_after:,} tokens, not fewer than the {tokens:,} that it replaces")
        reason = f"{turn_count} turns summarized, {tokens:,} tokens as {tokens_after:,}"
        yield Fold(f"{self.name}-{folded.start}-{folded.stop}", folded.start, folded.stop, shown, reason)

    def _range_to_fold(self, history: CompactionInput) -> range:
        """The messages between the leading system messages and the last turns.

        If a summary fold begins within the leading system messages, the range begins where that fold does. Other folds are not split: the range ends
        before them or starts after them.
        """
        record = history.record
        if len(record.turn_starts) <= self.keep_turns:
            return range(0)
        start, stop = max(record.leading_system_count, history.leading.stop), record.turn_starts[-self.keep_turns]
        for fold in history.active_folds:
            if fold.start < stop < fold.stop:
                stop = fold.start
            if fold.start < start < fold.stop:
                start = fold.start if is_summary_fold(fold) else fold.stop
        return range(start, max(start, stop))

    def _messages_with_summary(self, history: CompactionInput, folded: range, summary: str) -> tuple[Message, ...]:
        """The messages that the fold shows: leading system messages in the range, the summary, and pinned exchanges."""
        record = history.record
        leading = record.leading_system_count
        return (
            *record[folded.start : leading],
            summary_message(summary, self.summary_role),
            *pinned_messages(record, folded),
        )

    def _tokens_with_summary(self, history: CompactionInput, folded: range, summary: str) -> int:
        return total(history.record.counter, self._messages_with_summary(history, folded, summary))


def _shown_tokens(history: CompactionInput, indexes: range) -> int:
    """Tokens of the range with its active folds applied."""
    record = history.record
    folds = [fold for fold in history.active_folds if indexes.start <= fold.start and fold.stop <= indexes.stop]
    unfolded = indexes_outside(indexes, [range(fold.start, fold.stop) for fold in folds])
    return sum(map(record.tokens_of, unfolded)) + sum(total(record.counter, fold.shown) for fold in folds)
