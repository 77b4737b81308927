"""Facts about the record."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from minutebook.record.entry import ConversationEntry


@dataclass(slots=True, frozen=True)
class ConversationRecorded:
    """Emitted when a conversation entry is added to history."""

    entry: ConversationEntry
    """The recorded conversation entry."""
    session_id: UUID | None
    """Session that recorded this entry."""
    created_at: datetime
    """When the event was emitted."""
    position: int | None = None
    """Where its message stands in the conversation that is going on; None for what stands nowhere in it."""
    is_prompt: bool = False
    """Whether it is the prompt itself, as it was rendered, and nothing that anybody said."""
