"""A durable decision that a stretch of the record is shown as something else.

The record never changes: a fold says "messages a..b are shown as this instead", and taking it away again gives back the
earlier view, byte for byte. Folds are added at the end of their own list and never edited.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Fold:
    """Messages `start` up to `stop` of the record are shown as `shown` instead."""

    id: str
    start: int
    stop: int
    shown: tuple[Message, ...]
    reason: str

    def __hash__(self) -> int:
        return hash(self.id)  # a record may have thousands of them, and is remembered by all


class Hidden(Mapping[int, Fold]):
    """Each message that is not shown, and the fold that stands for it; as small as there are folds, not messages."""

    __slots__ = ("_folds", "_starts")

    def __init__(self, standing: Sequence[Fold]) -> None:
        self._folds = standing
        self._starts = [fold.start for fold in standing]

    def __getitem__(self, index: int) -> Fold:
        place = bisect_right(self._starts, index) - 1
        if place < 0 or index >= self._folds[place].stop:
            raise KeyError(index)
        return self._folds[place]

    def __iter__(self) -> Iterator[int]:
        return (index for fold in self._folds for index in range(fold.start, fold.stop))

    def __len__(self) -> int:
        return sum(fold.stop - fold.start for fold in self._folds)


@dataclass(frozen=True, slots=True)
class Folded:
    """A record with its folds applied."""

    transcript: Transcript
    hidden: Mapping[int, Fold]
    """Each message that is not shown, and the fold that stands for it."""


def folded(record: Transcript, folds: Sequence[Fold]) -> Folded:
    """The record as its folds show it. A later fold takes the place of the earlier ones it covers.

    Raises:
        InvalidSetting: a fold splits an exchange, reaches beyond the record, or covers another only in part.
    """
    if not folds:
        return Folded(record, {})
    with record.lock:
        return record.remember(("folded", record.pins, tuple(folds)), lambda: _Folding(record, folds)).current()


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
        self._folded = Folded(record.derive(messages, origins), Hidden(standing))
        pinned = {id(record[index]) for pin in record.pins for index in record.exchange_of(pin)}
        for index, origin in enumerate(origins if pinned else ()):
            if origin is None and id(messages[index]) in pinned:  # a fold that hides what is pinned shows it
                self._folded.transcript.pin(index)

    def current(self) -> Folded:
        for message in self._record.since(self._seen):
            self._folded.transcript.append_from(self._seen, message)
            self._seen += 1
        return self._folded


def standing_folds(record: Transcript, folds: Sequence[Fold]) -> list[Fold]:
    """The folds that no later one has taken the place of, in the order of the record."""
    with record.lock:
        return record.remember(("standing",), _Standing).of(record, tuple(folds))


_BRANCHES: Final = 4
"""How many lists of folds a record knows the standing ones of."""


class _Standing:
    """The folds that stand, of lists that grow at their end: only what was added is looked at, however many there are."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[Fold, ...], list[Fold]]] = []

    def of(self, record: Transcript, folds: tuple[Fold, ...]) -> list[Fold]:
        before, standing = max(
            (known for known in self._known if len(known[0]) <= len(folds) and all(map(is_, known[0], folds))),
            key=lambda known: len(known[0]),
            default=((), []),
        )
        if len(before) < len(folds):
            standing = _extended(record, standing, folds[len(before) :])
            self._known = [*self._known, (folds, standing)][-_BRANCHES:]
        return [*standing]


def _extended(record: Transcript, standing: Sequence[Fold], added: Sequence[Fold]) -> list[Fold]:
    found = [*standing]
    for fold in added:
        _check(record, fold, found)
        found = [other for other in found if not (fold.start <= other.start and other.stop <= fold.stop)]
        found.append(fold)
    return sorted(found, key=lambda fold: fold.start)


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
