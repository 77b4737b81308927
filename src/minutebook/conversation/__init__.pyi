from minutebook.conversation.background import (
    BackgroundCompaction as BackgroundCompaction,
)
from minutebook.conversation.config import (
    RetentionConfig as RetentionConfig,
)
from minutebook.conversation.history import (
    ConversationHistory as ConversationHistory,
    HistoryStatus as HistoryStatus,
    history_settings as history_settings,
)
from minutebook.conversation.jobs import (
    run_worker as run_worker,
)
from minutebook.conversation.retention import (
    PruningDecision as PruningDecision,
    RetentionPolicy as RetentionPolicy,
)

__all__ = [
    "BackgroundCompaction",
    "ConversationHistory",
    "HistoryStatus",
    "PruningDecision",
    "RetentionConfig",
    "RetentionPolicy",
    "history_settings",
    "run_worker",
]
