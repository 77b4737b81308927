"""One conversation in memory: its header, its entries and what was decided about them."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from minutebook.errors import FoldConflict, FoldNotFound, IdempotencyConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import MessageRole
from minutebook.record.transcript import Broken
from minutebook.store.codec import fold_from_bytes, fold_to_bytes, unpack
from minutebook.store.documents import Document
from minutebook.store.request import AppendRequest
from minutebook.store.rules import (
    gaps,
    grown,
    merged,
    require_cut,
    require_fold,
    require_position,
    require_purge,
    same_fold,
    standing,
    touching,
)
from minutebook.store.types import Conversation, Loaded, Origin, StoredFold


@dataclass(slots=True)
class Book:
    """A conversation as the memory store keeps it. Every method is one step, and raises before it changes anything."""

    header: Conversation
    entries: dict[int, ConversationEntry] = field(default_factory=dict)
    turn_starts: list[int] = field(default_factory=list)
    folds: list[StoredFold] = field(default_factory=list)
    pins: set[int] = field(default_factory=set)
    answers: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Idempotency key → what the append said, and the version it gave."""
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    documents_made: int = 0
    """How many there ever were: the number of the last."""

    def answer(self, key: str | None, digest: bytes) -> int | None:
        """What was answered to this key before.

        Raises:
            IdempotencyConflict: it came with other messages.
        """
        known = self.answers.get(key) if key is not None else None
        if known is None:
            return None
        if known[0] != digest:
            raise IdempotencyConflict(self.header.id, key or "")
        return known[1]

    def append(self, request: AppendRequest, *, broken: Broken, at: datetime) -> None:
        header = grown(self.header, request.messages, broken=broken, at=at)
        entries = [unpack(one) for one in request.packed]
        for position, entry in enumerate(entries, self.header.length):
            self.entries[position] = entry
            if entry.role is MessageRole.USER:
                self.turn_starts.append(position)
        self.header = header

    def load(
        self,
        last_turns: int | None,
        last_messages: int | None,
        since: int | None,
        limit: int | None,
        *,
        folded: bool,
    ) -> Loaded:
        start = max(self.header.first, self._start(last_turns, last_messages, since))
        stop = self.header.length if limit is None else min(start + limit, self.header.length)
        folds = self.standing()
        positions: Iterable[int] = range(start, stop)
        if folded:
            wanted = merged([range(self.header.first, self.header.lead), *self._pinned(), range(start, stop)])
            positions = [place for part in wanted for gap in gaps(folds, part.start, part.stop) for place in gap]
        else:
            folds = touching(folds, start, stop)
        places = tuple(positions)
        return Loaded(
            self.header,
            start,
            tuple(self.entries[place] for place in places),
            places,
            tuple(folds),
            frozenset(self.pins),
        )

    def _start(self, last_turns: int | None, last_messages: int | None, since: int | None) -> int:
        length = self.header.length
        if last_turns is not None:
            if last_turns == 0:
                return length
            return self.turn_starts[-last_turns] if last_turns < len(self.turn_starts) else 0
        if last_messages is not None:
            return self._exchange_start(max(0, length - last_messages))
        return min(since or 0, length)

    def _exchange_start(self, position: int) -> int:
        while self._splits(position):
            position -= 1
        return position

    def _splits(self, position: int) -> bool:
        """Whether a cut before this entry would part it from its call."""
        inside = self.header.first < position < self.header.length
        return inside and self.entries[position].role is MessageRole.TOOL

    def _pinned(self) -> list[range]:
        """The exchanges that pinned entries belong to."""
        found: list[range] = []
        for pin in self.pins:
            stop = pin + 1
            while self._splits(stop):
                stop += 1
            found.append(range(self._exchange_start(pin), stop))
        return found

    def standing(self) -> list[Fold]:
        return standing(stored.fold for stored in self.folds if stored.undone_at is None)

    def add_fold(self, fold: Fold, replacing: Iterable[str] | None, at: datetime) -> StoredFold:
        fold = fold_from_bytes(fold.id, fold.start, fold.stop, fold_to_bytes(fold))
        known = self._fold_place(fold.id)
        if known is not None:
            return same_fold(self.header.id, self.folds[known], fold)
        near = touching(self.standing(), fold.start, fold.stop)
        splits = self._splits(fold.start) or self._splits(fold.stop)
        require_fold(self.header, fold, near=near, splits=splits, replacing=replacing)
        stored = StoredFold(fold, at)
        self.folds.append(stored)
        return stored

    def undo_fold(self, fold_id: str, at: datetime) -> StoredFold:
        place = self._fold_place(fold_id)
        if place is None:
            raise FoldNotFound(self.header.id, fold_id)
        stored = self.folds[place]
        if stored.sealed:
            raise FoldConflict(self.header.id, fold_id, "covers entries that were purged, and cannot be undone")
        if stored.undone_at is None:
            stored = self.folds[place] = replace(stored, undone_at=at)
        return stored

    def _fold_place(self, fold_id: str) -> int | None:
        return next((place for place, stored in enumerate(self.folds) if stored.fold.id == fold_id), None)

    def pin(self, position: int) -> None:
        self.pins.add(require_position(self.header, position))

    def unpin(self, position: int) -> None:
        self.pins.discard(require_position(self.header, position))

    def purge(self, before: int) -> int:
        covering = {fold.id for fold in require_purge(self.header, before, self.standing())}
        gone = range(self.header.first, before)
        for position in gone:
            del self.entries[position]
        self.folds = [replace(one, sealed=one.sealed or one.fold.id in covering) for one in self.folds]
        self.pins.difference_update(gone)
        self.header = replace(self.header, first=max(before, self.header.first))
        return len(gone)

    def fork(self, new_id: str, at: int | None, when: datetime) -> "Book":
        place = require_cut(self.header, at, splits=at is not None and self._splits(at))
        whole = place == self.header.length
        header = Conversation(
            self.header.tenant,
            new_id,
            self.header.recipient,
            when,
            when,
            when,
            version=1,
            length=place,
            turns=bisect_left(self.turn_starts, place),
            lead=min(self.header.lead, place),
            first=self.header.first,
            open_calls=self.header.open_calls if whole else (),
            open_at=self.header.open_at if whole else None,
            labels=self.header.labels,
            origin=Origin(self.header.id, place),
        )
        return Book(
            header,
            {position: self.entries[position] for position in range(self.header.first, place)},
            [start for start in self.turn_starts if start < place],
            [one for one in self.folds if one.undone_at is None and one.fold.stop <= place],
            {pin for pin in self.pins if pin < place},
        )
