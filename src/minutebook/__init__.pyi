from minutebook.agent.adapter import (
    ProviderAdapter as ProviderAdapter,
)
from minutebook.agent.anthropic import (
    AnthropicAdapter as AnthropicAdapter,
)
from minutebook.agent.budget import (
    Budget as Budget,
)
from minutebook.agent.budget import (
    BudgetTracker as BudgetTracker,
)
from minutebook.agent.deadline import (
    Deadline as Deadline,
)
from minutebook.agent.events import (
    AnswerRestarted as AnswerRestarted,
)
from minutebook.agent.events import (
    Finished as Finished,
)
from minutebook.agent.events import (
    ModelAnswered as ModelAnswered,
)
from minutebook.agent.events import (
    RunEvent as RunEvent,
)
from minutebook.agent.events import (
    ToolAnswered as ToolAnswered,
)
from minutebook.agent.events import (
    ToolCalled as ToolCalled,
)
from minutebook.agent.events import (
    ViewMade as ViewMade,
)
from minutebook.agent.openai import (
    OpenAIAdapter as OpenAIAdapter,
)
from minutebook.agent.request import (
    ModelReply as ModelReply,
)
from minutebook.agent.request import (
    ModelRequest as ModelRequest,
)
from minutebook.agent.request import (
    OutputSchema as OutputSchema,
)
from minutebook.agent.request import (
    TextDelta as TextDelta,
)
from minutebook.agent.request import (
    ThinkingDelta as ThinkingDelta,
)
from minutebook.agent.response import (
    PromptResponse as PromptResponse,
)
from minutebook.agent.runner import (
    Compactor as Compactor,
)
from minutebook.agent.runner import (
    ConversationRunner as ConversationRunner,
)
from minutebook.agent.summarizer import (
    ModelSummarizer as ModelSummarizer,
)
from minutebook.agent.telemetry import (
    OpenTelemetry as OpenTelemetry,
)
from minutebook.agent.throttle import (
    Throttle as Throttle,
)
from minutebook.agent.usage import (
    Usage as Usage,
)
from minutebook.compaction.config import (
    HistoryConfig as HistoryConfig,
)
from minutebook.compaction.events import (
    HistoryCompacted as HistoryCompacted,
)
from minutebook.compaction.extract import (
    ExtractiveSummarizer as ExtractiveSummarizer,
)
from minutebook.compaction.facts import (
    Fact as Fact,
)
from minutebook.compaction.facts import (
    facts as facts,
)
from minutebook.compaction.facts import (
    ledger as ledger,
)
from minutebook.compaction.hybrid import (
    HybridStrategy as HybridStrategy,
)
from minutebook.compaction.manager import (
    Compaction as Compaction,
)
from minutebook.compaction.manager import (
    CompactionManager as CompactionManager,
)
from minutebook.compaction.registry import (
    register_strategy as register_strategy,
)
from minutebook.compaction.registry import (
    strategy_named as strategy_named,
)
from minutebook.compaction.registry import (
    strategy_names as strategy_names,
)
from minutebook.compaction.registry import (
    unregister_strategy as unregister_strategy,
)
from minutebook.compaction.result import (
    CompactionFailed as CompactionFailed,
)
from minutebook.compaction.result import (
    CompactionOutcome as CompactionOutcome,
)
from minutebook.compaction.result import (
    CompactionResult as CompactionResult,
)
from minutebook.compaction.result import (
    ConversationCompacted as ConversationCompacted,
)
from minutebook.compaction.shown import (
    SummaryRole as SummaryRole,
)
from minutebook.compaction.shown import (
    is_summary as is_summary,
)
from minutebook.compaction.shown import (
    summary_message as summary_message,
)
from minutebook.compaction.shown import (
    summary_text as summary_text,
)
from minutebook.compaction.situation import (
    Situation as Situation,
)
from minutebook.compaction.strategy import (
    HistoryStrategy as HistoryStrategy,
)
from minutebook.compaction.summarize import (
    SummarizeStrategy as SummarizeStrategy,
)
from minutebook.compaction.summarizer import (
    Summarizer as Summarizer,
)
from minutebook.compaction.summarizer import (
    SummaryRequest as SummaryRequest,
)
from minutebook.compaction.truncate import (
    TruncateStrategy as TruncateStrategy,
)
from minutebook.compaction.turns import (
    TurnStrategy as TurnStrategy,
)
from minutebook.dsl.adapters import (
    provider_adapters as provider_adapters,
)
from minutebook.dsl.builtin import (
    builtin_tools as builtin_tools,
)
from minutebook.dsl.check import (
    check_agents as check_agents,
)
from minutebook.dsl.compile import (
    compile_agents as compile_agents,
)
from minutebook.dsl.diagnostic import (
    Diagnostic as Diagnostic,
)
from minutebook.dsl.happening import (
    AgentEvent as AgentEvent,
)
from minutebook.dsl.happening import (
    WorkflowFinished as WorkflowFinished,
)
from minutebook.dsl.parse import (
    parse_agents as parse_agents,
)
from minutebook.dsl.printer import (
    format_agents as format_agents,
)
from minutebook.dsl.spec import (
    AgentSpec as AgentSpec,
)
from minutebook.dsl.spec import (
    FlowSpec as FlowSpec,
)
from minutebook.dsl.spec import (
    ModelSpec as ModelSpec,
)
from minutebook.dsl.spec import (
    PromptSpec as PromptSpec,
)
from minutebook.dsl.spec import (
    SchemaSpec as SchemaSpec,
)
from minutebook.dsl.spec import (
    ToolSpec as ToolSpec,
)
from minutebook.dsl.spec import (
    WorkflowSpec as WorkflowSpec,
)
from minutebook.dsl.tree import (
    Program as Program,
)
from minutebook.dsl.workflow import (
    DslWorkflow as DslWorkflow,
)
from minutebook.errors import (
    BrokenConversation as BrokenConversation,
)
from minutebook.errors import (
    BudgetExceeded as BudgetExceeded,
)
from minutebook.errors import (
    CannotFit as CannotFit,
)
from minutebook.errors import (
    ContextOverflow as ContextOverflow,
)
from minutebook.errors import (
    ConversationBusy as ConversationBusy,
)
from minutebook.errors import (
    ConversationErased as ConversationErased,
)
from minutebook.errors import (
    ConversationNotFound as ConversationNotFound,
)
from minutebook.errors import (
    DeadlineExceeded as DeadlineExceeded,
)
from minutebook.errors import (
    DocumentExists as DocumentExists,
)
from minutebook.errors import (
    DocumentNotFound as DocumentNotFound,
)
from minutebook.errors import (
    DuplicateName as DuplicateName,
)
from minutebook.errors import (
    EventFailed as EventFailed,
)
from minutebook.errors import (
    FlowFailed as FlowFailed,
)
from minutebook.errors import (
    FoldConflict as FoldConflict,
)
from minutebook.errors import (
    FoldNotFound as FoldNotFound,
)
from minutebook.errors import (
    IdempotencyConflict as IdempotencyConflict,
)
from minutebook.errors import (
    InvalidConfig as InvalidConfig,
)
from minutebook.errors import (
    InvalidMessage as InvalidMessage,
)
from minutebook.errors import (
    InvalidSetting as InvalidSetting,
)
from minutebook.errors import (
    LeaseLost as LeaseLost,
)
from minutebook.errors import (
    LogIsAppendOnly as LogIsAppendOnly,
)
from minutebook.errors import (
    MinutebookError as MinutebookError,
)
from minutebook.errors import (
    MissingExtra as MissingExtra,
)
from minutebook.errors import (
    MissingParams as MissingParams,
)
from minutebook.errors import (
    MissingWeights as MissingWeights,
)
from minutebook.errors import (
    ModelDidNotStart as ModelDidNotStart,
)
from minutebook.errors import (
    NoReducer as NoReducer,
)
from minutebook.errors import (
    NotStorable as NotStorable,
)
from minutebook.errors import (
    OutputParseError as OutputParseError,
)
from minutebook.errors import (
    ProgramInvalid as ProgramInvalid,
)
from minutebook.errors import (
    PromiseBroken as PromiseBroken,
)
from minutebook.errors import (
    PromptEvaluationError as PromptEvaluationError,
)
from minutebook.errors import (
    ProviderFailed as ProviderFailed,
)
from minutebook.errors import (
    RecordIsReadOnly as RecordIsReadOnly,
)
from minutebook.errors import (
    ReducerFailed as ReducerFailed,
)
from minutebook.errors import (
    RequestRefused as RequestRefused,
)
from minutebook.errors import (
    RetriesExhausted as RetriesExhausted,
)
from minutebook.errors import (
    StoreDamaged as StoreDamaged,
)
from minutebook.errors import (
    StoreFull as StoreFull,
)
from minutebook.errors import (
    StoreReadOnly as StoreReadOnly,
)
from minutebook.errors import (
    StoreUnavailable as StoreUnavailable,
)
from minutebook.errors import (
    SummaryRejected as SummaryRejected,
)
from minutebook.errors import (
    TooManyCalls as TooManyCalls,
)
from minutebook.errors import (
    ToolServerFailed as ToolServerFailed,
)
from minutebook.errors import (
    ToolValidationError as ToolValidationError,
)
from minutebook.errors import (
    UnknownPlaceholder as UnknownPlaceholder,
)
from minutebook.errors import (
    UnknownRole as UnknownRole,
)
from minutebook.errors import (
    UnknownStrategy as UnknownStrategy,
)
from minutebook.errors import (
    UnknownType as UnknownType,
)
from minutebook.errors import (
    UnknownVocabulary as UnknownVocabulary,
)
from minutebook.errors import (
    UnreadableInput as UnreadableInput,
)
from minutebook.errors import (
    UnsupportedType as UnsupportedType,
)
from minutebook.errors import (
    VersionConflict as VersionConflict,
)
from minutebook.errors import (
    VisibilityExpansionRequired as VisibilityExpansionRequired,
)
from minutebook.errors import (
    WrongKey as WrongKey,
)
from minutebook.errors import (
    WrongWeights as WrongWeights,
)
from minutebook.history.budget import (
    TokenBudgetManager as TokenBudgetManager,
)
from minutebook.history.cache import (
    CacheLedger as CacheLedger,
)
from minutebook.history.cache import (
    CachePrices as CachePrices,
)
from minutebook.history.compose import (
    ComposedManager as ComposedManager,
)
from minutebook.history.compose import (
    PassthroughManager as PassthroughManager,
)
from minutebook.history.context import (
    CurationContext as CurationContext,
)
from minutebook.history.curated import (
    Curated as Curated,
)
from minutebook.history.curated import (
    Note as Note,
)
from minutebook.history.curated import (
    Status as Status,
)
from minutebook.history.events import (
    HistoryCurated as HistoryCurated,
)
from minutebook.history.explain import (
    Explanation as Explanation,
)
from minutebook.history.explain import (
    Line as Line,
)
from minutebook.history.explain import (
    explain as explain,
)
from minutebook.history.guard import (
    Breach as Breach,
)
from minutebook.history.guard import (
    Guarded as Guarded,
)
from minutebook.history.guard import (
    Promise as Promise,
)
from minutebook.history.guard import (
    guard as guard,
)
from minutebook.history.observe import (
    ObservableManager as ObservableManager,
)
from minutebook.history.observe import (
    ObservableSlidingWindowManager as ObservableSlidingWindowManager,
)
from minutebook.history.protocol import (
    EventBus as EventBus,
)
from minutebook.history.protocol import (
    HistoryManager as HistoryManager,
)
from minutebook.history.protocol import (
    SessionProtocol as SessionProtocol,
)
from minutebook.history.results import (
    ToolResultClearer as ToolResultClearer,
)
from minutebook.history.results import (
    ToolResultTruncator as ToolResultTruncator,
)
from minutebook.history.tools import (
    ActiveToolsManager as ActiveToolsManager,
)
from minutebook.history.tools import (
    ToolStripper as ToolStripper,
)
from minutebook.history.view import (
    View as View,
)
from minutebook.history.view import (
    view_of as view_of,
)
from minutebook.history.window import (
    SlidingWindowManager as SlidingWindowManager,
)
from minutebook.history.window import (
    TurnWindowManager as TurnWindowManager,
)
from minutebook.planning.budget import (
    StepBudget as StepBudget,
)
from minutebook.planning.events import (
    AddHistorySteps as AddHistorySteps,
)
from minutebook.planning.events import (
    AddStep as AddStep,
)
from minutebook.planning.events import (
    AppendTurn as AppendTurn,
)
from minutebook.planning.events import (
    ExpandStep as ExpandStep,
)
from minutebook.planning.events import (
    InitializeTaskHistory as InitializeTaskHistory,
)
from minutebook.planning.events import (
    NoteSummary as NoteSummary,
)
from minutebook.planning.events import (
    PinStep as PinStep,
)
from minutebook.planning.events import (
    SetActiveStep as SetActiveStep,
)
from minutebook.planning.events import (
    SetupPlan as SetupPlan,
)
from minutebook.planning.events import (
    SummarizeStep as SummarizeStep,
)
from minutebook.planning.events import (
    UpdateStep as UpdateStep,
)
from minutebook.planning.extract import (
    extractive_summary as extractive_summary,
)
from minutebook.planning.install import (
    install_history as install_history,
)
from minutebook.planning.install import (
    install_plan as install_plan,
)
from minutebook.planning.install import (
    sync_plan_to_history as sync_plan_to_history,
)
from minutebook.planning.journal import (
    TaskJournal as TaskJournal,
)
from minutebook.planning.level import (
    StepVisibility as StepVisibility,
)
from minutebook.planning.level import (
    StepVisibilityResolver as StepVisibilityResolver,
)
from minutebook.planning.manager import (
    StepHistoryManager as StepHistoryManager,
)
from minutebook.planning.plan import (
    Plan as Plan,
)
from minutebook.planning.plan import (
    PlanStep as PlanStep,
)
from minutebook.planning.plan import (
    StepStatus as StepStatus,
)
from minutebook.planning.planner import (
    PlanningToolsSection as PlanningToolsSection,
)
from minutebook.planning.pressure import (
    ContextPressure as ContextPressure,
)
from minutebook.planning.prompted import (
    auto_summarize_step as auto_summarize_step,
)
from minutebook.planning.section import (
    TaskHistorySection as TaskHistorySection,
)
from minutebook.planning.task import (
    StepFold as StepFold,
)
from minutebook.planning.task import (
    StepHistory as StepHistory,
)
from minutebook.planning.task import (
    TaskHistory as TaskHistory,
)
from minutebook.planning.turn import (
    Turn as Turn,
)
from minutebook.prompt.context import (
    RenderContext as RenderContext,
)
from minutebook.prompt.context import (
    ToolContext as ToolContext,
)
from minutebook.prompt.function import (
    tool as tool,
)
from minutebook.prompt.function import (
    tool_from as tool_from,
)
from minutebook.prompt.markdown import (
    MarkdownSection as MarkdownSection,
)
from minutebook.prompt.prompt import (
    Prompt as Prompt,
)
from minutebook.prompt.prompt import (
    PromptTemplate as PromptTemplate,
)
from minutebook.prompt.rendered import (
    RenderedPrompt as RenderedPrompt,
)
from minutebook.prompt.rendered import (
    RenderedSection as RenderedSection,
)
from minutebook.prompt.result import (
    ToolResult as ToolResult,
)
from minutebook.prompt.section import (
    Section as Section,
)
from minutebook.prompt.tool import (
    Tool as Tool,
)
from minutebook.prompt.tool import (
    ToolExample as ToolExample,
)
from minutebook.prompt.visibility import (
    SectionPath as SectionPath,
)
from minutebook.prompt.visibility import (
    SectionVisibility as SectionVisibility,
)
from minutebook.record.check import (
    check as check,
)
from minutebook.record.check import (
    is_valid as is_valid,
)
from minutebook.record.entry import (
    ConversationEntry as ConversationEntry,
)
from minutebook.record.entry import (
    ToolCall as ToolCall,
)
from minutebook.record.events import (
    ConversationRecorded as ConversationRecorded,
)
from minutebook.record.exchange import (
    exchanges as exchanges,
)
from minutebook.record.exchange import (
    safe_boundaries as safe_boundaries,
)
from minutebook.record.exchange import (
    turn_count as turn_count,
)
from minutebook.record.exchange import (
    turns as turns,
)
from minutebook.record.finding import (
    Finding as Finding,
)
from minutebook.record.finding import (
    FindingKind as FindingKind,
)
from minutebook.record.finding import (
    Severity as Severity,
)
from minutebook.record.fold import (
    Fold as Fold,
)
from minutebook.record.message import (
    ChatMessage as ChatMessage,
)
from minutebook.record.message import (
    Message as Message,
)
from minutebook.record.message import (
    MessageRole as MessageRole,
)
from minutebook.record.message import (
    Provider as Provider,
)
from minutebook.record.repair import (
    Repair as Repair,
)
from minutebook.record.repair import (
    RepairAction as RepairAction,
)
from minutebook.record.repair import (
    Repaired as Repaired,
)
from minutebook.record.repair import (
    repair as repair,
)
from minutebook.record.transcript import (
    Transcript as Transcript,
)
from minutebook.service.app import (
    create_app as create_app,
)
from minutebook.service.config import (
    RetentionConfig as RetentionConfig,
)
from minutebook.service.config import (
    ServiceConfig as ServiceConfig,
)
from minutebook.service.configfile import (
    ConfigHolder as ConfigHolder,
)
from minutebook.service.configfile import (
    LoadedConfig as LoadedConfig,
)
from minutebook.service.configfile import (
    load_config as load_config,
)
from minutebook.service.opening import (
    service_from as service_from,
)
from minutebook.service.retention import (
    PruningDecision as PruningDecision,
)
from minutebook.service.retention import (
    RetainedContext as RetainedContext,
)
from minutebook.service.retention import (
    RetentionPolicy as RetentionPolicy,
)
from minutebook.session.bus import (
    HandlerFailure as HandlerFailure,
)
from minutebook.session.bus import (
    InProcessEventBus as InProcessEventBus,
)
from minutebook.session.bus import (
    PublishResult as PublishResult,
)
from minutebook.session.fluent import (
    Mutation as Mutation,
)
from minutebook.session.fluent import (
    Query as Query,
)
from minutebook.session.reducer import (
    Append as Append,
)
from minutebook.session.reducer import (
    ReducerContext as ReducerContext,
)
from minutebook.session.reducer import (
    append as append,
)
from minutebook.session.reducer import (
    replace_latest as replace_latest,
)
from minutebook.session.reducer import (
    upsert_by as upsert_by,
)
from minutebook.session.registry import (
    TypeRegistry as TypeRegistry,
)
from minutebook.session.select import (
    get_evaluation_history as get_evaluation_history,
)
from minutebook.session.select import (
    select_all as select_all,
)
from minutebook.session.select import (
    select_latest as select_latest,
)
from minutebook.session.select import (
    select_where as select_where,
)
from minutebook.session.session import (
    Session as Session,
)
from minutebook.session.snapshot import (
    Snapshot as Snapshot,
)
from minutebook.session.staging import (
    SliceKind as SliceKind,
)
from minutebook.store.background import (
    BackgroundCompaction as BackgroundCompaction,
)
from minutebook.store.compact import (
    TurnCompactor as TurnCompactor,
)
from minutebook.store.contract import (
    ConversationStore as ConversationStore,
)
from minutebook.store.documents import (
    Document as Document,
)
from minutebook.store.documents import (
    NewDocument as NewDocument,
)
from minutebook.store.encrypted import (
    encrypted as encrypted,
)
from minutebook.store.encrypted_store import (
    EncryptedStore as EncryptedStore,
)
from minutebook.store.history import (
    ConversationHistory as ConversationHistory,
)
from minutebook.store.history import (
    HistoryStatus as HistoryStatus,
)
from minutebook.store.leases import (
    Lease as Lease,
)
from minutebook.store.memory import (
    MemoryStore as MemoryStore,
)
from minutebook.store.open import (
    open_store as open_store,
)
from minutebook.store.postgres import (
    PostgresStore as PostgresStore,
)
from minutebook.store.postgres_jobs import (
    run_worker as run_worker,
)
from minutebook.store.redis import (
    RedisStore as RedisStore,
)
from minutebook.store.sqlite import (
    SqliteStore as SqliteStore,
)
from minutebook.store.types import (
    Conversation as Conversation,
)
from minutebook.store.types import (
    ConversationStatus as ConversationStatus,
)
from minutebook.store.types import (
    Hit as Hit,
)
from minutebook.store.types import (
    Imported as Imported,
)
from minutebook.store.types import (
    Loaded as Loaded,
)
from minutebook.store.types import (
    Origin as Origin,
)
from minutebook.store.types import (
    Page as Page,
)
from minutebook.store.types import (
    Receipt as Receipt,
)
from minutebook.store.types import (
    StoredFold as StoredFold,
)
from minutebook.tokens import (
    CalibratedCounter as CalibratedCounter,
)
from minutebook.tokens import (
    EstimatedCounter as EstimatedCounter,
)
from minutebook.tokens import (
    ExactCounter as ExactCounter,
)
from minutebook.tokens import (
    ScaledCounter as ScaledCounter,
)
from minutebook.tokens import (
    TokenCounter as TokenCounter,
)
from minutebook.tokens import (
    counter_for as counter_for,
)
from minutebook.tokens.models import (
    ModelInfo as ModelInfo,
)
from minutebook.tokens.models import (
    Prices as Prices,
)
from minutebook.tokens.models import (
    UnknownModel as UnknownModel,
)
from minutebook.tokens.models import (
    known_models as known_models,
)
from minutebook.tokens.models import (
    model_info as model_info,
)
from minutebook.wire.anthropic import (
    AnthropicMessages as AnthropicMessages,
)
from minutebook.wire.anthropic import (
    from_anthropic as from_anthropic,
)
from minutebook.wire.anthropic import (
    to_anthropic as to_anthropic,
)
from minutebook.wire.chat import (
    entry_to_provider_message as entry_to_provider_message,
)
from minutebook.wire.chat import (
    provider_message_to_entry as provider_message_to_entry,
)
from minutebook.wire.responses import (
    items_to_messages as items_to_messages,
)
from minutebook.wire.responses import (
    message_to_items as message_to_items,
)
from minutebook.wire.stored import (
    entry_from_json as entry_from_json,
)
from minutebook.wire.stored import (
    entry_to_json as entry_to_json,
)

