"""What a compaction strategy is."""

from collections.abc import AsyncIterator
from typing import Final, Protocol, runtime_checkable

from minutebook.compaction.situation import Situation
from minutebook.compaction.summarizer import Summarizer
from minutebook.errors import InvalidSetting
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


def is_too_full(situation: Situation, threshold: float = THRESHOLD) -> bool:
    """Whether the next call would send more than this share of the window; exactly as much is not too much."""
    return situation.tokens > int(situation.limit * threshold)


def require_shares(threshold: float, target: float) -> None:
    """Raise InvalidSetting unless both are shares of the window, and compacting leads to below where it is due."""
    if not 0 < threshold <= 1:
        raise InvalidSetting("threshold", threshold, "a share of the window above 0 and up to 1, such as 0.8")
    if not 0 < target < threshold:
        raise InvalidSetting("target", target, f"a share of the window above 0 and below the threshold, {threshold}")
