"""The record: messages, entries, exchanges and turns, validation, repair, the transcript and folds.

Pure values and functions, without I/O. What a view leaves out is decided in `history`. Read `exchange` first, then
`transcript`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "entry": ("ConversationEntry", "ConversationRecorded", "ToolCall"),
    "exchange": ("exchanges", "last_turns", "safe_boundaries", "turn_count", "turns"),
    "finding": ("Finding", "FindingKind"),
    "fold": ("Fold",),
    "message": ("ChatMessage", "Message", "MessageRole", "Provider"),
    "repairs": ("Repair", "RepairAction", "Repaired", "repair"),
    "transcript": ("Transcript",),
    "validation": ("check", "is_valid"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
