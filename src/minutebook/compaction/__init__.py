"""Strategies that decide when a part of the conversation is folded and what is shown instead.

The package also has the summarizers, the fact ledger and the registry of strategies by name. Everything here works on a
transcript in memory; the package `conversation` applies it to stored conversations. Start with `strategy`, then `manager`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "extractive": ("ExtractiveSummarizer",),
    "fact_ledger": ("facts", "ledger"),
    "hybrid": ("HybridStrategy",),
    "manager": ("CompactionManager", "CompactionResult", "HistoryCompacted"),
    "registry": ("register_strategy", "strategy_named", "strategy_names", "unregister_strategy"),
    "strategy": ("HistoryStrategy", "CompactionInput"),
    "summarize": ("SummarizeStrategy",),
    "summarizer": ("Summarizer", "SummaryRequest", "SummaryRole", "is_summary", "summary_message", "summary_text"),
    "truncate": ("TruncateStrategy",),
    "turns": ("TurnStrategy",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
