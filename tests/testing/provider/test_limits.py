"""The context window, the prompt cache, the rate limit and the key."""

from contextlib import contextmanager

import anthropic
import openai
import pytest

from minutebook import counter_for
from minutebook.errors import InvalidSetting
from minutebook.testing.provider.rate_limit import RateLimit
from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.provider.usage import ANTHROPIC_CACHE, OPENAI_CACHE, CacheRules
from minutebook.testing.script import ScriptedModel
from minutebook.tokens import EstimatedCounter

HELLO = [{"role": "user", "content": "hello"}]
FINE = ScriptedModel(otherwise="fine")
MARK = {"type": "ephemeral"}


@contextmanager
def clients(*, key="any", **options):
    with (
        LoopbackProvider(FINE, **options) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key=key, max_retries=0) as chat,
        anthropic.Anthropic(base_url=provider.anthropic_url, api_key=key, max_retries=0) as claude,
    ):
        yield provider, chat, claude


def talk(length, words=20):
    roles = ["user", "assistant"] * length
    return [{"role": roles[at], "content": f"{at} " + "word " * words} for at in range(length)]


def chatted(client, messages, **options):
    return client.chat.completions.create(**{"model": "m", "messages": messages, **options}).usage


def messaged(client, messages, **options):
    return client.messages.create(**{"model": "m", "max_tokens": 9, "messages": messages, **options}).usage


def test_a_prompt_is_counted_as_the_counter_counts_it():
    count = counter_for("gpt-4o")
    with clients() as (_, chat, _claude):
        usage = chatted(chat, talk(5))

    assert usage.prompt_tokens == sum(map(count.message, talk(5)))


def test_tools_are_part_of_the_prompt():
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
    with clients() as (_, chat, _claude):
        assert chatted(chat, HELLO, tools=[tool]).prompt_tokens > chatted(chat, HELLO).prompt_tokens + 10


def test_any_counter_will_do():
    with clients(counter=EstimatedCounter()) as (_, chat, _claude):
        assert chatted(chat, HELLO).prompt_tokens == EstimatedCounter().message(HELLO[0])


def test_a_prompt_longer_than_the_window_is_refused_in_openais_words():
    said = pytest.raises(openai.BadRequestError, match="maximum context length of this model is 4 tokens")
    with clients(max_context_tokens=4) as (provider, chat, _), said as error:
        chatted(chat, HELLO)

    assert (error.value.code, error.value.param) == ("context_length_exceeded", "messages")
    assert provider.requests[0].status == 400


def test_a_prompt_longer_than_the_window_is_refused_in_anthropics_words():
    with clients(max_context_tokens=4) as (_, _chat, claude):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 5 tokens > 4 maximum") as error:
            messaged(claude, HELLO)

        assert error.value.type == "invalid_request_error"
        assert claude.messages.count_tokens(model="m", messages=HELLO).input_tokens == 5


def test_a_prompt_as_long_as_the_window_is_let_through():
    with clients(max_context_tokens=5) as (_, chat, claude):
        assert chatted(chat, HELLO).prompt_tokens == 5
        assert messaged(claude, HELLO).input_tokens == 5


def test_cache_hits_grow_with_a_conversation():
    with clients() as (_, chat, _claude):
        usages = [chatted(chat, talk(length)) for length in (1, 3, 5)]

    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages]
    assert cached == [0, usages[0].prompt_tokens, usages[1].prompt_tokens]


def test_a_change_early_in_the_conversation_loses_everything_after_it():
    changed = talk(5)
    changed[1] = {**changed[1], "content": "other"}
    with clients() as (_, chat, _claude):
        chatted(chat, talk(5))
        first = chatted(chat, talk(1))
        usage = chatted(chat, changed)

    assert usage.prompt_tokens_details.cached_tokens == first.prompt_tokens


def test_any_earlier_request_may_hold_the_beginning_not_only_the_last():
    with clients() as (_, chat, _claude):
        whole = chatted(chat, talk(3))
        chatted(chat, HELLO)

        assert chatted(chat, talk(3)).prompt_tokens_details.cached_tokens == whole.prompt_tokens


def test_other_tools_share_nothing():
    tool = {"type": "function", "function": {"name": "t", "parameters": {}}}
    with clients() as (_, chat, _claude):
        chatted(chat, talk(3))

        assert chatted(chat, talk(3), tools=[tool]).prompt_tokens_details.cached_tokens == 0


@pytest.mark.parametrize("other", [{"model": "other"}, {"prompt_cache_key": "other"}])
def test_each_model_and_cache_key_has_its_own_cache(other):
    with clients() as (_, chat, _claude):
        chatted(chat, talk(3))

        assert chatted(chat, talk(3), **other).prompt_tokens_details.cached_tokens == 0


def test_openai_caches_from_a_minimum_on_and_in_steps():
    with clients(cache=OPENAI_CACHE) as (_, chat, _claude):
        small = [chatted(chat, talk(5)).prompt_tokens_details.cached_tokens for _ in range(2)]
        usages = [chatted(chat, talk(3, words=500)) for _ in range(2)]

    assert small == [0, 0]
    assert usages[1].prompt_tokens_details.cached_tokens == usages[1].prompt_tokens // 128 * 128 > 1024


