"""The provider finds the prompt too long: tighter views, then an error that says what does not fit."""

import pytest

from minutebook import CannotFit, Session, TokenBudgetManager
from minutebook.agent import ViewBuilt
from minutebook.testing import LoopbackProvider, ScriptedModel, call, overflow, say
from tests.agent.parts import ADAPTERS, adapter_for, assert_coherent, prompt_of, recorded
from tests.agent.providers.test_adapters import evaluate as evaluated

LONG = "word " * 300


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_a_prompt_that_was_too_long_is_sent_again_with_less(kind):
    steps = [call("read", path=f"{n} {LONG}") for n in range(12)]

    response, _, provider, session = evaluated(
        kind, "async", ScriptedModel(*steps, say("Done.")), provider_options={"max_context_tokens": 4000}
    )

    assert response.text == "Done."
    assert any("4000" in problem for problem in provider.problems)
    assert len(recorded(session)) == 1 + 24 + 1
    assert_coherent(session)


def test_after_one_overflow_the_views_stay_within_what_was_learnt():
    steps = [call("read", path=f"{n} {LONG}") for n in range(16)]

    _, events, provider, _ = evaluated(
        "openai", "stream", ScriptedModel(*steps, say("Done.")), provider_options={"max_context_tokens": 4000}
    )

    assert len(provider.problems) == 1
    assert max(event.view.tokens for event in events[-20:] if isinstance(event, ViewBuilt)) <= 4000


def test_what_cannot_be_made_shorter_is_an_error_that_names_it():
    session = Session()

    with pytest.raises(CannotFit, match="must stay"):
        with LoopbackProvider(ScriptedModel(), max_context_tokens=500) as provider, adapter_for(provider) as adapter:
            adapter.evaluate_sync(prompt_of(text=LONG * 3), session=session)

    assert_coherent(session)


def test_a_provider_that_still_finds_it_too_long_is_not_asked_a_fourth_time():
    model = ScriptedModel(*[call("read", path=f"{n} {LONG}") for n in range(4)], *[overflow(9000, 8000)] * 3)
    session = Session()

    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        with pytest.raises(CannotFit):
            adapter.evaluate_sync(prompt_of(), session=session)
        asked = len(provider.requests)

    assert asked == 7


def test_max_tokens_holds_whatever_the_manager_does():
    steps = [call("read", path=f"{n} {LONG}") for n in range(8)]

    _, events, _, _ = evaluated("openai", "stream", ScriptedModel(*steps, say("Done.")), max_tokens=2000)

    assert max(event.view.tokens for event in events if isinstance(event, ViewBuilt)) <= 2000


def test_with_a_budget_manager_no_prompt_is_ever_too_long():
    steps = [call("read", path=f"{n} {LONG}") for n in range(20)]

    _, _, provider, _ = evaluated(
        "openai",
        "async",
        ScriptedModel(*steps, say("Done.")),
        provider_options={"max_context_tokens": 5000},
        history_manager=TokenBudgetManager(4000),
    )

    assert provider.problems == []
