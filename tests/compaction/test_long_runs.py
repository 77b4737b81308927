"""Conversations with hundreds to ten thousand model calls are compacted again only after they have grown."""

import asyncio
import random
from itertools import pairwise
from operator import is_

import pytest

from minutebook import (
    CompactionManager,
    ModelInfo,
    SummarizeStrategy,
    Transcript,
    TruncateStrategy,
    TurnStrategy,
    view_of,
)
from minutebook.compaction import HybridStrategy
from minutebook.record import is_valid

WINDOW = 8_000
CALLS_PER_TURN = 20
STRATEGIES = {
    "summarize": (SummarizeStrategy(), 0.2),
    "hybrid": (HybridStrategy(), 0.2),
    "truncate": (TruncateStrategy(), 0.05),
    "turns": (TurnStrategy(max_turns=4, keep_turns=2), 0.0),
}
"""Each with the minimum share of the window that is added between two compactions."""


def errands(calls):
    """A conversation with this number of model calls: requests, each with a turn of files to read."""
    draw = random.Random(calls)
    for number in range(calls):
        if number % CALLS_PER_TURN == 0:
            yield {"role": "user", "content": f"Go through folder {number // CALLS_PER_TURN}, please."}
            continue
        function = {
            "name": "read",
            "arguments": f'{{"path": "src/{number // CALLS_PER_TURN}/f{draw.randrange(40)}.py"}}',
        }
        call = {"id": f"c{number}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call["id"], "content": f"line {number} " * draw.choice((2, 20, 40, 90))}
        if number % CALLS_PER_TURN == CALLS_PER_TURN - 1:
            yield {"role": "assistant", "content": f"Folder {number // CALLS_PER_TURN} is in order."}


class PlayedConversation:
    """Plays a conversation and checks the view of every model call."""

    def __init__(self, strategy):
        self.record = Transcript()
        self.window = 8 * WINDOW if isinstance(strategy, TurnStrategy) else WINDOW  # large enough for its turns
        self.compactor = CompactionManager(strategy, ModelInfo("m", max_input_tokens=self.window))
        self.calls = 0
        self.compacted_at = []
        """Tokens and turns of the record at every compaction."""
        self.view = []
        self.largest = 0

    async def play(self, calls):
        for message in errands(calls):
            self.record.append(message)
            if message["role"] != "assistant":
                await self.call()

    async def call(self):
        self.calls += 1
        result = await self.compactor.check_and_apply(self.record)
        before, self.view = self.view, view_of(self.record, folds=result.folds).curated
        if result:
            self.compacted_at.append((self.record.tokens, len(self.record.turn_starts)))
            assert is_valid(before)
            assert is_valid(self.view)
            assert not await self.compactor.check_and_apply(self.record)
        else:  # the previous view with the new messages of the record
            assert all(map(is_, before, self.view))
            assert all(map(is_, reversed(self.view[len(before) :]), reversed(self.record)))
        self.largest = max(self.largest, self.compactor.compaction_input(self.record).tokens)


@pytest.mark.parametrize("calls", [600, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_long_run_is_compacted_once_for_each_growth(name, calls):
    strategy, growth = STRATEGIES[name]
    played = PlayedConversation(strategy)

    asyncio.run(played.play(calls))

    growths = [(later[0] - tokens, later[1] - turns) for (tokens, turns), later in pairwise(played.compacted_at)]
    assert played.calls == calls
    assert len(growths) > calls / 100
    assert is_valid(played.view)
    if name == "turns":
        assert min(turns for _, turns in growths) > strategy.max_turns - strategy.keep_turns
    else:
        assert min(tokens for tokens, _ in growths) >= growth * WINDOW
    assert played.largest <= played.window
