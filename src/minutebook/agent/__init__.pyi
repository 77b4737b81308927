from minutebook.agent.adapter import (
    ProviderAdapter as ProviderAdapter,
)
from minutebook.agent.events import (
    AnswerRestarted as AnswerRestarted,
    ModelAnswered as ModelAnswered,
    RunEvent as RunEvent,
    RunFinished as RunFinished,
    ToolAnswered as ToolAnswered,
    ToolCalled as ToolCalled,
    ViewBuilt as ViewBuilt,
)
from minutebook.agent.limits import (
    Budget as Budget,
    BudgetTracker as BudgetTracker,
    Deadline as Deadline,
)
from minutebook.agent.messages import (
    ModelReply as ModelReply,
    ModelRequest as ModelRequest,
    PromptResponse as PromptResponse,
    TextDelta as TextDelta,
    ThinkingDelta as ThinkingDelta,
    Usage as Usage,
)
from minutebook.agent.providers.anthropic import (
    AnthropicAdapter as AnthropicAdapter,
)
from minutebook.agent.providers.openai import (
    OpenAIAdapter as OpenAIAdapter,
)
from minutebook.agent.retry import (
    RetryPolicy as RetryPolicy,
)
from minutebook.agent.runner import (
    ConversationRunner as ConversationRunner,
    StoredConversation as StoredConversation,
    StoredRecord as StoredRecord,
)
from minutebook.agent.summarizer import (
    ModelSummarizer as ModelSummarizer,
)
from minutebook.agent.telemetry import (
    OpenTelemetry as OpenTelemetry,
)
from minutebook.agent.toolbox import (
    builtin_tools as builtin_tools,
    recall as recall,
)

__all__ = [
    "AnswerRestarted",
    "AnthropicAdapter",
    "Budget",
    "BudgetTracker",
    "ConversationRunner",
    "Deadline",
    "ModelAnswered",
    "ModelReply",
    "ModelRequest",
    "ModelSummarizer",
    "OpenAIAdapter",
    "OpenTelemetry",
    "PromptResponse",
    "ProviderAdapter",
    "RetryPolicy",
    "RunEvent",
    "RunFinished",
    "StoredConversation",
    "StoredRecord",
    "TextDelta",
    "ThinkingDelta",
    "ToolAnswered",
    "ToolCalled",
    "Usage",
    "ViewBuilt",
    "builtin_tools",
    "recall",
]
