"""Facts about curation."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(slots=True, frozen=True)
class HistoryCurated:
    """Emitted when conversation history is curated."""

    prompt_name: str
    original_count: int
    curated_count: int
    strategy: str
    session_id: UUID | None
    created_at: datetime
    tokens_before: int | None = None
    """The tokens of the whole conversation, where whoever tells it has counted."""
    tokens_after: int | None = None
    """The tokens of the view."""
