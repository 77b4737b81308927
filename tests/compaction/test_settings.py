"""Settings of the strategies: threshold, target and turns to keep."""

import asyncio

import pytest

from minutebook import CompactionManager, ModelInfo, SummarizeStrategy, Transcript, TruncateStrategy, TurnStrategy
from minutebook.compaction import HybridStrategy
from minutebook.errors import InvalidSetting

WINDOW = 4_000
WINDOW_STRATEGIES = [SummarizeStrategy, TruncateStrategy, HybridStrategy]


def chat(turns):
    words = "The quick brown fox jumps over the lazy dog. " * 20
    return Transcript(
        [
            message
            for number in range(turns)
            for message in ({"role": "user", "content": f"{number}: {words}"}, {"role": "assistant", "content": "Yes."})
        ]
    )


def compact(strategy, record):
    manager = CompactionManager(strategy, ModelInfo("m", max_input_tokens=WINDOW))
    result = asyncio.run(manager.check_and_apply(record))
    return bool(result), manager.compaction_input(record)


@pytest.mark.parametrize("strategy_class", WINDOW_STRATEGIES)
def test_a_lower_threshold_compacts_earlier(strategy_class):
    record = chat(12)
    assert 0.5 * WINDOW < record.tokens < 0.8 * WINDOW

    assert not compact(strategy_class(), record)[0]
    assert compact(strategy_class(threshold=0.5, target=0.3), record)[0]


@pytest.mark.parametrize("strategy_class", WINDOW_STRATEGIES[:2])
def test_a_lower_target_leaves_less(strategy_class):
    record = chat(18)

    assert compact(strategy_class(target=0.2), record)[1].tokens < compact(strategy_class(target=0.6), record)[1].tokens


@pytest.mark.parametrize("strategy_class", WINDOW_STRATEGIES[:2])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_the_last_turns_are_kept_whole(strategy_class, turns):
    record = chat(18)

    shown = compact(strategy_class(keep_turns=turns), record)[1].shown

    whole = [message for message in shown if message["role"] == "user"]
    assert whole == [record[0], *(record[start] for start in record.turn_starts[-turns:])]


def test_turns_are_also_summarized_when_the_window_is_full():
    record = chat(9)

    assert not compact(TurnStrategy(), record)[0]
    assert compact(TurnStrategy(threshold=0.3), record)[0]


@pytest.mark.parametrize("strategy_class", WINDOW_STRATEGIES)
@pytest.mark.parametrize("shares", [{"threshold": 1.5}, {"target": 0}, {"threshold": 0.4, "target": 0.4}], ids=str)
def test_shares_out_of_range_are_refused(strategy_class, shares):
    with pytest.raises(InvalidSetting, match="share of the window"):
        strategy_class(**shares)


@pytest.mark.parametrize("strategy_class", WINDOW_STRATEGIES[:2])
def test_keeping_zero_turns_is_refused(strategy_class):
    with pytest.raises(InvalidSetting, match="keep_turns"):
        strategy_class(keep_turns=0)


def test_a_list_instead_of_a_transcript_is_refused():
    with pytest.raises(InvalidSetting, match="Transcript"):
        compact(TurnStrategy(), [{"role": "user", "content": "x"}])
