"""Folds of a strategy and cuts of a history manager are one account."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import (
    CannotFit,
    CompactionManager,
    Fold,
    HistoryStrategy,
    ModelInfo,
    SlidingWindowManager,
    TokenBudgetManager,
    ToolResultClearer,
    Transcript,
    TurnStrategy,
    TurnWindowManager,
    view_of,
)
from minutebook.compaction import strategy_named
from minutebook.history import NoteStatus, ToolStripper
from minutebook.record import is_valid
from tests.strategies import conversations

STRATEGIES = {
    **{name: strategy_named(name) for name in ("summarize", "truncate", "hybrid")},
    "turns": TurnStrategy(max_turns=3, keep_turns=1),
}
MANAGERS = {
    "half of the window": TokenBudgetManager(500),
    "the whole window": TokenBudgetManager(1_000),
    "messages": SlidingWindowManager(8, slack=4),
    "turns": TurnWindowManager(2, slack=2),
    "results": ToolResultClearer(keep=1, slack=1),
    "tools": ToolStripper(preserve_turns=1, slack=1),
}


@pytest.mark.fuzz
@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(chat=conversations(user_first=True, max_steps=24), manager=st.sampled_from(sorted(MANAGERS)))
def test_a_fold_neither_brings_back_a_message_that_was_cut_nor_makes_the_view_larger(name, chat, manager):
    asyncio.run(check_folds_and_cuts(STRATEGIES[name], chat, MANAGERS[manager]))


async def check_folds_and_cuts(strategy, chat, manager):
    record = Transcript(broken="mark")
    compactor = CompactionManager(strategy, ModelInfo("m", max_input_tokens=1_000), manager=manager)
    for message in chat:
        record.append(message)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        try:
            before = view_of(record, manager, folds=compactor.folds)
            result = await compactor.check_and_apply(record)
            after = view_of(record, manager, folds=compactor.folds)
        except CannotFit:
            return
        if result:
            assert is_valid(after.curated)
            # The marker of a truncation names the number of messages that it replaces, so it may be a few tokens longer.
            assert after.tokens <= before.tokens + 16
            assert set(after.curated.origins) <= {*before.curated.origins, None}


def test_a_cut_keeps_the_summaries_of_folds_that_were_read_from_a_store_again():
    record = Transcript(
        [{"role": role, "content": f"{role} {'x ' * 40}"} for _ in range(12) for role in ("user", "assistant")]
    )
    summary = {"role": "user", "content": "Summary.", "kind": "summary"}
    fold = Fold.over(range(12), shown=summary, reason="12 messages summarized", id="f")
    view_of(record, folds=[fold])
    same_fold = replace(fold, shown=(dict(summary),))
    model = ModelInfo("m", max_input_tokens=4_000)
    compactor = CompactionManager(NoFolds(), model, folds=[same_fold], manager=LastEight())

    assert asyncio.run(compactor.check_and_apply(record))

    assert view_of(record, folds=compactor.folds).messages[0]["content"] == "Summary."


class NoFolds(HistoryStrategy):
    """Is always due, so that the history manager's cuts become folds."""

    def should_trigger(self, history):
        return True

    async def apply(self, history, summarizer):
        return []


class LastEight:
    """Keeps the first message, which is the summary, and the last eight."""

    def curate(self, messages, *, session):
        return [messages[0], *messages[-8:]]


def test_a_message_is_not_explained_by_a_fold_whose_summary_was_dropped():
    record = Transcript(
        [{"role": role, "content": f"{role} {at}"} for at in range(12) for role in ("user", "assistant")]
    )
    fold = Fold.over(range(12), shown={"role": "user", "content": "Summary."}, reason="12 messages summarized", id="f")

    kept = view_of(record, folds=[fold]).explain()
    dropped = view_of(record, TurnWindowManager(2), folds=[fold]).explain()

    assert [line.status for line in kept.lines].count(NoteStatus.FOLDED) == 12
    assert [line.reason for line in kept.lines if line.status is NoteStatus.ADDED] == ["shown by fold f"]
    assert NoteStatus.FOLDED not in dropped.counts()
    assert dropped.lines[0].reason == "fold f: 12 messages summarized, but the view has no message of the fold"
