"""What became of an attempt to compact a conversation, and the events that tell of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CompactionOutcome(StrEnum):
    """How an attempt ended."""

    FOLDED = "folded"
    NOTHING_TO_FOLD = "nothing to fold"
    """There is no turn to sum up beyond those that are kept, or too little to make it shorter."""
    FAILED = "failed"
    """The summarizer raised."""
    REJECTED = "rejected"
    """The summary may not be used."""
    CONFLICT = "conflict"
    """Somebody else folded the same part in the meantime."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What an attempt did; true if something was folded. If not, nothing was changed, and `reason` says why."""

    conversation: str
    outcome: CompactionOutcome
    reason: str
    start: int | None = None
    """The first position that was folded, or would have been."""
    stop: int | None = None
    """The first position after it."""
    turns: int = 0
    """How many turns were summed up that were not before."""
    fold_id: str | None = None
    """What undoes it."""
    summary: str | None = None
    tokens_before: int | None = None
    """The tokens with which the view showed that part before."""
    tokens_after: int | None = None
    purged: int = 0
    """How many entries were deleted, where that is asked for."""
    error: Exception | None = None
    """What the summarizer raised, or what was wrong with its summary."""

    def __bool__(self) -> bool:
        return self.outcome is CompactionOutcome.FOLDED


@dataclass(frozen=True, slots=True)
class ConversationCompacted:
    """Old turns of a conversation are shown as a summary from now on."""

    result: CompactionResult
    tenant: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """A conversation should have been compacted and was not; it is as it was."""

    result: CompactionResult
    tenant: str
    created_at: datetime
