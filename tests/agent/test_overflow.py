"""Context overflows: shorter views, then an error that names what does not fit."""

import pytest

from minutebook import CannotFit, Session, TokenBudgetManager, view_of
from minutebook.agent import ViewBuilt
from minutebook.errors import ContextOverflow
from minutebook.testing import LoopbackProvider, ScriptedModel, call, overflow, say
from tests.agent.parts import ADAPTERS, adapter_for, assert_coherent, prompt_of, recorded
from tests.agent.providers.test_adapters import evaluate

LONG = "word " * 300


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_after_an_overflow_a_shorter_view_is_sent(kind):
    steps = [call("read", path=f"{n} {LONG}") for n in range(12)]

    response, _, provider, session = evaluate(
        kind, "async", ScriptedModel(*steps, say("Done.")), provider_options={"max_context_tokens": 4000}
    )

    assert response.text == "Done."
    assert any("4000" in problem for problem in provider.problems)
    assert len(recorded(session)) == 1 + 24 + 1
    assert_coherent(session)


def test_after_one_overflow_later_views_stay_within_the_window():
    steps = [call("read", path=f"{n} {LONG}") for n in range(16)]

    _, events, provider, _ = evaluate(
        "openai", "stream", ScriptedModel(*steps, say("Done.")), provider_options={"max_context_tokens": 4000}
    )

    assert len(provider.problems) == 1
    assert max(event.view.tokens for event in events[-20:] if isinstance(event, ViewBuilt)) <= 4000


def test_messages_that_cannot_be_left_out_are_named_in_the_error():
    session = Session()

    with pytest.raises(CannotFit, match="cannot be left out: the newest request"):
        with LoopbackProvider(ScriptedModel(), max_context_tokens=500) as provider, adapter_for(provider) as adapter:
            adapter.evaluate_sync(prompt_of(text=LONG * 3), session=session)

    assert_coherent(session)


def test_a_call_is_given_up_after_three_overflows():
    model = ScriptedModel(*[call("read", path=f"{n} {LONG}") for n in range(4)], *[overflow(9000, 8000)] * 3)
    session = Session()

    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        with pytest.raises(ContextOverflow, match="the messages come to 9000 tokens"):  # a shorter view is possible
            adapter.evaluate_sync(prompt_of(), session=session)
        request_count = len(provider.requests)

    assert request_count == 7


def test_after_the_last_overflow_the_smallest_view_is_named():
    model = ScriptedModel(*[overflow(9000, 8000)] * 2, overflow(9000, 80))

    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        with pytest.raises(CannotFit) as caught:
            adapter.evaluate_sync(prompt_of(), session=Session(), request="Which files are there? " * 5)
        sent = provider.requests[-1].messages
        with pytest.raises(CannotFit) as smaller:
            view_of(sent, caught.value.needed - 1, provider="openai")

    assert caught.value.needed > caught.value.max_tokens
    assert view_of(sent, caught.value.needed).tokens <= caught.value.needed == smaller.value.needed


def test_max_tokens_limits_every_view_whatever_the_manager_does():
    steps = [call("read", path=f"{n} {LONG}") for n in range(8)]

    _, events, _, _ = evaluate("openai", "stream", ScriptedModel(*steps, say("Done.")), max_tokens=2000)

    assert max(event.view.tokens for event in events if isinstance(event, ViewBuilt)) <= 2000


def test_with_a_budget_manager_no_prompt_is_ever_too_long():
    steps = [call("read", path=f"{n} {LONG}") for n in range(20)]

    _, _, provider, _ = evaluate(
        "openai",
        "async",
        ScriptedModel(*steps, say("Done.")),
        provider_options={"max_context_tokens": 5000},
        history_manager=TokenBudgetManager(4000),
    )

    assert provider.problems == []
