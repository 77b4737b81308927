"""The simulated prompt cache against the provider on loopback, and its prices."""

from collections.abc import Iterator

import anthropic
import openai
import pytest

from minutebook import SlidingWindowManager, TokenBudgetManager
from minutebook.errors import InvalidSetting
from minutebook.lab import (
    TYPICAL_BILLING,
    Billing,
    PromptCache,
    RecordedSession,
    ReplayedRequest,
    billing_of,
    replay_requests,
)
from minutebook.lab.policies import named_policy
from minutebook.lab.prompt_cache import ANTHROPIC_CACHE, OPENAI_CACHE, CacheRules, PromptItem
from minutebook.testing import LoopbackProvider, ScriptedModel, coding_session
from minutebook.tokens import ExactCounter
from minutebook.tokens.models import Prices

PRICES = Prices(input=2.0, cache_read=0.5, cache_write=2.5)
POLICIES = {
    "everything": None,
    "budget": TokenBudgetManager,
    "names": lambda budget: TokenBudgetManager(budget, names=0.1),
    "window": lambda _: SlidingWindowManager(12),
    "truncate": lambda budget: named_policy("truncate", budget),
}


def requests(policy: str, billing: Billing) -> Iterator[ReplayedRequest]:
    session = RecordedSession("simulated", coding_session(seed=3, turns=8), ExactCounter())
    return (row for row in replay_requests(session, POLICIES[policy], 5_000, billing=billing) if row.view is not None)


@pytest.mark.parametrize("policy", POLICIES)
def test_openais_usage_agrees_token_by_token(policy: str) -> None:
    billing = Billing(PRICES, OPENAI_CACHE)
    with (
        LoopbackProvider(ScriptedModel(otherwise="fine"), cache=OPENAI_CACHE, counter=ExactCounter()) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
    ):
        for row in requests(policy, billing):
            assert row.view is not None
            usage = client.chat.completions.create(model="m", **row.view.openai()).usage

            assert usage is not None
            assert usage.prompt_tokens_details is not None
            assert (row.charge.tokens, row.charge.cached) == (
                usage.prompt_tokens,
                usage.prompt_tokens_details.cached_tokens,
            )


@pytest.mark.parametrize("policy", POLICIES)
def test_anthropics_usage_agrees_token_by_token(policy: str) -> None:
    billing = Billing(PRICES, ANTHROPIC_CACHE, provider="anthropic")
    with (
        LoopbackProvider(ScriptedModel(otherwise="fine"), cache=ANTHROPIC_CACHE, counter=ExactCounter()) as provider,
        anthropic.Anthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client,
    ):
        for row in requests(policy, billing):
            assert row.view is not None
            arguments = row.view.anthropic() | {"cache_control": {"type": "ephemeral"}}
            usage = client.messages.create(model="m", max_tokens=10, **arguments).usage

            assert (row.charge.fresh, row.charge.cached, row.charge.written) == (
                usage.input_tokens,
                usage.cache_read_input_tokens,
                usage.cache_creation_input_tokens,
            )


def test_each_kind_of_token_has_its_price() -> None:
    cache = PromptCache(Billing(PRICES, CacheRules(minimum_tokens=100)))

    short, first, second = (
        cache.send([PromptItem("system", 60), *rest])
        for rest in ([], [PromptItem("a", 60)], [PromptItem("a", 60), PromptItem("b", 40)])
    )

    assert short.cost == 60 * 2.0
    assert first.cost == 120 * 2.5  # the prefix of 60 tokens was too short for the cache
    assert second.cost == 120 * 0.5 + 40 * 2.5


def test_a_prefix_that_is_not_used_for_longer_than_its_time_is_written_again() -> None:
    cache = PromptCache(Billing(PRICES, ttl_seconds=300))
    item = PromptItem("a", 100)

    cached = [cache.send([item], at).cached for at in (0.0, 300.0, 599.0, 900.0)]

    assert cached == [0, 100, 100, 0]


def test_a_request_without_a_time_does_not_expire() -> None:
    cache = PromptCache(Billing(PRICES, ttl_seconds=300))
    item = PromptItem("a", 100)

    assert [cache.send([item], at).cached for at in (1_000.0, None)] == [0, 100]


def test_a_view_that_returns_to_an_earlier_prefix_is_cached() -> None:
    cache = PromptCache()
    a, b, c = (PromptItem(name, 10) for name in "abc")

    assert [cache.send(items).cached for items in ([a, b], [a, c], [a, b])] == [0, 10, 20]


def test_a_models_prices_and_rules_are_its_providers() -> None:
    claude, haiku, gpt = map(billing_of, ("claude-sonnet-4-5", "claude-haiku-4-5", "gpt-4o"))

    assert (claude.provider, claude.rules, claude.ttl_seconds) == ("anthropic", ANTHROPIC_CACHE, 300)
    assert claude.read_price < claude.input_price < claude.write_price
    assert haiku.rules.minimum_tokens == 4096
    assert (gpt.provider, gpt.rules) == ("openai", OPENAI_CACHE)
    assert gpt.write_price == gpt.input_price


def test_a_model_without_prices_has_typical_ones() -> None:
    assert billing_of("no-such-model") == TYPICAL_BILLING


def test_prices_without_input_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="input above 0"):
        Billing(Prices(input=0))
