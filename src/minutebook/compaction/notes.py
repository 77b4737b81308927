"""The ledger of a record that is folded further and further: what was counted for the last one is not counted again."""

from collections.abc import Sequence
from itertools import chain, pairwise

from minutebook.compaction.facts import Reading, written
from minutebook.compaction.situation import outside
from minutebook.compaction.tally import WEIGHTS, Tally, Weights, forms
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript


class Notes:
    """The facts of what is folded of one record.

    A ledger is made from all that is folded and not from the last ledger: how often a fact was named is not in that.
    """

    def __init__(self, record: Transcript, weights: Weights) -> None:
        self._record = record
        self._weights = weights
        self._read = Reading()
        self._begin()

    @classmethod
    def of(cls, record: Transcript, weights: Weights = WEIGHTS) -> "Notes":
        """The notes of a record: those it has already, or new ones."""
        return record.remember(("facts",), lambda: cls(record, weights))

    def _begin(self) -> None:
        self._tally = Tally(self._record.counter, self._weights)
        self._counted: list[range] = []

    def ledger(self, stretches: Sequence[range], *, carried: Message | None, max_tokens: int, said: str) -> str:
        """The ledger of these stretches, given the summary that stood for some of them before."""
        self._count(stretches, carried)
        ends = [0, *chain.from_iterable((run.start, run.stop) for run in stretches), len(self._record)]
        kept = (self._record[place] for start, stop in list(pairwise(ends))[::2] for place in range(start, stop))
        known = {form for message in kept for key in self._read(message) for form in forms(*key)}
        return written(self._tally, max_tokens=max_tokens, said=said, known=known)

    def _count(self, stretches: Sequence[range], carried: Message | None) -> None:
        """Count what is new in these stretches."""
        new = [place for run in stretches for place in outside(run, self._counted)]
        if len(new) + sum(map(len, self._counted)) > sum(map(len, stretches)):
            # A fold was undone, or somebody else folds the same record.
            self._begin()
            new = [place for run in stretches for place in run]
        if carried is not None:
            # Of a record that is whole it names nothing new; of one that is not, what is gone.
            self._tally.add(0, carried, [key for key in self._read(carried) if key not in self._tally.uses])
        for place in new:
            message = self._record[place]
            self._tally.add(place, message, self._read(message))
        self._counted = list(stretches)
