"""Views: pure managers that select the messages of a model call, and the reasons for those left out.

`guarantees` checks every view before it is sent. Strategies that write summaries are in `compaction`. Start with
`protocol`, `window` for the simplest manager, then `view`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "budget": ("TokenBudgetManager",),
    "cache_cost": ("CacheLedger",),
    "compose": ("ComposedManager", "ObservableManager", "ObservableSlidingWindowManager", "PassthroughManager"),
    "curation": ("Changed", "Curated", "ViewNote", "NoteStatus"),
    "explanation": ("Explanation", "ExplanationLine", "explain"),
    "guarantees": ("Guarded", "guard"),
    "protocol": (
        *(
            "CurationContext",
            "EventBus",
            "Guarantee",
            "HistoryCurated",
            "HistoryManager",
            "SessionProtocol",
            "Violation",
        ),
    ),
    "scores": ("BM25Scorer", "EmbeddingScorer", "ScoreContext", "Scorer"),
    "tool_calls": ("ActiveToolsManager", "ToolStripper"),
    "tool_results": ("ToolResultClearer", "ToolResultTruncator"),
    "view": ("View", "view_of"),
    "window": ("SlidingWindowManager", "TurnWindowManager"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
