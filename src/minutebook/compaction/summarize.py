"""Summing up the middle: the goal, the newest exchanges and the files in hand stay; a summary stands for the rest."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from minutebook.compaction.fact_ledger import Notes, files_of, without_ledger
from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    essentials,
    has_at_most,
    outside,
    runs,
    tail_start,
    turns_start,
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
_TAIL: Final = 0.25
_FILES: Final = 0.15
_SUMMARY: Final = 0.06
_LEDGER: Final = 0.06
"""Shares of the window: of the last exchanges, of the exchanges about files, of the summary, of its ledger. Together
they leave half of the window free, so that the next summary is not due soon; another target scales them all."""
HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class SummarizeStrategy(WindowStrategy):
    """Above 80 % of the window, sum up all but the first request, the last exchanges and those about the latest files.

    The last turn stays whole where it is no larger than a quarter of the window; of a longer one, its request and the
    last exchanges. With `keep_turns` it is so many turns that stay whole, where they are no larger than the target.

    Raises:
        InvalidSetting: the shares or `keep_turns` cannot be meant.
    """

    name: ClassVar[str] = "summarize"
    threshold: float = DEFAULT_THRESHOLD
    """The share of the window at which to sum up."""
    target: float = HALF
    """The share of the window that is left, about."""
    keep_turns: int | None = None
    max_summary_tokens: int = 2_000
    max_ledger_tokens: int = 1_500
    """0 for no ledger."""
    recent_files: int = PRESERVE_RECENT_FILES
    summary_role: SummaryRole = "system"

    async def apply(self, situation: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        record = situation.record
        floor = max((fold.stop for fold in situation.standing), default=record.lead)
        limit = int(situation.limit * self.target / HALF)  # a window of which half is the target
        stop = self._tail(situation, limit, floor)
        kept = essentials(record) | self._files(record, floor, stop, int(limit * _FILES))
        stretches, before = runs(situation, kept, stop), situation.summary
        already = [] if before is None else [range(before.start, before.stop)]
        fresh = [record[place] for run in stretches for place in outside(run, already)]
        if not fresh:
            return
        ledger_tokens = min(self.max_ledger_tokens, int(limit * _LEDGER))
        text = await write_summary(
            record,
            stretches,
            fresh,
            summarizer,
            carried=None if before is None else next(filter(is_summary, before.shown)),
            max_summary_tokens=max(64, min(self.max_summary_tokens, int(limit * _SUMMARY))),
            max_ledger_tokens=lambda _: ledger_tokens,
        )
        count = sum(map(len, stretches))
        for number, run in enumerate(stretches):
            shown = () if number else (summary_message(text, self.summary_role),)
            name = f"{self.name}-{run.start}-{run.stop}-{number}-{count}"
            yield Fold(name, run.start, run.stop, shown, f"{count} earlier messages summarized")

    def _tail(self, situation: CompactionInput, limit: int, floor: int) -> int:
        """Where what stays whole begins."""
        record = situation.record
        if self.keep_turns is not None:
            room = int(situation.limit * self.target)
            turns = turns_start(record, self.keep_turns, room, no_earlier_than=floor)
            if turns is not None:
                return turns
        start = tail_start(record, int(limit * _TAIL), no_earlier_than=floor)
        return _turn_start(record, start, situation)

    def _files(self, record: Transcript, start: int, stop: int, room: int) -> set[int]:
        """The exchanges about the files that were named last, the newest of each, as many as there is room for."""
        kept: set[int] = set()
        seen: set[str] = set()
        place = stop
        while place > start and len(seen) < self.recent_files:
            exchange = record.exchange_of(place - 1)
            place = exchange.start
            fresh = [path for path in files_of(record[exchange.start]) if path not in seen]
            cost = sum(map(record.tokens_of, exchange))
            if fresh and cost <= room:
                seen.update(fresh)
                kept |= set(exchange)
                room -= cost
        return kept


async def write_summary(
    record: Transcript,
    stretches: Sequence[range],
    fresh: Sequence[Message],
    summarizer: Summarizer,
    *,
    carried: Message | None,
    max_summary_tokens: int,
    max_ledger_tokens: Callable[[str], int],
) -> str:
    """The summary of the `fresh` messages and of the `carried` summary, and after it the ledger of all stretches.

    `max_ledger_tokens` is asked how long the ledger may be beside the summary.

    Raises:
        SummaryRejected: the summary may not be used.
    """
    request = SummaryRequest(
        fresh,
        previous=None if carried is None else without_ledger(summary_text(carried)),
        max_tokens=max_summary_tokens,
        counter=record.counter,
    )
    summary = require_summary(await summarizer.summarize(request), request)
    room = max_ledger_tokens(summary)
    if room < 1:
        return summary
    ledger = Notes.of(record).ledger(stretches, carried=carried, max_tokens=room, said=summary)
    return f"{summary}\n\n{ledger}" if ledger else summary


def _turn_start(record: Transcript, start: int, situation: CompactionInput) -> int:
    """The start of the turn instead, where the whole turn is hardly larger than what was to be kept of it."""
    if not record.turn_starts or start <= record.turn_starts[0]:
        return start
    turn = record.turn_starts[record.turn_of(start)]
    return turn if has_at_most(record, turn, start, int(situation.limit * 0.05)) else start
