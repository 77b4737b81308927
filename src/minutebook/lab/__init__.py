"""Replay recorded sessions under history policies, and compare cost and recall. No model is called.

Start with `evaluate(policy, load_sessions(paths))`. `replay_requests` has the requests of one session under one policy.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "databases": ("StoredConversations", "open_conversations"),
    "outcome": ("Miss", "SessionOutcome", "replay_session"),
    "prompt_cache": ("Billing", "CacheRules", "Charge", "PromptCache", "PromptItem", "TYPICAL_BILLING", "billing_of"),
    "replay": ("FULL", "Peer", "ReplayedRequest", "replay_requests"),
    "report": ("PolicyResult", "ReplayInterrupted", "Report", "evaluate"),
    "settings_search": ("Tuning", "tune"),
    "sessions": ("LaterUse", "RecordedCall", "RecordedSession", "load_sessions"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
