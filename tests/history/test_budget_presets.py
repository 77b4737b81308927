"""The presets of the token budget: what views cost, when they are cut, and what is clipped."""

from collections.abc import Sequence

import pytest

from minutebook import TokenBudgetManager, Transcript
from minutebook.conversation.policy import manager_from_texts
from minutebook.errors import InvalidSetting
from minutebook.record.message import Message
from minutebook.testing import coding_session

BUDGET = 6_000
PRESET_NAMES = ("balanced", "economy", "quality")


def views_at_calls(manager: TokenBudgetManager | None, session: Sequence[Message]) -> list[list[Message]]:
    """What is sent at each call of the model; without a manager all messages."""
    record, views = Transcript(), []
    for message in session:
        if message["role"] == "assistant":
            views.append(list(record) if manager is None else list(manager.curate(record)))
        record.append(message)
    return views


def cost_of(views: Sequence[Sequence[Message]]) -> float:
    """The cost of the calls with a prompt cache: 0.1 per token that is read from it, 1.25 per other token."""
    counter = Transcript().counter
    cost, previous = 0.0, []
    for view in views:
        tokens = [counter.message(message) for message in view]
        pairs = zip(previous, view, strict=False)
        cached = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(previous), len(view)))
        cost += 0.1 * sum(tokens[:cached]) + 1.25 * sum(tokens[cached:])
        previous = view
    return cost


@pytest.mark.parametrize("preset", ["balanced", "economy"])
@pytest.mark.parametrize("seed", range(4))
def test_a_session_that_ends_at_any_call_costs_no_more_than_its_full_history(seed: int, preset: str) -> None:
    session = coding_session(seed=seed, turns=12)
    views = views_at_calls(TokenBudgetManager(BUDGET, preset=preset), session)
    full = views_at_calls(None, session)
    ends = [at for at in range(1, len(views)) if views[at][: len(views[at - 1])] != views[at - 1]]

    assert len(ends) >= 2
    for end in [*(end + 1 for end in ends), len(views)]:
        assert cost_of(views[:end]) <= cost_of(full[:end])


def test_economy_costs_less_than_balanced_and_quality_keeps_more() -> None:
    session = coding_session(seed=1, turns=12)
    views = {name: views_at_calls(TokenBudgetManager(BUDGET, preset=name), session) for name in PRESET_NAMES}

    assert cost_of(views["economy"]) < cost_of(views["balanced"]) < cost_of(views["quality"])
    assert sum(map(len, views["economy"])) < sum(map(len, views["quality"]))


def test_a_preset_can_be_named_in_a_text_and_its_settings_replaced() -> None:
    assert manager_from_texts(["token_budget:preset=economy"], 900) == TokenBudgetManager(900, preset="economy")
    assert TokenBudgetManager(900, preset="economy", target=0.4).settings.target == 0.4
    assert TokenBudgetManager(900, preset="economy", names=0).settings.names == 0


def test_an_unknown_preset_and_a_trigger_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="one of balanced, economy, quality"):
        TokenBudgetManager(900, preset="cheap")
    with pytest.raises(InvalidSetting, match="a share above 0, at most 1"):
        TokenBudgetManager(900, trigger=1.5)


def test_the_trigger_cuts_a_record_that_would_fit() -> None:
    record = Transcript(coding_session(seed=1, turns=12))
    limit = record.tokens + 1

    assert list(TokenBudgetManager(limit).curate(record)) == list(record)
    assert TokenBudgetManager(limit, trigger=0.5).curate(record).tokens <= limit // 2


def command(number: int, output: str) -> list[Message]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def cut_session() -> list[Message]:
    """A session that has been cut once."""
    messages: list[Message] = [{"role": "user", "content": "Build it."}]
    for number in range(8):
        messages += command(number, f"line of src/file_{number}.py\n" * 100)
    return messages


LONG_OUTPUT = "first line\n" + "compiled src/middle_part.py\n" * 300 + "last line"


def test_long_output_is_clipped_after_the_first_cut_and_stays_the_same() -> None:
    record = Transcript([*cut_session(), *command(100, LONG_OUTPUT)])
    manager = TokenBudgetManager(BUDGET, target=0.3)
    clipped = manager.curate(record)[-1]
    record.append({"role": "assistant", "content": "It failed."})
    record.append({"role": "user", "content": "Why?"})

    assert clipped["content"].startswith("first line")
    assert clipped["content"].endswith("last line")
    assert "names in it: src/middle_part.py" in clipped["content"]
    assert record.counter.message(clipped) < 1_200
    assert manager.curate(record)[-3] == clipped
    assert TokenBudgetManager(BUDGET, target=0.3, preset="quality").curate(record)[-3]["content"] == LONG_OUTPUT


def test_before_the_first_cut_and_when_pinned_nothing_is_clipped() -> None:
    record = Transcript([{"role": "user", "content": "Build it."}, *command(100, LONG_OUTPUT)])
    assert TokenBudgetManager(BUDGET).curate(record)[-1]["content"] == LONG_OUTPUT

    record = Transcript([*cut_session(), *command(100, LONG_OUTPUT)])
    record.pin(len(record) - 1)
    assert TokenBudgetManager(BUDGET, target=0.3).curate(record)[-1]["content"] == LONG_OUTPUT


def test_views_of_a_growing_record_equal_views_of_the_whole_record() -> None:
    session = [*cut_session(), *command(100, LONG_OUTPUT), *command(101, "done")]
    for preset in PRESET_NAMES:
        manager, record = TokenBudgetManager(BUDGET, preset=preset), Transcript()
        for message in session:
            record.append(message)
            view = manager.curate(record)
        assert list(view) == list(manager.curate(Transcript(session)))
