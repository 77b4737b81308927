"""Summarize the middle of a conversation.

The first user message, the last exchanges and the exchanges about recent files stay.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from minutebook.compaction.fact_ledger import LedgerCache, files_of, without_ledger
from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    foldable_ranges,
    has_at_most,
    indexes_outside,
    last_turns_start,
    pinned_messages,
    required_indexes,
    tail_start,
)
from minutebook.compaction.summarizer import (
    Summarizer,
    SummaryRequest,
    SummaryRole,
    is_summary,
    require_summary,
    summary_message,
    summary_text,
)
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript

PRESERVE_RECENT_FILES: Final = 10
DEFAULT_TARGET: Final = 0.5
_TAIL_SHARE: Final = 0.25
_FILES_SHARE: Final = 0.15
_SUMMARY_SHARE: Final = 0.06
_LEDGER_SHARE: Final = 0.06
"""Shares of the window for the last exchanges, the exchanges about files, the summary and its ledger. Together they
leave half of the window free, so that the next summary is not due soon. Another target scales them all."""
_TURN_SHARE: Final = 0.05
"""Share of the window by which the tail may grow to begin at the start of a turn."""
_MIN_SUMMARY_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class SummarizeStrategy(WindowStrategy):
    """Above 80 % of the window, summarize all but the first user message, the last exchanges and those about recent files.

    The last exchanges have at most about a quarter of the window. If the last turn is longer, its user message stays too.
    With `keep_turns`, that number of turns is kept whole, if they need at most the share `target` of the window.

    Raises:
        InvalidSetting: a share or `keep_turns` is out of range.
    """

    name = "summarize"
    threshold: float = DEFAULT_THRESHOLD
    """Share of the window above which a summary is due."""
    target: float = DEFAULT_TARGET
    """Approximate share of the window that is used after the compaction."""
    keep_turns: int | None = None
    max_summary_tokens: int = 2_000
    max_ledger_tokens: int = 1_500
    """0 for no ledger."""
    recent_files: int = PRESERVE_RECENT_FILES
    """Number of files whose newest exchange is kept."""
    summary_role: SummaryRole = "system"

    async def apply(self, history: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        record = history.record
        folded_until = history.folded_until
        limit = int(history.limit * self.target / DEFAULT_TARGET)  # the constant shares below fit the default target
        stop = self._tail_start(history, limit, folded_until)
        file_exchanges = self._file_exchanges(record, folded_until, stop, int(limit * _FILES_SHARE))
        ranges = foldable_ranges(history, required_indexes(history) | file_exchanges, stop)
        previous = history.summary
        summarized_ranges = [] if previous is None else [range(previous.start, previous.stop)]
        new_messages = [record[index] for indexes in ranges for index in indexes_outside(indexes, summarized_ranges)]
        if not new_messages:
            return
        ledger_tokens = min(self.max_ledger_tokens, int(limit * _LEDGER_SHARE))
        text = await write_summary(
            record,
            ranges,
            new_messages,
            summarizer,
            previous_summary=None if previous is None else next(filter(is_summary, previous.shown)),
            max_summary_tokens=max(_MIN_SUMMARY_TOKENS, min(self.max_summary_tokens, int(limit * _SUMMARY_SHARE))),
            max_ledger_tokens=lambda _: ledger_tokens,
        )
        count = sum(map(len, ranges))
        for number, indexes in enumerate(ranges):
            summary = () if number else (summary_message(text, self.summary_role),)
            shown = (*summary, *pinned_messages(record, indexes))
            fold_id = f"{self.name}-{indexes.start}-{indexes.stop}-{number}-{count}"
            yield Fold(fold_id, indexes.start, indexes.stop, shown, f"{count} earlier messages summarized")

    def _tail_start(self, history: CompactionInput, limit: int, folded_until: int) -> int:
        """The index from which on all messages stay. It is the start of a turn if that needs few more tokens."""
        record = history.record
        if self.keep_turns is not None:
            max_tokens = int(history.limit * self.target)
            start = last_turns_start(record, self.keep_turns, max_tokens, no_earlier_than=folded_until)
            if start is not None:
                return start
        start = tail_start(history, int(limit * _TAIL_SHARE))
        if not record.turn_starts or start <= record.turn_starts[0]:
            return start
        turn_start = record.turn_starts[record.turn_of(start)]
        if turn_start < folded_until:
            return start
        return turn_start if has_at_most(record, turn_start, start, int(history.limit * _TURN_SHARE)) else start

    def _file_exchanges(self, record: Transcript, start: int, stop: int, max_tokens: int) -> set[int]:
        """Indexes of the newest exchange about each recent file between `start` and `stop`, within `max_tokens`."""
        indexes: set[int] = set()
        files: set[str] = set()
        tokens_left = max_tokens
        index = stop
        while index > start and len(files) < self.recent_files:
            exchange = record.exchange_of(index - 1)
            index = exchange.start
            new_files = [path for path in files_of(record[exchange.start]) if path not in files]
            tokens = sum(map(record.tokens_of, exchange))
            if new_files and tokens <= tokens_left:
                files.update(new_files)
                indexes |= set(exchange)
                tokens_left -= tokens
        return indexes


async def write_summary(
    record: Transcript,
    ranges: Sequence[range],
    new_messages: Sequence[Message],
    summarizer: Summarizer,
    *,
    previous_summary: Message | None,
    max_summary_tokens: int,
    max_ledger_tokens: Callable[[str], int],
) -> str:
    """Write a summary that replaces the previous summary and the new messages, followed by the ledger of all ranges.

    `max_ledger_tokens` gets the summary and returns the maximum tokens of its ledger.

    Raises:
        SummaryRejected: the summary is not usable.
    """
    request = SummaryRequest(
        new_messages,
        previous=None if previous_summary is None else without_ledger(summary_text(previous_summary)),
        max_tokens=max_summary_tokens,
        counter=record.counter,
    )
    summary = require_summary(await summarizer.summarize(request), request)
    ledger_tokens = max_ledger_tokens(summary)
    if ledger_tokens < 1:
        return summary
    ledger = LedgerCache.of(record).ledger(
        ranges, previous_summary=previous_summary, max_tokens=ledger_tokens, summary=summary
    )
    return f"{summary}\n\n{ledger}" if ledger else summary
