"""Summing up old turns: by their number, whatever their size."""

from bisect import bisect_left
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import ClassVar

from minutebook.compaction.shown import SummaryRole
from minutebook.compaction.situation import Situation, runs
from minutebook.compaction.strategy import is_too_full
from minutebook.compaction.summarize import summed_up
from minutebook.compaction.summarizer import Summarizer
from minutebook.errors import InvalidSetting
from minutebook.record.fold import Fold


@dataclass(frozen=True, slots=True)
class TurnStrategy:
    """When more than so many turns are shown whole, sum up all but the last few.

    With a `threshold` also when the window is fuller than that share of it, however few the turns are. This is for a
    record at hand; `TurnCompactor` does it for one in a store, of which it reads no more than the turns to sum up.

    Raises:
        InvalidSetting: it would keep more turns than there may be, or the threshold is no share.
    """

    name: ClassVar[str] = "turns"
    max_turns: int = 10
    keep_turns: int = 3
    max_summary_tokens: int = 1_000
    max_ledger_tokens: int = 500
    summary_role: SummaryRole = "system"
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.keep_turns <= self.max_turns:
            raise InvalidSetting("keep_turns", self.keep_turns, f"1 to max_turns, which is {self.max_turns}")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise InvalidSetting("threshold", self.threshold, "a share of the window above 0 and up to 1, or None")

    def should_trigger(self, situation: Situation) -> bool:
        many = len(situation.record.turn_starts) - _folded_turns(situation) > self.max_turns
        return many or (self.threshold is not None and is_too_full(situation, self.threshold))

    async def apply(self, situation: Situation, summarizer: Summarizer) -> AsyncIterator[Fold]:
        record = situation.record
        turns = record.turn_starts[max(_folded_turns(situation), len(record.turn_starts) - self.keep_turns) :]
        if not turns:
            return
        stop = turns[0]
        pinned = {place for pin in record.pins for place in record.exchange_of(pin)}
        for fold in await summed_up(
            situation,
            runs(situation, pinned | set(range(record.lead)), stop),
            summarizer,
            name=self.name,
            max_summary_tokens=self.max_summary_tokens,
            max_ledger_tokens=self.max_ledger_tokens,
            role=self.summary_role,
        ):
            yield fold


def _folded_turns(situation: Situation) -> int:
    """How many turns begin before the end of the last fold; found without a look at each of them."""
    floor = max((fold.stop for fold in situation.folds), default=0)
    return bisect_left(situation.record.turn_starts, floor)
