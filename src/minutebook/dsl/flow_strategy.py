"""The compaction strategy for `history NAME` and `policy compaction`, including flows that write summaries."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from minutebook.compaction.registry import SETTING_FIELDS, strategy_with_settings, with_settings
from minutebook.compaction.strategy import CompactionInput, HistoryStrategy
from minutebook.compaction.summarize import SummarizeStrategy
from minutebook.compaction.summarizer import Summarizer, SummaryRequest, paragraphs, summarize_in_chunks
from minutebook.dsl.spec import CompactionSpec, HistorySpec
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.protocol import HistoryManager
from minutebook.prompt.markdown import text_in_prompt
from minutebook.record.fold import Fold

if TYPE_CHECKING:
    from minutebook.history.budget.manager import Preset


@dataclass(frozen=True, slots=True)
class FlowStrategy:
    """A `SummarizeStrategy` with the name of the flow that writes the summaries."""

    name: str
    inner: SummarizeStrategy

    def should_trigger(self, history: CompactionInput) -> bool:
        return self.inner.should_trigger(history)

    def apply(self, history: CompactionInput, summarizer: Summarizer) -> AsyncIterator[Fold]:
        return self.inner.apply(history, summarizer)


class FlowSummarizer:
    """Runs a flow to write the summary. The flow gets the messages as text, in chunks that fit a model's window."""

    def __init__(self, run: Callable[[str], Awaitable[Any]], max_chunk_tokens: int) -> None:
        self._run, self._max_chunk_tokens = run, max_chunk_tokens

    async def summarize(self, request: SummaryRequest) -> str:
        async def write(chunk: str, previous_summary: str | None) -> str:
            text = f"Summary of what came before: {previous_summary}\n\n{chunk}" if previous_summary else chunk
            return text_in_prompt(await self._run(text))

        parts = paragraphs(request.messages, tool_details=True) or ["(There is no text.)"]
        return await summarize_in_chunks(parts, request, write, max_chunk_tokens=self._max_chunk_tokens)


PRESET_SETTINGS: Final = frozenset({"trigger", "target"})
"""The settings of `policy compaction` that a preset of the token budget uses."""


def budget_manager_of(history: HistorySpec, policy: CompactionSpec, max_tokens: int, reserve: int) -> HistoryManager:
    """The token budget of a history that is a preset, with the policy's settings."""
    settings: dict[str, Any] = {name: getattr(policy, name) for name in PRESET_SETTINGS}
    given = {name: value for name, value in settings.items() if value is not None}
    preset = cast("Preset", history.strategy)
    return TokenBudgetManager(max_tokens, preset, reserve=min(reserve, max_tokens - 1), **given)


def strategy_of(history: HistorySpec, policy: CompactionSpec) -> tuple[HistoryStrategy, set[str]]:
    """The strategy of a history with the policy's settings, and the names of the settings that it uses.

    Raises:
        UnknownName: the strategy is not registered.
        InvalidSetting: the strategy rejects a setting.
    """
    settings = {name: getattr(policy, name) for name in SETTING_FIELDS if getattr(policy, name) is not None}
    if history.flow is not None:
        strategy, used_settings = with_settings(SummarizeStrategy(), settings)
        return FlowStrategy(history.flow, strategy), used_settings
    return strategy_with_settings(history.strategy or "", settings)
