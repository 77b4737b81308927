"""Conversation history for LLM agents and chat services.

The record keeps everything. The view is what the model reads: valid, within the budget, cheap, explainable, reversible.
The names that most programs need are here; every package exports its own: `from minutebook.planning import Plan`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "agent": ("AnthropicAdapter", "ConversationRunner", "ModelSummarizer", "OpenAIAdapter", "PromptResponse"),
    "compaction": (
        "CompactionManager",
        "HistoryCompacted",
        "HistoryStrategy",
        "SummarizeStrategy",
        "TruncateStrategy",
        "TurnStrategy",
        "register_strategy",
    ),
    "conversation": ("AsyncConversation", "Conversation", "ConversationHistory", "RetentionPolicy"),
    "errors": ("CannotFit", "MinutebookError", "ToolValidationError", "VisibilityExpansionRequired"),
    "history": (
        "Changed",
        "ComposedManager",
        "CurationContext",
        "HistoryCurated",
        "HistoryManager",
        "ObservableManager",
        "PassthroughManager",
        "SlidingWindowManager",
        "TokenBudgetManager",
        "ToolResultClearer",
        "ToolResultTruncator",
        "TurnWindowManager",
        "View",
        "view_of",
    ),
    "prompt": ("MarkdownSection", "Prompt", "PromptTemplate", "Section", "Tool", "ToolContext", "ToolResult", "tool"),
    "record": (
        "ConversationEntry",
        "ConversationRecorded",
        "Fold",
        "Message",
        "ToolCall",
        "Transcript",
        "check",
        "repair",
    ),
    "session": ("InProcessEventBus", "Session"),
    "store": ("ConversationStore", "MemoryStore", "open_store"),
    "tokens": ("ModelInfo", "counter_for", "model_info"),
}
__version__ = "0.1.0"
_names, __getattr__, __dir__ = exports(__name__, _EXPORTS)
__all__ = ["__version__", *_names]  # noqa: PLE0604 - the names of the table
