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
from minutebook.history.curated import (
    Curated as Curated,
    Note as Note,
    Status as Status,
)
from minutebook.history.explanation import (
    Explanation as Explanation,
    Line as Line,
    explain as explain,
)
from minutebook.history.guarantees import (
    Breach as Breach,
    Guarded as Guarded,
    Promise as Promise,
    guard as guard,
)
from minutebook.history.protocol import (
    CurationContext as CurationContext,
    EventBus as EventBus,
    HistoryCurated as HistoryCurated,
    HistoryManager as HistoryManager,
    SessionProtocol as SessionProtocol,
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
    "Breach",
    "CacheLedger",
    "ComposedManager",
    "Curated",
    "CurationContext",
    "EventBus",
    "Explanation",
    "Guarded",
    "HistoryCurated",
    "HistoryManager",
    "Line",
    "Note",
    "ObservableManager",
    "ObservableSlidingWindowManager",
    "PassthroughManager",
    "Promise",
    "SessionProtocol",
    "SlidingWindowManager",
    "Status",
    "TokenBudgetManager",
    "ToolResultClearer",
    "ToolResultTruncator",
    "ToolStripper",
    "TurnWindowManager",
    "View",
    "explain",
    "guard",
    "view_of",
]
