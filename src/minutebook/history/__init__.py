"""Views: the pure managers that choose what a model call is sent, and the reasons for what it is not.

`guarantees` checks every view before it leaves. Strategies that write summaries are in `compaction`. Start with
`protocol`, `window` for the simplest manager, then `view`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "budget": ("TokenBudgetManager",),
    "cache_cost": ("CacheLedger",),
    "compose": ("ComposedManager", "ObservableManager", "ObservableSlidingWindowManager", "PassthroughManager"),
    "curation": ("Curated", "ViewNote", "NoteStatus"),
    "explanation": ("Explanation", "ExplanationLine", "explain"),
    "guarantees": ("Violation", "Guarded", "Guarantee", "guard"),
    "protocol": ("CurationContext", "EventBus", "HistoryCurated", "HistoryManager", "SessionProtocol"),
    "tool_calls": ("ActiveToolsManager", "ToolStripper"),
    "tool_results": ("ToolResultClearer", "ToolResultTruncator"),
    "view": ("View", "view_of"),
    "window": ("SlidingWindowManager", "TurnWindowManager"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
