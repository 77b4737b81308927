from minutebook.lab.outcome import (
    Miss as Miss,
    SessionOutcome as SessionOutcome,
    replay_session as replay_session,
)
from minutebook.lab.prompt_cache import (
    Billing as Billing,
    Charge as Charge,
    PromptCache as PromptCache,
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
    Report as Report,
    evaluate as evaluate,
)
from minutebook.lab.sessions import (
    LaterUse as LaterUse,
    RecordedCall as RecordedCall,
    RecordedSession as RecordedSession,
    load_sessions as load_sessions,
)

__all__ = [
    "Billing",
    "Charge",
    "FULL",
    "LaterUse",
    "Miss",
    "Peer",
    "PolicyResult",
    "PromptCache",
    "RecordedCall",
    "RecordedSession",
    "ReplayedRequest",
    "Report",
    "SessionOutcome",
    "TYPICAL_BILLING",
    "billing_of",
    "evaluate",
    "load_sessions",
    "replay_requests",
    "replay_session",
]
