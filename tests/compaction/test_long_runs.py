"""Hundreds of calls of a model in one conversation, and ten thousand: compacted when it has grown, and never again before it has."""

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
CALLS_A_TURN = 20
STRATEGIES = {
    "summarize": (SummarizeStrategy(), 0.2),
    "hybrid": (HybridStrategy(), 0.2),
    "truncate": (TruncateStrategy(), 0.05),
    "turns": (TurnStrategy(max_turns=4, keep_turns=2), 0.0),
}
"""Each with the share of the window that must have come in between two compactions, at least."""


def errands(calls):
    """A conversation in which a model is called so many times: requests, each with a turn of files to read."""
    draw = random.Random(calls)
    for number in range(calls):
        if number % CALLS_A_TURN == 0:
            yield {"role": "user", "content": f"Go through folder {number // CALLS_A_TURN}, please."}
            continue
        function = {"name": "read", "arguments": f'{{"path": "src/{number // CALLS_A_TURN}/f{draw.randrange(40)}.py"}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call["id"], "content": f"line {number} " * draw.choice((2, 20, 40, 90))}
        if number % CALLS_A_TURN == CALLS_A_TURN - 1:
            yield {"role": "assistant", "content": f"Folder {number // CALLS_A_TURN} is in order."}


class Run:
    """A conversation as it is played, with what must hold at each of its calls."""

    def __init__(self, strategy):
        self.record = Transcript()
        self.compactor = CompactionManager(strategy, ModelInfo("m", max_input_tokens=WINDOW))
        self.calls = 0
        self.compacted_at = []
        """The tokens of the record, and its turns, at every compaction."""
        self.view = []
        self.largest = 0

    async def play(self, calls):
        for message in errands(calls):
            self.record.append(message)
            if message["role"] != "assistant":
                await self.call()

    async def call(self):
        self.calls += 1
        done = await self.compactor.check_and_apply(self.record)
        before, self.view = self.view, view_of(self.record, folds=done.folds).messages
        if done:
            self.compacted_at.append((self.record.tokens, len(self.record.turn_starts)))
            assert is_valid(before)
            assert is_valid(self.view)
            assert not await self.compactor.check_and_apply(self.record)
        else:  # a view that was valid, and what the record has got since
            assert all(map(is_, before, self.view))
            assert all(map(is_, reversed(self.view[len(before) :]), reversed(self.record)))
        self.largest = max(self.largest, self.compactor.situation(self.record).tokens)


@pytest.mark.parametrize("calls", [600, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_long_run_is_compacted_once_for_each_growth(name, calls):
    strategy, growth = STRATEGIES[name]
    run = Run(strategy)

    asyncio.run(run.play(calls))

    grown = [(later[0] - tokens, later[1] - turns) for (tokens, turns), later in pairwise(run.compacted_at)]
    assert run.calls == calls
    assert len(grown) > calls / 100
    assert is_valid(run.view)
    if name == "turns":
        assert min(turns for _, turns in grown) > strategy.max_turns - strategy.keep_turns
    else:
        assert min(tokens for tokens, _ in grown) >= growth * WINDOW
        assert run.largest <= WINDOW
