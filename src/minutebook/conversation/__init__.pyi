from minutebook.conversation.agent_call import (
    RunLimits as RunLimits,
)
from minutebook.conversation.background import (
    BackgroundCompaction as BackgroundCompaction,
)
from minutebook.conversation.config import (
    RetentionConfig as RetentionConfig,
)
from minutebook.conversation.handle import (
    AsyncConversation as AsyncConversation,
    MessageInput as MessageInput,
)
from minutebook.conversation.history import (
    ConversationHistory as ConversationHistory,
    HistoryStatus as HistoryStatus,
    history_settings as history_settings,
)
from minutebook.conversation.jobs import (
    run_worker as run_worker,
)
from minutebook.conversation.minutes import (
    MessageReason as MessageReason,
    Request as Request,
)
from minutebook.conversation.retention import (
    PruningDecision as PruningDecision,
    RetentionPolicy as RetentionPolicy,
)
from minutebook.conversation.sync import (
    Conversation as Conversation,
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
    "history_settings",
    "run_worker",
]
