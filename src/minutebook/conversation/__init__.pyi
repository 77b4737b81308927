from minutebook.conversation.agent_call import (
    RunLimits as RunLimits,
)
from minutebook.conversation.background import (
    BackgroundCompaction as BackgroundCompaction,
)
from minutebook.conversation.config import (
    RetentionConfig as RetentionConfig,
)
from minutebook.conversation.handle.async_conversation import (
    AsyncConversation as AsyncConversation,
    MessageInput as MessageInput,
)
from minutebook.conversation.handle.sync_conversation import (
    Conversation as Conversation,
)
from minutebook.conversation.history import (
    ConversationHistory as ConversationHistory,
    HistoryStatus as HistoryStatus,
    history_settings as history_settings,
)
from minutebook.conversation.jobs import (
    run_worker as run_worker,
)
from minutebook.conversation.requests import (
    MessageReason as MessageReason,
    Request as Request,
    UsageTotal as UsageTotal,
    remove_requests as remove_requests,
    usage_totals as usage_totals,
)
from minutebook.conversation.retention import (
    PruningDecision as PruningDecision,
    RetentionPolicy as RetentionPolicy,
)

__all__ = [
    "AsyncConversation",
    "BackgroundCompaction",
    "Conversation",
    "ConversationHistory",
    "HistoryStatus",
    "MessageInput",
    "MessageReason",
    "PruningDecision",
    "Request",
    "RetentionConfig",
    "RetentionPolicy",
    "RunLimits",
    "UsageTotal",
    "history_settings",
    "remove_requests",
    "run_worker",
    "usage_totals",
]
