"""The record and the folds that strategies get: without the messages that a rewind hides."""

from collections.abc import Sequence
from dataclasses import replace

from minutebook.record.fold import Fold, active_folds, record_with_folds
from minutebook.record.transcript import Transcript


class VisibleRecord:
    """A record without the messages that rewinds hide, and its other folds by index in this shorter record.

    `rewinds` are those that later folds replaced. Such a fold hides messages too, but a summary that replaces it is
    written from the record again, without the messages of the rewinds.
    """

    def __init__(self, record: Transcript, folds: Sequence[Fold], rewinds: Sequence[Fold] = ()) -> None:
        active = active_folds(record, folds)
        self._rewinds = active_folds(record, [fold for fold in (*rewinds, *active) if fold.is_rewind])
        self._active = [fold for fold in active if not fold.is_rewind]
        self.record, self.folds = record, tuple(folds)
        if self._rewinds:
            self.record = record_with_folds(record, self._rewinds).transcript
            shorter = (
                replace(fold, start=self._index(fold.start), stop=self._index(fold.stop)) for fold in self._active
            )
            self.folds = tuple(fold for fold in shorter if fold.start < fold.stop)

    def at_record_positions(self, fold: Fold) -> Fold:
        """A fold of the shorter record as one of the whole record. It covers the rewinds within its range."""
        if not self._rewinds:
            return fold
        first, last = self.record.origin_of(fold.start), self.record.origin_of(fold.stop - 1)
        assert first is not None
        assert last is not None
        replaced = [active for active in self._active if active.start <= last and first < active.stop]
        start = min([first, *(active.start for active in replaced)])
        return replace(fold, start=start, stop=max([last + 1, *(active.stop for active in replaced)]))

    def _index(self, position: int) -> int:
        return position - sum(fold.stop - fold.start for fold in self._rewinds if fold.start < position)
