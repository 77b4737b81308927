"""What a compaction strategy is."""

from collections.abc import AsyncIterator
from typing import Final, Protocol, runtime_checkable

from minutebook.compaction.situation import Situation
from minutebook.compaction.summarizer import Summarizer
from minutebook.record.fold import Fold

THRESHOLD: Final = 0.8
"""A window that is fuller than this is compacted."""


@runtime_checkable
class HistoryStrategy(Protocol):
    """Decides that a fold is due, and makes it. It changes nothing itself: whoever asked keeps the folds, or not."""

    @property
    def name(self) -> str:
        """What notices and reasons call it."""
        ...

    def should_trigger(self, situation: Situation) -> bool:
        """Whether something must be folded before the next call."""
        ...

    def apply(self, situation: Situation, summarizer: Summarizer) -> AsyncIterator[Fold]:
        """The folds to add. Whatever is raised, nothing is changed."""
        ...


def is_too_full(situation: Situation) -> bool:
    """Whether the next call would send more than the threshold; exactly as much is not too much."""
    return situation.tokens > int(situation.limit * THRESHOLD)
