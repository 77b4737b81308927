"""Which part of a conversation is summed up next, and what the summary will stand for. Pure: it reads no store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minutebook.compaction.shown import SummaryRole, is_summary, summary_message, summary_text
from minutebook.compaction.summarizer import SummaryRequest
from minutebook.record.exchange import exchanges
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user
from minutebook.store.rules import gaps, touching
from minutebook.store.types import Conversation
from minutebook.tokens import TokenCounter, total

LEAST_ROOM = 12
"""Tokens that a summary needs to say anything at all."""


def is_summed_up(fold: Fold) -> bool:
    """Whether a fold shows a summary, so that its maker has read what it covers. A marker's has not."""
    return any(map(is_summary, fold.shown))


def fold_range(header: Conversation, keep_from: int, folds: Sequence[Fold], *, with_lead: bool = False) -> range:
    """The positions to show as one summary: all but the leading system messages and what begins at `keep_from`.

    An earlier summary in the way is taken in; another fold in the way stays as it is. `with_lead` takes in the leading
    messages too, which the fold then shows as they are: only a fold of everything lets a store purge.
    """
    start, stop = 0 if with_lead else header.lead, keep_from
    for fold in folds:
        if fold.start < stop < fold.stop:
            stop = fold.start
        inside = fold.start < start < fold.stop
        if inside and is_summed_up(fold):
            start = fold.start
        elif inside or (fold.start == start < max(header.first, header.lead) and not is_summed_up(fold)):
            start = fold.stop  # it shows leading messages, or what it covers is purged: nothing we could sum up
    return range(start, max(start, stop))


def unread(part: range, folds: Iterable[Fold]) -> list[range]:
    """What no earlier summary covers: the positions that must be read."""
    return gaps(filter(is_summed_up, folds), part.start, part.stop)


def pinned_exchanges(messages: Sequence[Message], positions: Sequence[int], pins: frozenset[int]) -> dict[int, Message]:
    """The messages of those exchanges that hold a pin, by their position; `messages` begin and end between exchanges."""
    return {
        positions[place]: messages[place]
        for exchange in exchanges(messages)
        if any(positions[place] in pins for place in exchange)
        for place in exchange
    }


@dataclass(frozen=True, slots=True)
class Plan:
    """A part of a conversation that could be shown as a summary, with everything that is needed to do it."""

    part: range
    lead: int
    """How many system messages stand at the front of the record."""
    folds: Sequence[Fold]
    """The folds that stand in that part, which the new one takes the place of."""
    messages: Mapping[int, Message]
    """What no earlier summary covers, by position."""
    pinned: Mapping[int, Message]
    """What must be shown as it is, by position."""
    sealed: int
    """The position before which the record was purged."""

    @property
    def turns(self) -> int:
        return sum(map(is_user, self.messages.values()))

    @property
    def replacing(self) -> list[str]:
        return [fold.id for fold in self.folds]

    def shown_before(self) -> list[Message]:
        """How the view shows that part now."""
        hidden = [range(fold.start, fold.stop) for fold in self.folds if not is_summed_up(fold)]
        plain = [message for position, message in self.messages.items() if not any(position in part for part in hidden)]
        return [*plain, *(message for fold in self.folds for message in fold.shown)]

    def shown_after(self, summary: str, role: SummaryRole) -> tuple[Message, ...]:
        """How the view will: the leading messages if they are in that part, the summary, and what is pinned."""
        in_front = [message for position, message in self.messages.items() if position < self.lead]
        behind: list[Message] = []
        for fold in filter(is_summed_up, self.folds):
            place = _summary_place(fold)
            in_front += fold.shown[:place]
            if fold.stop <= self.sealed:  # what it shows as it is can no longer be read anywhere else
                behind += fold.shown[place + 1 :]
        behind += [self.pinned[position] for position in sorted(self.pinned) if position >= self.lead]
        return (*in_front, summary_message(summary, role), *behind)

    def request(self, counter: TokenCounter, *, max_tokens: int, role: SummaryRole) -> SummaryRequest | None:
        """What a summarizer is given; None if a summary could not be shorter than what it replaces."""
        around = total(counter, self.shown_after("", role))
        room = min(max_tokens, total(counter, self.shown_before()) - around - 4)
        if room < LEAST_ROOM:
            return None
        first = next((fold for fold in self.folds if fold.start == self.part.start and is_summed_up(fold)), None)
        previous = None if first is None else _summary_of(first)
        return SummaryRequest(self._to_read(first), previous, room, counter)

    def _to_read(self, first: Fold | None) -> tuple[Message, ...]:
        """All the messages in order, and in its place what an earlier summary's maker had left as it was."""
        rows = [(position, message) for position, message in self.messages.items() if position >= self.lead]
        rows += [
            (fold.start, message)
            for fold in filter(is_summed_up, self.folds)
            for message in fold.shown[_summary_place(fold) :]
            if fold is not first or not is_summary(message)
        ]
        rows.sort(key=lambda row: row[0])
        return tuple(message for _, message in rows)


def folds_in(part: range, folds: Iterable[Fold]) -> list[Fold]:
    return touching(folds, part.start, part.stop)


def _summary_place(fold: Fold) -> int:
    return next(at for at, message in enumerate(fold.shown) if is_summary(message))


def _summary_of(fold: Fold) -> str:
    return "\n".join(summary_text(message) for message in fold.shown if is_summary(message))
