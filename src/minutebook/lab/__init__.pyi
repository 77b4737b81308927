from minutebook.lab.databases import (
    StoredConversations as StoredConversations,
    open_conversations as open_conversations,
)
from minutebook.lab.outcome import (
    Miss as Miss,
    SessionOutcome as SessionOutcome,
    replay_session as replay_session,
)
from minutebook.lab.prompt_cache import (
    Billing as Billing,
    CacheRules as CacheRules,
    Charge as Charge,
    PromptCache as PromptCache,
    PromptItem as PromptItem,
    TYPICAL_BILLING as TYPICAL_BILLING,
    billing_of as billing_of,
)
from minutebook.lab.replay import (
    FULL as FULL,
    Peer as Peer,
    ReplayedRequest as ReplayedRequest,
    replay_requests as replay_requests,
)
from minutebook.lab.report import (
    PolicyResult as PolicyResult,
    ReplayInterrupted as ReplayInterrupted,
    Report as Report,
    evaluate as evaluate,
)
from minutebook.lab.sessions import (
    LaterUse as LaterUse,
    RecordedCall as RecordedCall,
    RecordedSession as RecordedSession,
    load_sessions as load_sessions,
)
from minutebook.lab.settings_search import (
    Tuning as Tuning,
    tune as tune,
)

__all__ = [
    "Billing",
    "CacheRules",
    "Charge",
    "FULL",
    "LaterUse",
    "Miss",
    "Peer",
    "PolicyResult",
    "PromptCache",
    "PromptItem",
    "RecordedCall",
    "RecordedSession",
    "ReplayInterrupted",
    "ReplayedRequest",
    "Report",
    "SessionOutcome",
    "StoredConversations",
    "TYPICAL_BILLING",
    "Tuning",
    "billing_of",
    "evaluate",
    "load_sessions",
    "open_conversations",
    "replay_requests",
    "replay_session",
    "tune",
]
