"""Folds: stored decisions to show other messages in place of a range of the record.

The record does not change. A fold says "show these messages in place of messages a..b". Removing the fold restores the
earlier view byte for byte. Folds are kept in their own append-only list.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

from minutebook.errors import InvalidSetting, require_type
from minutebook.record.message import Message, require_message
from minutebook.record.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Fold:
    """Shows the messages `shown` in place of messages `start` to `stop` (exclusive) of the record."""

    id: str
    start: int
    stop: int
    shown: tuple[Message, ...]
    reason: str

    @classmethod
    def over(
        cls,
        indexes: Iterable[int],
        *,
        reason: str,
        shown: str | Message | Iterable[Message] = (),
        id: str | None = None,  # noqa: A002 - the natural name for callers
    ) -> "Fold":
        """A fold over neighbouring messages. `shown` is a text for a system message, a message or several; default: none.

        The default `id` depends on the other arguments only.

        Raises:
            InvalidSetting: there are no indexes, or some between them are missing, or there is no reason.
        """
        positions = indexes if isinstance(indexes, range) else sorted(set(indexes))
        if not positions or positions[0] < 0 or positions[-1] - positions[0] != len(positions) - 1:
            raise InvalidSetting("indexes", indexes, "indexes of neighbouring messages, such as range(1, 9)")
        expected = 'why these messages are folded, such as "small talk"'
        require_type("reason", reason, str, expected)
        if not reason.strip():
            raise InvalidSetting("reason", reason, expected)
        start, stop = positions[0], positions[-1] + 1
        if isinstance(shown, str):
            shown = ({"role": "system", "content": shown, "kind": "marker"},) if shown else ()
        elif isinstance(shown, Mapping):
            shown = (shown,)
        messages = tuple(require_message(message, index) for index, message in enumerate(shown))
        if id is None:
            digest = hashlib.sha256(repr((messages, reason)).encode()).hexdigest()
            id = f"fold-{start}-{stop}-{digest[:8]}"  # noqa: A001 - the argument
        return cls(id, start, stop, messages, reason)

    def __hash__(self) -> int:
        return hash(self.id)  # tuples of thousands of folds are cache keys, so hashing must be fast


class HiddenMessages(Mapping[int, Fold]):
    """Maps the index of each message that is not shown to its fold. It stores only the folds, not the indexes."""

    __slots__ = ("_folds", "_starts")

    def __init__(self, folds: Sequence[Fold]) -> None:
        self._folds = folds
        self._starts = [fold.start for fold in folds]

    def __getitem__(self, index: int) -> Fold:
        fold_index = bisect_right(self._starts, index) - 1
        if fold_index < 0 or index >= self._folds[fold_index].stop:
            raise KeyError(index)
        return self._folds[fold_index]

    def __iter__(self) -> Iterator[int]:
        return (index for fold in self._folds for index in range(fold.start, fold.stop))

    def __len__(self) -> int:
        return sum(fold.stop - fold.start for fold in self._folds)


@dataclass(frozen=True, slots=True)
class FoldedRecord:
    """A record with its folds applied."""

    transcript: Transcript
    hidden: Mapping[int, Fold]
    """Index of each message that is not shown → the fold that replaces it."""


def record_with_folds(record: Transcript, folds: Sequence[Fold]) -> FoldedRecord:
    """The record with its folds applied. A fold replaces the earlier folds within its range.

    Raises:
        InvalidSetting: a fold splits an exchange, extends beyond the record, or overlaps another fold partially.
    """
    if not folds:
        return FoldedRecord(record, {})
    with record.lock:
        return record.remember(("folded", record.pins, tuple(folds)), lambda: _FoldApplier(record, folds)).current()


class _FoldApplier:
    """Applies a list of folds to a record once. Later calls only append the messages that were added to the record."""

    def __init__(self, record: Transcript, folds: Sequence[Fold]) -> None:
        active = active_folds(record, folds)
        messages: list[Message] = []
        origins: list[int | None] = []
        stop = 0
        for fold in active:
            messages += [*record[stop : fold.start], *fold.shown]
            origins += [*range(stop, fold.start), *([None] * len(fold.shown))]
            stop = fold.stop
        self._record = record
        self._next_index = stop
        self._folded = FoldedRecord(record.derive(messages, origins), HiddenMessages(active))
        pinned = {id(record[index]) for pin in record.pins for index in record.exchange_of(pin)}
        for index, origin in enumerate(origins if pinned else ()):
            if (
                origin is None and id(messages[index]) in pinned
            ):  # a pinned message in the fold's range is one of those that it shows
                self._folded.transcript.pin(index)

    def current(self) -> FoldedRecord:
        for message in self._record.since(self._next_index):
            self._folded.transcript.append_from(self._next_index, message)
            self._next_index += 1
        return self._folded


def active_folds(record: Transcript, folds: Sequence[Fold]) -> list[Fold]:
    """The folds that no later fold has replaced, in the order of the record."""
    with record.lock:
        return record.remember(("active folds",), _ActiveFoldsCache).active(record, tuple(folds))


_MAX_CACHED_LISTS: Final = 4
"""Maximum number of fold lists per record whose active folds are cached."""


class _ActiveFoldsCache:
    """Finds the active folds of append-only lists. Only folds that were added since the last call are examined."""

    def __init__(self) -> None:
        self._cached: list[tuple[tuple[Fold, ...], list[Fold]]] = []
        """Lists of folds, each with its active folds."""

    def active(self, record: Transcript, folds: tuple[Fold, ...]) -> list[Fold]:
        prefixes = (
            (earlier, active)
            for earlier, active in self._cached
            if len(earlier) <= len(folds) and all(map(is_, earlier, folds))
        )
        longest, active = max(prefixes, key=lambda prefix: len(prefix[0]), default=((), []))
        if len(longest) < len(folds):
            active = _with_added(record, active, folds[len(longest) :])
            self._cached = [*self._cached, (folds, active)][-_MAX_CACHED_LISTS:]
        return [*active]


def _with_added(record: Transcript, active: Sequence[Fold], added: Sequence[Fold]) -> list[Fold]:
    result = [*active]
    for fold in added:
        _check_range(record, fold, result)
        result = [other for other in result if not (fold.start <= other.start and other.stop <= fold.stop)]
        result.append(fold)
    return sorted(result, key=lambda fold: fold.start)


def _check_range(record: Transcript, fold: Fold, active: Sequence[Fold]) -> None:
    if not 0 <= fold.start < fold.stop <= len(record):
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), f"a range within 0..{len(record)}")
    if record.exchange_of(fold.start).start != fold.start or record.exchange_of(fold.stop - 1).stop != fold.stop:
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), "a range of whole exchanges")
    for other in active:
        disjoint = other.stop <= fold.start or fold.stop <= other.start
        if not disjoint and not (fold.start <= other.start and other.stop <= fold.stop):
            raise InvalidSetting(
                f"fold {fold.id!r}",
                (fold.start, fold.stop),
                f"a range that covers fold {other.id!r} completely or not at all",
            )
