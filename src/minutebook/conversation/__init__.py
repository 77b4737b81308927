"""A conversation in a store: one model call of it, retention, compaction, and the description of each request.

`model_call` is the path from the stored record to what is sent. HTTP is in `service`. Start with `model_call`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "background": ("BackgroundCompaction",),
    "config": ("RetentionConfig",),
    "history": ("ConversationHistory", "HistoryStatus", "history_settings"),
    "jobs": ("run_worker",),
    "retention": ("PruningDecision", "RetentionPolicy"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
