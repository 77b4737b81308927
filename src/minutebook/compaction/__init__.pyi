from minutebook.compaction.extractive import (
    ExtractiveSummarizer as ExtractiveSummarizer,
)
from minutebook.compaction.fact_ledger import (
    facts as facts,
    ledger as ledger,
)
from minutebook.compaction.hybrid import (
    HybridStrategy as HybridStrategy,
)
from minutebook.compaction.manager import (
    CompactionManager as CompactionManager,
    CompactionResult as CompactionResult,
    HistoryCompacted as HistoryCompacted,
)
from minutebook.compaction.registry import (
    register_strategy as register_strategy,
    strategy_named as strategy_named,
    strategy_names as strategy_names,
    unregister_strategy as unregister_strategy,
)
from minutebook.compaction.strategy import (
    CompactionInput as CompactionInput,
    HistoryStrategy as HistoryStrategy,
)
from minutebook.compaction.summarize import (
    SummarizeStrategy as SummarizeStrategy,
)
from minutebook.compaction.summarizer import (
    Summarizer as Summarizer,
    SummaryRequest as SummaryRequest,
    SummaryRole as SummaryRole,
    is_summary as is_summary,
    summary_message as summary_message,
    summary_text as summary_text,
)
from minutebook.compaction.truncate import (
    TruncateStrategy as TruncateStrategy,
)
from minutebook.compaction.turns import (
    TurnStrategy as TurnStrategy,
)

__all__ = [
    "CompactionInput",
    "CompactionManager",
    "CompactionResult",
    "ExtractiveSummarizer",
    "HistoryCompacted",
    "HistoryStrategy",
    "HybridStrategy",
    "SummarizeStrategy",
    "Summarizer",
    "SummaryRequest",
    "SummaryRole",
    "TruncateStrategy",
    "TurnStrategy",
    "facts",
    "is_summary",
    "ledger",
    "register_strategy",
    "strategy_named",
    "strategy_names",
    "summary_message",
    "summary_text",
    "unregister_strategy",
]
