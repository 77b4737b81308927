"""Compaction of Google ADK sessions: views and folds for an ADK agent. Start with `compaction`."""

from minutebook._lazy import exports

_EXPORTS = {
    "compaction": ("AdkCompaction", "conversation_of"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
