"""Summaries in small windows: their size follows the limit of the view, and a view rather leaves one out than raise."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import CurationContext, Fold, TokenBudgetManager, Transcript, TurnStrategy, view_of
from minutebook.compaction import CompactionManager, HybridStrategy, SummarizeStrategy, TruncateStrategy
from minutebook.compaction.summarizer import is_summary, summary_message
from minutebook.conversation.history import ConversationHistory
from minutebook.errors import CannotFit
from minutebook.store.memory import MemoryStore
from minutebook.tokens.models import ModelInfo
from tests.every import MANAGERS

SYSTEM = {"role": "system", "content": "You keep a food diary."}
roles = st.sampled_from(["system", "user"])


class Verbose:
    """A summarizer that uses all the tokens it may."""

    async def summarize(self, request):
        text = "We agreed on soup"
        while request.counter.count(f"{text}, and soup {len(text)}") <= request.max_tokens:
            text += f", and soup {len(text)}"
        return text


def turn(number, words):
    question = {"role": "user", "content": f"Question {number} about src/app/part{number}.py? " + "why " * words}
    return [question, {"role": "assistant", "content": f"Answer {number}. " + "because " * words}]


def dialogue(turns, words=20):
    return [message for number in range(turns) for message in turn(number, words)]


@pytest.mark.fuzz
@given(st.integers(300, 1_500), st.sampled_from([None, Verbose()]), st.integers(1, 60), st.data())
def test_a_history_with_a_small_limit_never_exceeds_it_and_never_refuses(limit, summarizer, words, data):
    manager = data.draw(st.sampled_from([(), TokenBudgetManager(limit), "sliding_window:20"]))

    async def talk():
        async with MemoryStore() as store:
            strategy = TurnStrategy(max_turns=4, keep_turns=2, summary_role=data.draw(roles))
            history = ConversationHistory(
                store, "maria", strategy=strategy, max_tokens=limit, summarizer=summarizer, manager=manager
            )
            await history.add_message(SYSTEM)
            for number in range(16):
                await history.add_turn(turn(number, words))
                if await history.needs_compaction():
                    assert await history.compact()
                await history.add_message({"role": "user", "content": f"And {number}?"})
                view = await history.view()
                assert view.tokens <= limit
                assert view.violations == ()
                assert view.curated[0] == SYSTEM
                messages = await history.get_history()
                assert Transcript.of(messages).tokens <= limit
                summaries = [message for message in view.curated if is_summary(message)]
                assert Transcript(summaries).tokens <= limit * 0.5

    asyncio.run(talk())


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize(
    "manager", [TokenBudgetManager(300), None, TokenBudgetManager(300, preserve_first_request=False)]
)
def test_a_summary_that_is_too_long_is_left_out_and_the_view_keeps_the_newest_request(role, manager):
    messages = [SYSTEM, *dialogue(4), {"role": "user", "content": "And now?"}]
    fold = Fold.over(range(1, 5), shown=summary_message("soup " * 400, role), reason="summarized")

    view = view_of(messages, manager, folds=[fold], max_tokens=300)

    assert view.tokens <= 300
    assert view.messages[0] == SYSTEM
    assert view.messages[-1]["content"] == "And now?"
    assert not any(map(is_summary, view.curated))


def test_a_view_that_cannot_fit_names_what_is_irreducible_and_no_summary():
    system = {"role": "system", "content": "rule " * 400}
    fold = Fold.over(range(1, 5), shown=summary_message("soup " * 400), reason="summarized")
    messages = [system, *dialogue(4), {"role": "user", "content": "And now?"}]

    with pytest.raises(CannotFit) as raised:
        view_of(messages, 300, folds=[fold])

    counter = Transcript().counter
    assert raised.value.irreducible == (
        ("a system message", 0, counter.message(system)),
        ("the newest request", 9, counter.message(messages[-1])),
    )
    assert raised.value.needed == counter.message(system) + counter.message(messages[-1])


def test_a_view_that_cannot_fit_names_pinned_messages_that_a_fold_shows():
    messages = [SYSTEM, *dialogue(4), {"role": "user", "content": "And now?"}]
    pinned = {"role": "user", "content": "rule " * 400}
    record = Transcript([SYSTEM, pinned, *messages[1:]])
    record.pin(1)
    fold = Fold.over(range(1, 4), shown=pinned, reason="summarized")

    with pytest.raises(CannotFit, match=r"a pinned exchange \(in a fold, \d+ tokens\)") as raised:
        view_of(record, 300, folds=[fold])

    assert raised.value.needed == sum(tokens for _, _, tokens in raised.value.irreducible)


def test_a_view_that_cannot_fit_because_of_a_repair_names_the_given_limit():
    messages = [
        {"role": "user", "content": "one " * 300},
        {"role": "assistant", "content": "two " * 50},
        {"role": "user", "content": "three"},
    ]
    counter = Transcript().counter
    limit = sum(map(counter.message, messages[1:]))  # Anthropic requires a user message before the pinned one

    with pytest.raises(CannotFit) as raised:
        view_of(messages, max_tokens=limit, context=CurationContext(pins=frozenset({1})), provider="anthropic")

    assert raised.value.max_tokens == limit
    assert raised.value.needed > limit


def test_a_user_message_with_a_summary_is_never_the_newest_request():
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    exchange = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "text " * 100},
    ]
    messages = [SYSTEM, {"role": "user", "content": "Read all. " * 20}, *exchange * 4]
    fold = Fold.over(range(2, 6), shown=summary_message("soup " * 200, "user"), reason="summarized")

    for manager in MANAGERS.values():
        assert messages[1] in view_of(messages, manager, folds=[fold], max_tokens=200).curated
    assert view_of(messages, 200, folds=[fold]).violations == ()


def test_a_manager_may_leave_out_a_summary_without_a_violation():
    class WithoutSystem:
        def curate(self, messages, *, session):
            return [message for message in messages if not is_summary(message)]

    fold = Fold.over(range(1, 5), shown=summary_message("soup"), reason="summarized")

    view = view_of([SYSTEM, *dialogue(3)], WithoutSystem(), folds=[fold], strict=True)

    assert len(view.messages) == 3


def test_the_system_message_that_is_added_after_clearing_stays():
    cleared = Fold.over(range(5), reason="rewind")
    system = {"role": "system", "content": "You are brief."}
    messages = [SYSTEM, *dialogue(2), system, *dialogue(5), {"role": "user", "content": "And now?"}]

    view = view_of(messages, 200, folds=[cleared])

    assert view.messages[0] == system
    assert view.tokens <= 200


@pytest.mark.parametrize(
    "strategy", [TruncateStrategy(), SummarizeStrategy(), HybridStrategy(), TurnStrategy(max_turns=90)]
)
@pytest.mark.parametrize("role", ["system", "user"])
def test_a_long_summary_does_not_displace_the_newest_messages(strategy, role):
    messages = [SYSTEM, *dialogue(20), {"role": "user", "content": "And now?"}]
    record = Transcript(messages)
    fold = Fold.over(range(1, 5), shown=summary_message("soup " * 2_000, role), reason="summarized")
    compaction = CompactionManager(strategy, ModelInfo("any", max_input_tokens=900), folds=[fold])

    result = asyncio.run(compaction.check_and_apply(record))

    view = view_of(record, folds=result.folds, max_tokens=900)
    assert view.tokens <= 900
    assert view.violations == ()
    assert sum(message in view.curated for message in messages) > 5