def test_a_refused_request_leaves_nothing_in_the_cache():
    with clients(max_context_tokens=40) as (_, chat, _claude):
        with pytest.raises(openai.BadRequestError):
            chatted(chat, talk(3))

        assert chatted(chat, talk(1)).prompt_tokens_details.cached_tokens == 0


def test_anthropic_caches_up_to_the_last_mark():
    marked = [*talk(3)]
    marked[0] = {"role": "user", "content": [{"type": "text", "text": talk(1)[0]["content"], "cache_control": MARK}]}
    with clients() as (_, _chat, claude):
        first = messaged(claude, marked)
        second = messaged(claude, marked)

    assert first.cache_read_input_tokens == second.cache_creation_input_tokens == 0
    assert first.cache_creation_input_tokens == second.cache_read_input_tokens > 0
    assert first.input_tokens == second.input_tokens > 0


def test_what_stands_after_the_mark_is_not_kept():
    marked = talk(3)
    marked[0] = {"role": "user", "content": [{"type": "text", "text": talk(1)[0]["content"], "cache_control": MARK}]}
    with clients() as (_, _chat, claude):
        kept = messaged(claude, marked).cache_creation_input_tokens

        assert messaged(claude, talk(3), cache_control=MARK).cache_read_input_tokens == kept > 0


def test_anthropic_caches_nothing_that_is_not_marked():
    with clients() as (_, _chat, claude):
        usages = [messaged(claude, talk(3)) for _ in range(2)]

    assert [usage.cache_read_input_tokens for usage in usages] == [0, 0]
    assert [usage.cache_creation_input_tokens for usage in usages] == [0, 0]


def test_anthropics_hits_grow_when_the_mark_moves_along():
    with clients() as (_, _chat, claude):
        usages = [messaged(claude, talk(length), cache_control=MARK) for length in (1, 3, 5)]

    totals = [u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens for u in usages]
    assert [usage.cache_read_input_tokens for usage in usages] == [0, totals[0], totals[1]]


def test_a_mark_on_a_block_does_not_change_the_prompt():
    text = talk(1)[0]["content"]
    with_mark = [{"role": "user", "content": [{"type": "text", "text": text, "cache_control": MARK}]}]
    with clients() as (_, _chat, claude):
        messaged(claude, with_mark)

        assert messaged(claude, talk(1), cache_control=MARK).cache_read_input_tokens > 0


def test_anthropic_may_be_told_to_cache_without_marks():
    with clients(cache=CacheRules(marks_needed=False)) as (_, _chat, claude):
        usages = [messaged(claude, talk(3)) for _ in range(2)]

    assert usages[1].cache_read_input_tokens == usages[0].cache_creation_input_tokens > 0


def test_anthropic_writes_nothing_below_its_minimum():
    with clients(cache=ANTHROPIC_CACHE) as (_, _chat, claude):
        usage = messaged(claude, talk(3), cache_control=MARK)

    assert usage.cache_creation_input_tokens == 0


def test_too_many_requests_are_told_when_to_come_again():
    now = [100.0]
    with clients(rate_limit=RateLimit(2, per_seconds=10), clock=lambda: now[0]) as (provider, chat, claude):
        chatted(chat, HELLO)
        now[0] = 103.5
        messaged(claude, HELLO)
        with pytest.raises(openai.RateLimitError) as limited:
            chatted(chat, HELLO)
        with pytest.raises(anthropic.RateLimitError) as also:
            messaged(claude, HELLO)
        now[0] = 110.0
        chatted(chat, HELLO)

    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.response.headers["retry-after-ms"] == "6500"
    assert limited.value.code == "rate_limit_exceeded"
    assert also.value.type == "rate_limit_error"
    assert [request.status for request in provider.requests] == [200, 200, 429, 429, 200]


def test_a_number_is_a_limit_per_minute():
    now = [0.0]
    with clients(rate_limit=1, clock=lambda: now[0]) as (_, chat, _claude):
        chatted(chat, HELLO)
        with pytest.raises(openai.RateLimitError):
            chatted(chat, HELLO)
        now[0] = 60.0

        assert chatted(chat, HELLO).prompt_tokens == 5


def test_a_wrong_key_is_refused_in_each_providers_shape():
    with clients(key="wrong", api_key="right") as (_, chat, claude):
        with pytest.raises(openai.AuthenticationError) as one:
            chatted(chat, HELLO)
        with pytest.raises(anthropic.AuthenticationError) as other:
            messaged(claude, HELLO)

    assert one.value.code == "invalid_api_key"
    assert other.value.type == "authentication_error"


def test_the_right_key_is_let_in():
    with clients(key="right", api_key="right") as (_, chat, claude):
        assert chatted(chat, HELLO).prompt_tokens == 5
        assert messaged(claude, HELLO).input_tokens == 5


@pytest.mark.parametrize("options", [{"max_context_tokens": 0}, {"rate_limit": -1}, {"model": "gpt-4o"}], ids=str)
def test_options_that_cannot_be_meant_are_refused_before_a_port_is_opened(options):
    with pytest.raises(InvalidSetting):
        LoopbackProvider(**{"model": FINE, **options})
