from minutebook.history.budget import (
    TokenBudgetManager as TokenBudgetManager,
)
from minutebook.history.cache_cost import (
    CacheLedger as CacheLedger,
)
from minutebook.history.compose import (
    ComposedManager as ComposedManager,
    ObservableManager as ObservableManager,
    ObservableSlidingWindowManager as ObservableSlidingWindowManager,
    PassthroughManager as PassthroughManager,
)
from minutebook.history.curation import (
    Changed as Changed,
    Curated as Curated,
    NoteStatus as NoteStatus,
    ViewNote as ViewNote,
)
from minutebook.history.explanation import (
    Explanation as Explanation,
    ExplanationLine as ExplanationLine,
    explain as explain,
)
from minutebook.history.guarantees import (
    Guarded as Guarded,
    guard as guard,
)
from minutebook.history.protocol import (
    CurationContext as CurationContext,
    EventBus as EventBus,
    Guarantee as Guarantee,
    HistoryCurated as HistoryCurated,
    HistoryManager as HistoryManager,
    SessionProtocol as SessionProtocol,
    Violation as Violation,
)
from minutebook.history.scores import (
    BM25Scorer as BM25Scorer,
    EmbeddingScorer as EmbeddingScorer,
    ScoreContext as ScoreContext,
    Scorer as Scorer,
)
from minutebook.history.tool_calls import (
    ActiveToolsManager as ActiveToolsManager,
    ToolStripper as ToolStripper,
)
from minutebook.history.tool_results import (
    ToolResultClearer as ToolResultClearer,
    ToolResultTruncator as ToolResultTruncator,
)
from minutebook.history.view import (
    View as View,
    view_of as view_of,
)
from minutebook.history.window import (
    SlidingWindowManager as SlidingWindowManager,
    TurnWindowManager as TurnWindowManager,
)

__all__ = [
    "ActiveToolsManager",
    "BM25Scorer",
    "CacheLedger",
    "Changed",
    "ComposedManager",
    "Curated",
    "CurationContext",
    "EmbeddingScorer",
    "EventBus",
    "Explanation",
    "ExplanationLine",
    "Guarantee",
    "Guarded",
    "HistoryCurated",
    "HistoryManager",
    "NoteStatus",
    "ObservableManager",
    "ObservableSlidingWindowManager",
    "PassthroughManager",
    "ScoreContext",
    "Scorer",
    "SessionProtocol",
    "SlidingWindowManager",
    "TokenBudgetManager",
    "ToolResultClearer",
    "ToolResultTruncator",
    "ToolStripper",
    "TurnWindowManager",
    "View",
    "ViewNote",
    "Violation",
    "explain",
    "guard",
    "view_of",
]
