"""What strategies can be told: when to begin, how far to go, and what to keep."""

import asyncio

import pytest

from minutebook import CompactionManager, ModelInfo, SummarizeStrategy, Transcript, TruncateStrategy, TurnStrategy
from minutebook.compaction import HybridStrategy
from minutebook.errors import InvalidSetting

WINDOW = 4_000
SHARED = [SummarizeStrategy, TruncateStrategy, HybridStrategy]


def chat(turns):
    words = "The quick brown fox jumps over the lazy dog. " * 20
    return Transcript(
        [
            message
            for number in range(turns)
            for message in ({"role": "user", "content": f"{number}: {words}"}, {"role": "assistant", "content": "Yes."})
        ]
    )


def compacted(strategy, record):
    manager = CompactionManager(strategy, ModelInfo("m", max_input_tokens=WINDOW))
    done = asyncio.run(manager.check_and_apply(record))
    return bool(done), manager.situation(record)


@pytest.mark.parametrize("make", SHARED)
def test_a_lower_threshold_compacts_earlier(make):
    record = chat(12)
    assert 0.5 * WINDOW < record.tokens < 0.8 * WINDOW

    assert not compacted(make(), record)[0]
    assert compacted(make(threshold=0.5, target=0.3), record)[0]


@pytest.mark.parametrize("make", SHARED[:2])
def test_a_lower_target_leaves_less(make):
    record = chat(18)

    assert compacted(make(target=0.2), record)[1].tokens < compacted(make(target=0.6), record)[1].tokens


@pytest.mark.parametrize("make", SHARED[:2])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_so_many_turns_stay_whole(make, turns):
    record = chat(18)

    shown = compacted(make(keep_turns=turns), record)[1].shown

    whole = [message for message in shown if message["role"] == "user"]
    assert whole == [record[0], *(record[start] for start in record.turn_starts[-turns:])]


def test_turns_are_also_summed_up_when_the_window_is_full():
    record = chat(9)

    assert not compacted(TurnStrategy(), record)[0]
    assert compacted(TurnStrategy(threshold=0.3), record)[0]


@pytest.mark.parametrize("make", SHARED)
@pytest.mark.parametrize("shares", [{"threshold": 1.5}, {"target": 0}, {"threshold": 0.4, "target": 0.4}], ids=str)
def test_shares_that_cannot_be_meant_are_refused(make, shares):
    with pytest.raises(InvalidSetting, match="share of the window"):
        make(**shares)


@pytest.mark.parametrize("make", SHARED[:2])
def test_no_turns_to_keep_is_refused(make):
    with pytest.raises(InvalidSetting, match="keep_turns"):
        make(keep_turns=0)
