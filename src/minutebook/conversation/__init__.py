"""Stored conversations: model calls, retention, compaction, and the minutes of each request.

`model_call` builds the view of a stored record and stores the answer. HTTP is in `service`. Start with `model_call`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "agent_call": ("RunLimits",),
    "background": ("BackgroundCompaction",),
    "config": ("RetentionConfig",),
    "handle.async_conversation": ("AsyncConversation", "MessageInput"),
    "history": ("ConversationHistory", "HistoryStatus", "history_settings"),
    "jobs": ("run_worker",),
    "requests": ("MessageReason", "Request", "UsageTotal", "remove_requests", "usage_totals"),
    "retention": ("PruningDecision", "RetentionPolicy"),
    "handle.sync_conversation": ("Conversation",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
