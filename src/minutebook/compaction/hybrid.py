"""Clear old tool results if that is enough. Otherwise summarize, and truncate if the summary is not enough."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    exceeds_threshold,
    required_indexes,
    tail_start,
)
from minutebook.compaction.summarize import DEFAULT_TARGET, SummarizeStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.truncate import TARGET_RATIO, truncation_folds
from minutebook.history.tool_results import cleared_result
from minutebook.record.fold import Fold
from minutebook.record.message import Message

_TAIL_SHARE: Final = 0.25
"""Share of the window for the newest exchanges, whose tool results are not cleared."""


@dataclass(frozen=True, slots=True)
class HybridStrategy(WindowStrategy):
    """Above 80 % of the window, clear old tool results if that is enough, else summarize and, if necessary, truncate.

    Raises:
        InvalidSetting: a share is out of range.
    """

    name = "hybrid"
    threshold: float = DEFAULT_THRESHOLD
    """Share of the window above which compaction is due."""
    target: float = DEFAULT_TARGET
    """Clearing is enough if at most this share of the window is used after it; otherwise a summary would be due soon."""
    summarize: SummarizeStrategy = field(default_factory=SummarizeStrategy)

    async def apply(self, history: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        clearing_folds = _clearing_folds(history)
        if clearing_folds and history.with_folds(clearing_folds).tokens <= int(history.limit * self.target):
            for fold in clearing_folds:
                yield fold
            return
        summary_folds = [fold async for fold in self.summarize.apply(history, summarizer)]
        for fold in summary_folds:
            yield fold
        summarized_history = history.with_folds(summary_folds)
        if exceeds_threshold(summarized_history, self.threshold):
            # as far below the threshold as in `TruncateStrategy`, but not below the target of this strategy
            truncation_target = max(self.target, self.threshold * TARGET_RATIO / DEFAULT_THRESHOLD)
            max_tokens = int(history.limit * truncation_target)
            for fold in truncation_folds(summarized_history, max_tokens, keep_turns=self.summarize.keep_turns):
                yield fold


def _clearing_folds(history: CompactionInput) -> list[Fold]:
    """A fold for each old exchange with results worth clearing. It shows the calls, with a marker for each result."""
    record = history.record
    index = history.folded_until
    stop = tail_start(history, int(history.limit * _TAIL_SHARE))
    required = required_indexes(history)
    folds: list[Fold] = []
    while index < stop:
        exchange = record.exchange_of(index)
        index = exchange.stop
        if exchange.start in required:
            continue
        shown: list[Message] = []
        has_changes = False
        for message_index in exchange:
            rewrite = cleared_result(record, message_index)
            shown.append(record[message_index] if rewrite is None else rewrite[0])
            has_changes = has_changes or rewrite is not None
        if has_changes:
            fold_id = f"hybrid-clear-{exchange.start}-{exchange.stop}"
            folds.append(Fold(fold_id, exchange.start, exchange.stop, tuple(shown), "old tool results cleared"))
    return folds
