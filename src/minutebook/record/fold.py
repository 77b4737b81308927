"""Folds: stored decisions to show other messages in place of a range of the record.

The record does not change. A fold says "show these messages in place of messages a..b". Removing the fold restores the
earlier view byte for byte. Folds are stored in their own append-only list.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Final

from minutebook.errors import InvalidSetting, require_type
from minutebook.record.message import Message, has_fold_kind, require_message
from minutebook.record.transcript import Transcript

REWIND: Final = "rewind"
CLEAR: Final = "clear"
"""Reasons of the folds that `rewind` and `clear` add. They show no messages."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Shows the messages `shown` in place of messages `start` to `stop` (exclusive) of the record."""

    id: str
    start: int
    stop: int
    shown: tuple[Message, ...]
    reason: str
    """Why the messages are folded, for people who read the explanation of a view."""

    @classmethod
    def over(
        cls,
        indexes: Iterable[int],
        *,
        reason: str,
        shown: str | Message | Iterable[Message] = (),
        id: str | None = None,  # noqa: A002 - the natural name for callers
    ) -> "Fold":
        """A fold over neighbouring messages of the record.

        `shown` is one message, several, or the text of a system message; by default nothing is shown. The default `id`
        is computed from the other arguments, so equal folds have equal ids.

        Raises:
            InvalidSetting: `indexes` is empty, negative or has gaps, or `reason` is empty.
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

    @property
    def is_rewind(self) -> bool:
        """Whether `rewind` or `clear` added the fold. Views are built as if the messages that it hides did not exist."""
        return not self.shown and self.reason in {REWIND, CLEAR}

    def __hash__(self) -> int:
        return hash(self.id)  # tuples of thousands of folds are cache keys, so hashing must be fast


def cleared_count(folds: Iterable[Fold]) -> int:
    """The number of messages at the start of the record that `clear` and `rewind` hide."""
    count = 0
    for fold in sorted(folds, key=attrgetter("start")):
        if fold.is_rewind and fold.start == count:  # a rewind may hide what followed a clear
            count = fold.stop
    return count


class HiddenMessages(Mapping[int, Fold]):
    """Maps the index of each hidden message to the fold that hides it. Only the folds are stored, not the indexes."""

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
    folds: Sequence[Fold] = ()
    """The active folds. The transcript has the message objects of these."""


def record_with_folds(record: Transcript, folds: Sequence[Fold]) -> FoldedRecord:
    """The record with its folds applied. A fold replaces the earlier folds within its range.

    Raises:
        InvalidSetting: a fold splits an exchange, extends beyond the record, or overlaps another fold partially.
    """
    if not folds:
        return FoldedRecord(record, {})
    with record.lock:
        return record.cached_value(("folded", record.pins, tuple(folds)), lambda: _FoldApplier(record, folds)).current()


class _FoldApplier:
    """Applies a list of folds to a record once. Later calls only append the messages that were added to the record."""

    def __init__(self, record: Transcript, folds: Sequence[Fold]) -> None:
        active = active_folds(record, folds)
        messages: list[Message] = []
        origins: list[int | None] = []
        stop = 0
        pinned_indexes: list[int] = []
        for fold in active:
            messages += record[stop : fold.start]
            pinned_indexes += (len(messages) + offset for offset in pinned_offsets(fold, record.pins))
            messages += fold.shown
            origins += [*range(stop, fold.start), *([None] * len(fold.shown))]
            stop = fold.stop
        self._record = record
        self._next_index = stop
        self._folded = FoldedRecord(record.derive(messages, origins), HiddenMessages(active), active)
        set_system_prompts(self._folded.transcript, active, record.system_prompt_count)
        for index in pinned_indexes:  # `derive` copies pins by origin, and shown messages have none
            self._folded.transcript.pin(index)

    def current(self) -> FoldedRecord:
        """The folded record, with the messages that were appended to the record since the last call."""
        for message in self._record.since(self._next_index):
            self._folded.transcript.append_from(self._next_index, message)
            self._next_index += 1
        return self._folded


def pinned_offsets(fold: Fold, pins: Iterable[int]) -> list[int]:
    """The indexes of the messages in `fold.shown` that are pinned.

    If a message of the fold's range is pinned, the fold shows its exchange unchanged. Summaries and markers have a kind.
    """
    if not any(fold.start <= pin < fold.stop for pin in pins):
        return []
    return [offset for offset, message in enumerate(fold.shown) if not has_fold_kind(message)]


def set_system_prompts(transcript: Transcript, folds: Iterable[Fold], leading: int) -> None:
    """Set which leading system messages of a transcript with folds are system prompts.

    `leading` is the number of system prompts of the record. What a fold shows in place of system prompts counts as such.
    Other messages of folds, such as summaries, do not.
    """
    added: set[int] = set()
    for fold in folds:
        prompts = len(fold.shown) if fold.stop <= leading else max(0, leading - fold.start)
        added.update(map(id, fold.shown[prompts:]))
    count = transcript.leading_system_count
    transcript.system_prompt_count = next(
        (at for at in range(count) if id(transcript[at]) in added or has_fold_kind(transcript[at])), count
    )


def active_folds(record: Transcript, folds: Sequence[Fold]) -> list[Fold]:
    """The folds that no later fold has replaced, in the order of the record.

    Raises:
        InvalidSetting: a fold splits an exchange, extends beyond the record, or overlaps another fold partially.
    """
    with record.lock:
        return record.cached_value(("active folds",), _ActiveFoldsCache).active(record, tuple(folds))


_MAX_CACHED_LISTS: Final = 4
"""Maximum number of fold lists per record whose active folds are cached."""


class _ActiveFoldsCache:
    """Finds the active folds of append-only lists. Only folds that were added since the last call are examined."""

    def __init__(self) -> None:
        self._cached: list[tuple[tuple[Fold, ...], list[Fold]]] = []
        """Pairs of a list of folds and the active ones among them."""

    def active(self, record: Transcript, folds: tuple[Fold, ...]) -> list[Fold]:
        prefixes = (
            (earlier, active)
            for earlier, active in self._cached
            if len(earlier) <= len(folds) and all(map(is_, earlier, folds))
        )
        longest_prefix, active = max(prefixes, key=lambda prefix: len(prefix[0]), default=((), []))
        if len(longest_prefix) < len(folds):
            active = _with_folds_added(record, active, folds[len(longest_prefix) :])
            self._cached = [*self._cached, (folds, active)][-_MAX_CACHED_LISTS:]
        return [*active]


def _with_folds_added(record: Transcript, active: Sequence[Fold], added: Sequence[Fold]) -> list[Fold]:
    result = [*active]
    for fold in added:
        _check_range(record, fold, result)
        result = [active_fold for active_fold in result if not _covers(fold, active_fold)]
        result.append(fold)
    return sorted(result, key=lambda fold: fold.start)


def _covers(outer: Fold, inner: Fold) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _check_range(record: Transcript, fold: Fold, active: Sequence[Fold]) -> None:
    if not 0 <= fold.start < fold.stop <= len(record):
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), f"a range within 0..{len(record)}")
    if record.exchange_of(fold.start).start != fold.start or record.exchange_of(fold.stop - 1).stop != fold.stop:
        raise InvalidSetting(f"fold {fold.id!r}", (fold.start, fold.stop), "a range of whole exchanges")
    for active_fold in active:
        is_disjoint = active_fold.stop <= fold.start or fold.stop <= active_fold.start
        if not is_disjoint and not _covers(fold, active_fold):
            raise InvalidSetting(
                f"fold {fold.id!r}",
                (fold.start, fold.stop),
                f"a range that covers fold {active_fold.id!r} completely or not at all",
            )