__version__: str
__all__ = [
    "__version__",
    "ActiveToolsManager",
    "AddHistorySteps",
    "AddStep",
    "AgentEvent",
    "AgentSpec",
    "AnswerRestarted",
    "AnthropicAdapter",
    "AnthropicMessages",
    "Append",
    "AppendTurn",
    "BackgroundCompaction",
    "Breach",
    "BrokenConversation",
    "Budget",
    "BudgetExceeded",
    "BudgetTracker",
    "CacheLedger",
    "CachePrices",
    "CalibratedCounter",
    "CannotFit",
    "ChatMessage",
    "Compaction",
    "CompactionFailed",
    "CompactionManager",
    "CompactionOutcome",
    "CompactionResult",
    "Compactor",
    "ComposedManager",
    "ConfigHolder",
    "ContextOverflow",
    "ContextPressure",
    "Conversation",
    "ConversationBusy",
    "ConversationCompacted",
    "ConversationEntry",
    "ConversationErased",
    "ConversationHistory",
    "ConversationNotFound",
    "ConversationRecorded",
    "ConversationRunner",
    "ConversationStatus",
    "ConversationStore",
    "Curated",
    "CurationContext",
    "Deadline",
    "DeadlineExceeded",
    "Diagnostic",
    "Document",
    "DocumentExists",
    "DocumentNotFound",
    "DslWorkflow",
    "DuplicateName",
    "EncryptedStore",
    "EstimatedCounter",
    "EventBus",
    "EventFailed",
    "ExactCounter",
    "ExpandStep",
    "Explanation",
    "ExtractiveSummarizer",
    "Fact",
    "Finding",
    "FindingKind",
    "Finished",
    "FlowFailed",
    "FlowSpec",
    "Fold",
    "FoldConflict",
    "FoldNotFound",
    "Guarded",
    "HandlerFailure",
    "HistoryCompacted",
    "HistoryConfig",
    "HistoryCurated",
    "HistoryManager",
    "HistoryStatus",
    "HistoryStrategy",
    "Hit",
    "HybridStrategy",
    "IdempotencyConflict",
    "Imported",
    "InProcessEventBus",
    "InitializeTaskHistory",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidSetting",
    "Lease",
    "LeaseLost",
    "Line",
    "Loaded",
    "LoadedConfig",
    "LogIsAppendOnly",
    "MarkdownSection",
    "MemoryStore",
    "Message",
    "MessageRole",
    "MinutebookError",
    "MissingExtra",
    "MissingParams",
    "MissingWeights",
    "ModelAnswered",
    "ModelDidNotStart",
    "ModelInfo",
    "ModelReply",
    "ModelRequest",
    "ModelSpec",
    "ModelSummarizer",
    "Mutation",
    "NewDocument",
    "NoReducer",
    "NotStorable",
    "Note",
    "NoteSummary",
    "ObservableManager",
    "ObservableSlidingWindowManager",
    "OpenAIAdapter",
    "OpenTelemetry",
    "Origin",
    "OutputParseError",
    "OutputSchema",
    "Page",
    "PassthroughManager",
    "PinStep",
    "Plan",
    "PlanStep",
    "PlanningToolsSection",
    "PostgresStore",
    "Prices",
    "Program",
    "ProgramInvalid",
    "Promise",
    "PromiseBroken",
    "Prompt",
    "PromptEvaluationError",
    "PromptResponse",
    "PromptSpec",
    "PromptTemplate",
    "Provider",
    "ProviderAdapter",
    "ProviderFailed",
    "PruningDecision",
    "PublishResult",
    "Query",
    "Receipt",
    "RecordIsReadOnly",
    "RedisStore",
    "ReducerContext",
    "ReducerFailed",
    "RenderContext",
    "RenderedPrompt",
    "RenderedSection",
    "Repair",
    "RepairAction",
    "Repaired",
    "RequestRefused",
    "RetainedContext",
    "RetentionConfig",
    "RetentionPolicy",
    "RetriesExhausted",
    "RunEvent",
    "ScaledCounter",
    "SchemaSpec",
    "Section",
    "SectionPath",
    "SectionVisibility",
    "ServiceConfig",
    "Session",
    "SessionProtocol",
    "SetActiveStep",
    "SetupPlan",
    "Severity",
    "Situation",
    "SliceKind",
    "SlidingWindowManager",
    "Snapshot",
    "SqliteStore",
    "Status",
    "StepBudget",
    "StepFold",
    "StepHistory",
    "StepHistoryManager",
    "StepStatus",
    "StepVisibility",
    "StepVisibilityResolver",
    "StoreDamaged",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoredFold",
    "SummarizeStep",
    "SummarizeStrategy",
    "Summarizer",
    "SummaryRejected",
    "SummaryRequest",
    "SummaryRole",
    "TaskHistory",
    "TaskHistorySection",
    "TaskJournal",
    "TextDelta",
    "ThinkingDelta",
    "Throttle",
    "TokenBudgetManager",
    "TokenCounter",
    "TooManyCalls",
    "Tool",
    "ToolAnswered",
    "ToolCall",
    "ToolCalled",
    "ToolContext",
    "ToolExample",
    "ToolResult",
    "ToolResultClearer",
    "ToolResultTruncator",
    "ToolServerFailed",
    "ToolSpec",
    "ToolStripper",
    "ToolValidationError",
    "Transcript",
    "TruncateStrategy",
    "Turn",
    "TurnCompactor",
    "TurnStrategy",
    "TurnWindowManager",
    "TypeRegistry",
    "UnknownModel",
    "UnknownPlaceholder",
    "UnknownRole",
    "UnknownStrategy",
    "UnknownType",
    "UnknownVocabulary",
    "UnreadableInput",
    "UnsupportedType",
    "UpdateStep",
    "Usage",
    "VersionConflict",
    "View",
    "ViewMade",
    "VisibilityExpansionRequired",
    "WorkflowFinished",
    "WorkflowSpec",
    "WrongKey",
    "WrongWeights",
    "append",
    "auto_summarize_step",
    "builtin_tools",
    "check",
    "check_agents",
    "compile_agents",
    "counter_for",
    "create_app",
    "encrypted",
    "entry_from_json",
    "entry_to_json",
    "entry_to_provider_message",
    "exchanges",
    "explain",
    "extractive_summary",
    "facts",
    "format_agents",
    "from_anthropic",
    "get_evaluation_history",
    "guard",
    "install_history",
    "install_plan",
    "is_summary",
    "is_valid",
    "items_to_messages",
    "known_models",
    "ledger",
    "load_config",
    "message_to_items",
    "model_info",
    "open_store",
    "parse_agents",
    "provider_adapters",
    "provider_message_to_entry",
    "register_strategy",
    "repair",
    "replace_latest",
    "run_worker",
    "safe_boundaries",
    "select_all",
    "select_latest",
    "select_where",
    "service_from",
    "strategy_named",
    "strategy_names",
    "summary_message",
    "summary_text",
    "sync_plan_to_history",
    "to_anthropic",
    "tool",
    "tool_from",
    "turn_count",
    "turns",
    "unregister_strategy",
    "upsert_by",
    "view_of",
]
