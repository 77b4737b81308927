"""Facts about compaction."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class HistoryCompacted:
    """Emitted when folds were added to a conversation. It is for people, and never sent to a model."""

    strategy: str
    folds: tuple[str, ...]
    """The ids of the folds that were added."""
    tokens_before: int
    tokens_after: int
    session_id: UUID | None
    created_at: datetime
    fallback: str | None = None
    """Why another strategy had to help, where one had."""

    @property
    def notice(self) -> str:
        """What a user is shown."""
        return f"[History compacted using {self.strategy} strategy]"
