"""Cutting the middle: the goal and the newest stay, and a marker says how much is not shown."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import ClassVar, Final

from minutebook.compaction.strategy import (
    DEFAULT_THRESHOLD,
    CompactionInput,
    WindowStrategy,
    essentials,
    runs,
    tail_start,
    turns_start,
)
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.errors import CannotFit
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.incremental import last_exchange
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript

TARGET_RATIO: Final = 0.7
_MARKER: Final = 24
"""Tokens of the marker, about."""


@dataclass(frozen=True, slots=True)
class TruncateStrategy(WindowStrategy):
    """Above 80 % of the window, keep the first request and as many of the last whole exchanges as 70 % has room for.

    With `keep_turns` no more than so many turns stay, and those whole where there is room for them.

    Raises:
        InvalidSetting: the shares or `keep_turns` cannot be meant.
    """

    name: ClassVar[str] = "truncate"
    target: float = TARGET_RATIO
    threshold: float = DEFAULT_THRESHOLD
    """The share of the window at which to cut."""
    keep_turns: int | None = None

    async def apply(self, situation: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:  # noqa: ARG002 - it needs none
        for fold in truncated(situation, int(situation.limit * self.target), keep_turns=self.keep_turns):
            yield fold


def truncated(situation: CompactionInput, target: int, *, keep_turns: int | None = None) -> list[Fold]:
    """The folds that bring a conversation down to so many tokens, if any can."""
    record = situation.record
    kept = essentials(record)
    first = record.first_request
    if first is not None and first != record.newest_request and _fixed(situation, kept) > target // 2:
        kept -= set(record.exchange_of(first))  # a goal so long leaves no room for the work on it
    room = target - situation.overhead_tokens - _MARKER - _fixed(situation, kept)
    floor = max((fold.stop for fold in situation.standing), default=record.lead)
    turns = None if keep_turns is None else turns_start(record, keep_turns, room, no_earlier_than=floor)
    stop = tail_start(record, room, no_earlier_than=floor) if turns is None else turns
    stretches = runs(situation, kept, stop)
    gone = sum(map(len, stretches))
    known = {(fold.start, fold.stop) for fold in situation.standing}
    if all((run.start, run.stop) in known for run in stretches):
        return []
    carried = tuple(message for fold in situation.standing for message in fold.shown if is_summary(message))
    reason = f"{gone} earlier messages truncated to fit context window"
    return [
        Fold(
            f"truncate-{run.start}-{run.stop}-{number}-{gone}",
            run.start,
            run.stop,
            () if number else (*carried, _marker(gone)),
            reason,
        )
        for number, run in enumerate(stretches)
    ]


def clipped(situation: CompactionInput) -> Fold | None:
    """The fold that shows the newest exchange with its results cut to the room that all else leaves, if there is any."""
    record = situation.record
    last = last_exchange(record)
    name = f"clip-{last.start}-{last.stop}"
    others = situation.with_folds([Fold(name, last.start, last.stop, (), "")]).tokens
    newest = Transcript(record[last.start : last.stop], counter=record.counter, broken="mark")
    try:
        view = TokenBudgetManager(max(1, situation.limit - others), counter=record.counter).curate(newest)
    except CannotFit:
        return None
    return Fold(name, last.start, last.stop, tuple(view), "the newest results are larger than the room that is left")


def _fixed(situation: CompactionInput, kept: set[int]) -> int:
    """The tokens of what stays wherever the cut is, but for the last exchange, which the tail has."""
    record = situation.record
    last = set(last_exchange(record))
    return sum(record.tokens_of(place) for place in kept - last)


def _marker(gone: int) -> Message:
    return {
        "role": "system",
        "content": f"[{gone} earlier messages truncated to fit context window]",
        "kind": "marker",
    }
