"""Replay recorded sessions under history policies, and compare cost and recall. No model is called.

Start with `evaluate(policies, load_sessions(paths), budget=32_000)`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "replay": ("FULL", "Miss", "SessionOutcome", "replay_session"),
    "report": ("PolicyResult", "Report", "evaluate"),
    "sessions": ("RecordedSession", "load_sessions"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
