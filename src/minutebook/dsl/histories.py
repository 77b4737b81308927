"""From `history x` and `policy compaction` to a strategy with these settings."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from minutebook.compaction.chunk import summarized
from minutebook.compaction.hybrid import HybridStrategy
from minutebook.compaction.plain import paragraphs
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.situation import Situation
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarize import SummarizeStrategy
from minutebook.compaction.summarizer import Summarizer, SummaryRequest
from minutebook.compaction.turns import TurnStrategy
from minutebook.dsl.spec import CompactionSpec, HistorySpec
from minutebook.prompt.markdown import shown
from minutebook.record.fold import Fold

FIELDS: Final[Mapping[str, str]] = {
    "trigger": "threshold",
    "target": "target",
    "keep_turns": "keep_turns",
    "keep_files": "recent_files",
}
"""What the language calls a setting → what strategies call it."""


@dataclass(frozen=True, slots=True)
class FlowStrategy:
    """Sums up as `SummarizeStrategy` does, under the name of the flow that writes the summary."""

    name: str
    summarize: SummarizeStrategy

    def should_trigger(self, situation: Situation) -> bool:
        return self.summarize.should_trigger(situation)

    def apply(self, situation: Situation, summarizer: Summarizer) -> AsyncIterator[Fold]:
        return self.summarize.apply(situation, summarizer)


class FlowSummarizer:
    """Has a flow write the summary: it is given what was said as text, in pieces that a model can read."""

    def __init__(self, run: Callable[[str], Awaitable[Any]], max_piece_tokens: int) -> None:
        self._run, self._max_piece_tokens = run, max_piece_tokens

    async def summarize(self, request: SummaryRequest) -> str:
        async def write(piece: str, before: str | None) -> str:
            told = f"Summary of what came before: {before}\n\n{piece}" if before else piece
            return shown(await self._run(told))

        parts = paragraphs(request.messages, tool_details=True) or ["(Nothing was said in words.)"]
        return await summarized(parts, request, write, max_piece_tokens=self._max_piece_tokens)


def strategy_for(history: HistorySpec, policy: CompactionSpec) -> tuple[HistoryStrategy, set[str]]:
    """The strategy of a history with the policy's settings, and which of them it has taken.

    Raises:
        UnknownStrategy: nobody registered it.
        InvalidSetting: it cannot be set so.
    """
    given = {name: getattr(policy, name) for name in FIELDS if getattr(policy, name) is not None}
    if history.flow is not None:
        inner, taken = _with(SummarizeStrategy(), given)
        return FlowStrategy(history.flow, inner), taken
    strategy = strategy_named(history.strategy or "")
    if isinstance(strategy, HybridStrategy):
        nested, inside = _with(strategy.summarize, given)
        made, outside = _with(replace(strategy, summarize=nested), given)
        return made, inside | outside
    if isinstance(strategy, TurnStrategy) and policy.keep_turns is not None:
        strategy = replace(strategy, max_turns=max(strategy.max_turns, policy.keep_turns))
    return _with(strategy, given)


def _with(strategy: Any, given: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """A strategy with those of the settings that it has, and which these are."""
    own = {each.name for each in fields(strategy)} if is_dataclass(strategy) else set()
    taken = {name for name in given if FIELDS[name] in own}
    return (replace(strategy, **{FIELDS[name]: given[name] for name in taken}) if taken else strategy), taken
