"""The agent loop: provider adapters, tools, retries, limits, telemetry, and the runner that records everything.

Conversations in a store are in `conversation`; agents written in a file are in `dsl`. Start with `runner`, then `loop`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "adapter": ("ProviderAdapter",),
    "events": (
        "AnswerRestarted",
        "RunFinished",
        "ModelAnswered",
        "RunEvent",
        "ToolAnswered",
        "ToolCalled",
        "ViewBuilt",
    ),
    "limits": ("Budget", "BudgetTracker", "Deadline"),
    "messages": ("ModelReply", "ModelRequest", "PromptResponse", "TextDelta", "ThinkingDelta", "Usage"),
    "providers.anthropic": ("AnthropicAdapter",),
    "providers.openai": ("OpenAIAdapter",),
    "retry": ("RetryPolicy",),
    "runner": ("ConversationRunner", "StoredConversation", "StoredRecord"),
    "summarizer": ("ModelSummarizer",),
    "telemetry": ("OpenTelemetry",),
    "toolbox": ("builtin_tools", "recall"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
