from minutebook.integrations.adk.compaction import (
    AdkCompaction as AdkCompaction,
    conversation_of as conversation_of,
)

__all__ = [
    "AdkCompaction",
    "conversation_of",
]
