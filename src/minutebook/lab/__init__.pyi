from minutebook.lab.replay import (
    FULL as FULL,
    Miss as Miss,
    SessionOutcome as SessionOutcome,
    replay_session as replay_session,
)
from minutebook.lab.report import (
    PolicyResult as PolicyResult,
    Report as Report,
    evaluate as evaluate,
)
from minutebook.lab.sessions import (
    RecordedSession as RecordedSession,
    load_sessions as load_sessions,
)

__all__ = [
    "FULL",
    "Miss",
    "PolicyResult",
    "RecordedSession",
    "Report",
    "SessionOutcome",
    "evaluate",
    "load_sessions",
    "replay_session",
]
