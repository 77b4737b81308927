"""A durable decision that a stretch of the record is shown as something else.

The record never changes: a fold says "messages a..b are shown as this instead", and taking it away again gives back the
earlier view, byte for byte. Folds are added at the end of their own list and never edited.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Fold:
    """Messages `start` up to `stop` of the record are shown as `shown` instead."""

    id: str
    start: int
    stop: int
    shown: tuple[Message, ...] = field(hash=False)
    reason: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A record with its folds applied."""

    transcript: Transcript
    hidden: dict[int, Fold]
    """Each message that is not shown, and the fold that stands for it."""


def folded(record: Transcript, folds: Sequence[Fold]) -> Folded:
    """The record as its folds show it. A later fold takes the place of the earlier ones it covers.

    Raises:
        InvalidSetting: a fold splits an exchange, reaches beyond the record, or covers another only in part.
    """
    if not folds:
        return Folded(record, {})
    with record.lock:
        return record.remember(("folded", record.pins, *folds), lambda: _Folding(record, folds)).current()


class _Folding:
    """A record under folds that stay, which grows as the record does: what came before is not folded again."""

    def __init__(self, record: Transcript, folds: Sequence[Fold]) -> None:
        standing = standing_folds(record, folds)
        messages: list[Message] = []
        origins: list[int | None] = []
        place = 0
        for fold in standing:
            messages += [*record[place : fold.start], *fold.shown]
            origins += [*range(place, fold.start), *([None] * len(fold.shown))]
            place = fold.stop
        self._record = record
        self._seen = place
        self._folded = Folded(
            record.derive(messages, origins),
            {index: fold for fold in standing for index in range(fold.start, fold.stop)},
        )

    def current(self) -> Folded:
        for message in self._record.since(self._seen):
            self._folded.transcript.append_from(self._seen, message)
            self._seen += 1
        return self._folded


def standing_folds(record: Transcript, folds: Sequence[Fold]) -> list[Fold]:
    """The folds that no later one has taken the place of, in the order of the record."""
    standing: list[Fold] = []
    for fold in folds:
        _check(record, fold, standing)
        standing = [other for other in standing if not (fold.start <= other.start and other.stop <= fold.stop)]
        standing.append(fold)
    return sorted(standing, key=lambda fold: fold.start)


def _check(record: Transcript, fold: Fold, standing: Sequence[Fold]) -> None:
    if not 0 <= fold.start < fold.stop <= len(record):
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), f"a range within 0..{len(record)}")
    if record.exchange_of(fold.start).start != fold.start or record.exchange_of(fold.stop - 1).stop != fold.stop:
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), "a range of whole exchanges")
    for other in standing:
        apart = other.stop <= fold.start or fold.stop <= other.start
        if not apart and not (fold.start <= other.start and other.stop <= fold.stop):
            raise InvalidSetting(
                f"fold {fold.id!r}",
                (fold.start, fold.stop),
                f"a range that covers fold {other.id!r} whole or not at all",
            )
