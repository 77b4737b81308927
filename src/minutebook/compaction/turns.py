"""Summing up old turns: by their number, whatever their size."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import ClassVar, Final, get_args

from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.strategy import CompactionInput, is_summary_fold, is_too_full, outside
from minutebook.compaction.summarize import write_summary
from minutebook.compaction.summarizer import Summarizer, SummaryRole, is_summary, summary_message
from minutebook.errors import InvalidSetting, SummaryRejected
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user
from minutebook.tokens import total

_LEAST: Final = 12
"""Tokens that a summary needs to say anything at all."""
_MARGIN: Final = 4


@dataclass(frozen=True, slots=True)
class TurnStrategy:
    """When more than so many turns are shown whole, sum up all but the last few.

    One fold shows the summary and, after it, what is pinned. With a `threshold` it is also due when the window is fuller
    than that share of it, however few the turns are.

    Raises:
        InvalidSetting: it would keep more turns than there may be, or another setting cannot be meant.
    """

    name: ClassVar[str] = "turns"
    max_turns: int = 10
    """So many turns may stand unfolded; one more and compaction is due."""
    keep_turns: int = 3
    """So many turns stay whole when the others are summed up."""
    max_summary_tokens: int = 1_000
    max_ledger_tokens: int = 500
    """0 for no ledger."""
    summary_role: SummaryRole = "system"
    """Whose message shows the summary."""
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

    def should_trigger(self, situation: CompactionInput) -> bool:
        return situation.turns > self.max_turns or (
            self.threshold is not None and is_too_full(situation, self.threshold)
        )

    async def apply(self, situation: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        record, counter, part = situation.record, situation.record.counter, self._part(situation)
        before = next((fold for fold in situation.standing if fold.start == part.start and is_summary_fold(fold)), None)
        already = [] if before is None else [range(before.start, before.stop)]
        fresh = [record[place] for place in outside(part, already) if place >= record.lead]
        turns = sum(map(is_user, fresh))
        if not turns:
            return
        tokens = _tokens(situation, part)
        room = min(self.max_summary_tokens, tokens - self._cost(situation, part, "") - _MARGIN)
        if room < _LEAST:
            return

        def ledger_room(summary: str) -> int:
            return min(self.max_ledger_tokens, tokens - self._cost(situation, part, summary) - _MARGIN)

        text = await write_summary(
            record,
            [part],
            fresh,
            summarizer,
            carried=next(filter(is_summary, before.shown)) if before else None,
            max_summary_tokens=room,
            max_ledger_tokens=ledger_room,
        )
        shown = self._shown(situation, part, text)
        if total(counter, shown) >= tokens:
            shown = self._shown(situation, part, without_ledger(text))
        after = total(counter, shown)
        if after >= tokens:
            raise SummaryRejected(f"would be shown with {after:,} tokens in place of {tokens:,}")
        reason = f"{turns} turns were summed up, {tokens:,} tokens as {after:,}"
        yield Fold(f"{self.name}-{part.start}-{part.stop}", part.start, part.stop, shown, reason)

    def _part(self, situation: CompactionInput) -> range:
        """What is to be shown as one summary: all but the leading system messages and the last turns.

        An earlier summary in the way is taken in; another fold in the way stays as it is.
        """
        record = situation.record
        if len(record.turn_starts) <= self.keep_turns:
            return range(0)
        start, stop = record.lead, record.turn_starts[-self.keep_turns]
        for fold in situation.standing:
            if fold.start < stop < fold.stop:
                stop = fold.start
            if fold.start < start < fold.stop:
                start = fold.start if is_summary_fold(fold) else fold.stop
        return range(start, max(start, stop))

    def _shown(self, situation: CompactionInput, part: range, summary: str) -> tuple[Message, ...]:
        """How the view will show a part: leading messages if they are in it, the summary, and what is pinned."""
        record = situation.record
        pins = (record.exchange_of(pin) for pin in record.pins if pin in part and pin >= record.lead)
        pinned = [record[place] for place in sorted({place for exchange in pins for place in exchange})]
        return (*record[part.start : record.lead], summary_message(summary, self.summary_role), *pinned)

    def _cost(self, situation: CompactionInput, part: range, summary: str) -> int:
        return total(situation.record.counter, self._shown(situation, part, summary))


def _tokens(situation: CompactionInput, part: range) -> int:
    """The tokens with which the view shows a part now."""
    record = situation.record
    folds = [fold for fold in situation.standing if part.start <= fold.start and fold.stop <= part.stop]
    plain = outside(part, [range(fold.start, fold.stop) for fold in folds])
    return sum(map(record.tokens_of, plain)) + sum(total(record.counter, fold.shown) for fold in folds)
