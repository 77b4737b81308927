from minutebook.record.entry import (
    ConversationEntry as ConversationEntry,
    ConversationRecorded as ConversationRecorded,
    ToolCall as ToolCall,
)
from minutebook.record.exchange import (
    exchanges as exchanges,
    last_turns as last_turns,
    safe_boundaries as safe_boundaries,
    turn_count as turn_count,
    turns as turns,
)
from minutebook.record.finding import (
    Finding as Finding,
    FindingKind as FindingKind,
)
from minutebook.record.fold import (
    Fold as Fold,
)
from minutebook.record.message import (
    ChatMessage as ChatMessage,
    Message as Message,
    MessageRole as MessageRole,
    Provider as Provider,
)
from minutebook.record.repairs import (
    Repair as Repair,
    RepairAction as RepairAction,
    Repaired as Repaired,
    repair as repair,
)
from minutebook.record.transcript import (
    Transcript as Transcript,
)
from minutebook.record.validation import (
    check as check,
    is_valid as is_valid,
)

__all__ = [
    "ChatMessage",
    "ConversationEntry",
    "ConversationRecorded",
    "Finding",
    "FindingKind",
    "Fold",
    "Message",
    "MessageRole",
    "Provider",
    "Repair",
    "RepairAction",
    "Repaired",
    "ToolCall",
    "Transcript",
    "check",
    "exchanges",
    "is_valid",
    "last_turns",
    "repair",
    "safe_boundaries",
    "turn_count",
    "turns",
]
