"""First what costs nothing, then what costs a call, then what costs the text."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    essentials,
    is_too_full,
    tail_start,
)
from minutebook.compaction.summarize import HALF, SummarizeStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.truncate import TARGET_RATIO, truncated
from minutebook.history.tool_results import cleared_result
from minutebook.record.fold import Fold
from minutebook.record.message import Message

_RECENT: Final = 0.25
_MARKER: Final = "[cleared: {characters} characters]"


@dataclass(frozen=True, slots=True)
class HybridStrategy(WindowStrategy):
    """Above 80 % of the window: clear old tool results; if that is not enough sum up; if that is not, truncate.

    Raises:
        InvalidSetting: the shares cannot be meant.
    """

    name: ClassVar[str] = "hybrid"
    threshold: float = DEFAULT_THRESHOLD
    """The share of the window at which to begin."""
    target: float = HALF
    """Clearing is enough when it brings the window down to this; otherwise a summary is due soon anyway."""
    summarize: SummarizeStrategy = field(default_factory=SummarizeStrategy)

    async def apply(self, situation: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        lighter = _cleared(situation)
        if lighter and situation.with_folds(lighter).tokens <= int(situation.limit * self.target):
            for fold in lighter:
                yield fold
            return
        made = [fold async for fold in self.summarize.apply(situation, summarizer)]
        for fold in made:
            yield fold
        after = situation.with_folds(made)
        if is_too_full(after, self.threshold):
            share = max(self.target, self.threshold * TARGET_RATIO / DEFAULT_THRESHOLD)
            for fold in truncated(after, int(situation.limit * share), keep_turns=self.summarize.keep_turns):
                yield fold


def _cleared(situation: CompactionInput) -> list[Fold]:
    """A fold for each old exchange whose results are worth clearing: it shows the calls, and that there were results."""
    record = situation.record
    floor = max((fold.stop for fold in situation.standing), default=record.lead)
    stop = tail_start(record, int(situation.limit * _RECENT), no_earlier_than=floor)
    kept = essentials(record)
    found: list[Fold] = []
    place = floor
    while place < stop:
        exchange = record.exchange_of(place)
        place = exchange.stop
        if exchange.start in kept:
            continue
        shown: list[Message] = []
        for index in exchange:
            done = cleared_result(record, index, marker=_MARKER)
            shown.append(record[index] if done is None else done[0])
        if any(one is not record[index] for one, index in zip(shown, exchange, strict=True)):
            name = f"hybrid-clear-{exchange.start}-{exchange.stop}"
            found.append(Fold(name, exchange.start, exchange.stop, tuple(shown), "old tool results cleared"))
    return found
