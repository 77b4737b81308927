"""Conversation history for LLM agents and chat services.

The record keeps everything. The view is what the model reads: valid, inside the budget, cheap, explainable, reversible.
"""

_HOMES = {
    "errors": (
        "BrokenConversation",
        "BudgetExceeded",
        "CannotFit",
        "ContextOverflow",
        "DeadlineExceeded",
        "DuplicateName",
        "EventFailed",
        "InvalidMessage",
        "InvalidSetting",
        "LogIsAppendOnly",
        "MinutebookError",
        "MissingExtra",
        "MissingParams",
        "NoReducer",
        "NotStorable",
        "OutputParseError",
        "PromiseBroken",
        "PromptEvaluationError",
        "ProviderFailed",
        "RecordIsReadOnly",
        "ReducerFailed",
        "RetriesExhausted",
        "TooManyCalls",
        "ToolValidationError",
        "UnknownPlaceholder",
        "UnknownRole",
        "UnknownType",
        "UnknownVocabulary",
        "UnreadableInput",
        "UnsupportedType",
        "VisibilityExpansionRequired",
    ),
    "tokens": (
        "CalibratedCounter",
        "EstimatedCounter",
        "ExactCounter",
        "ScaledCounter",
        "TokenCounter",
        "counter_for",
    ),
    "tokens.models": ("ModelInfo", "Prices", "UnknownModel", "known_models", "model_info"),
    "record.check": ("check", "is_valid"),
    "record.entry": ("ConversationEntry", "ToolCall"),
    "record.events": ("ConversationRecorded",),
    "record.exchange": ("exchanges", "safe_boundaries", "turn_count", "turns"),
    "record.finding": ("Finding", "FindingKind", "Severity"),
    "record.fold": ("Fold",),
    "record.message": ("ChatMessage", "Message", "MessageRole", "Provider"),
    "record.repair": ("Repair", "RepairAction", "Repaired", "repair"),
    "record.transcript": ("Transcript",),
    "wire.anthropic": ("AnthropicMessages", "from_anthropic", "to_anthropic"),
    "wire.chat": ("entry_to_provider_message", "provider_message_to_entry"),
    "wire.stored": ("entry_from_json", "entry_to_json"),
    "history.budget": ("TokenBudgetManager",),
    "history.cache": ("CacheLedger", "CachePrices"),
    "history.compose": ("ComposedManager", "PassthroughManager"),
    "history.context": ("CurationContext",),
    "history.curated": ("Curated", "Note", "Status"),
    "history.events": ("HistoryCurated",),
    "history.explain": ("Explanation", "Line", "explain"),
    "history.guard": ("Breach", "Guarded", "Promise", "guard"),
    "history.observe": ("ObservableManager", "ObservableSlidingWindowManager"),
    "history.protocol": ("EventBus", "HistoryManager", "SessionProtocol"),
    "history.results": ("ToolResultClearer", "ToolResultTruncator"),
    "history.tools": ("ActiveToolsManager", "ToolStripper"),
    "history.view": ("View", "view_of"),
    "history.window": ("SlidingWindowManager", "TurnWindowManager"),
    "session.bus": ("HandlerFailure", "InProcessEventBus", "PublishResult"),
    "session.fluent": ("Mutation", "Query"),
    "session.reducer": ("Append", "ReducerContext", "append", "replace_latest", "upsert_by"),
    "session.registry": ("TypeRegistry",),
    "session.select": ("get_evaluation_history", "select_all", "select_latest", "select_where"),
    "session.session": ("Session",),
    "session.snapshot": ("Snapshot",),
    "session.staging": ("SliceKind",),
    "prompt.context": ("RenderContext", "ToolContext"),
    "prompt.function": ("tool", "tool_from"),
    "prompt.markdown": ("MarkdownSection",),
    "prompt.prompt": ("Prompt", "PromptTemplate"),
    "prompt.rendered": ("RenderedPrompt", "RenderedSection"),
    "prompt.result": ("ToolResult",),
    "prompt.section": ("Section",),
    "prompt.tool": ("Tool", "ToolExample"),
    "prompt.visibility": ("SectionPath", "SectionVisibility"),
    "agent.adapter": ("ProviderAdapter",),
    "agent.anthropic": ("AnthropicAdapter",),
    "agent.budget": ("Budget", "BudgetTracker"),
    "agent.deadline": ("Deadline",),
    "agent.events": (
        "AnswerRestarted",
        "Finished",
        "ModelAnswered",
        "RunEvent",
        "ToolAnswered",
        "ToolCalled",
        "ViewMade",
    ),
    "agent.openai": ("OpenAIAdapter",),
    "agent.request": ("ModelReply", "ModelRequest", "OutputSchema", "TextDelta", "ThinkingDelta"),
    "agent.response": ("PromptResponse",),
    "agent.runner": ("Compactor", "ConversationRunner"),
    "agent.telemetry": ("OpenTelemetry",),
    "agent.throttle": ("Throttle",),
    "agent.usage": ("Usage",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - the names are the keys above


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `import minutebook` costs next to nothing."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'minutebook' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"minutebook.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
