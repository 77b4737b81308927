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


def conversation(length, words=20):
    roles = ["user", "assistant"] * length
    return [{"role": roles[index], "content": f"{index} " + "word " * words} for index in range(length)]


def chat_usage(client, messages, **options):
    return client.chat.completions.create(**{"model": "m", "messages": messages, **options}).usage


def message_usage(client, messages, **options):
    return client.messages.create(**{"model": "m", "max_tokens": 9, "messages": messages, **options}).usage


def test_prompt_tokens_are_those_of_the_counter():
    count = counter_for("gpt-4o")
    with clients() as (_, chat, _claude):
        usage = chat_usage(chat, conversation(5))

    assert usage.prompt_tokens == sum(map(count.message, conversation(5)))


def test_tools_are_part_of_the_prompt():
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
    with clients() as (_, chat, _claude):
        assert chat_usage(chat, HELLO, tools=[tool]).prompt_tokens > chat_usage(chat, HELLO).prompt_tokens + 10


def test_another_counter_can_be_passed():
    with clients(counter=EstimatedCounter()) as (_, chat, _claude):
        assert chat_usage(chat, HELLO).prompt_tokens == EstimatedCounter().message(HELLO[0])


def test_a_prompt_longer_than_the_window_is_refused_with_openais_error():
    raises_overflow = pytest.raises(openai.BadRequestError, match="maximum context length of this model is 4 tokens")
    with clients(max_context_tokens=4) as (provider, chat, _), raises_overflow as error:
        chat_usage(chat, HELLO)

    assert (error.value.code, error.value.param) == ("context_length_exceeded", "messages")
    assert provider.requests[0].status == 400


def test_a_prompt_longer_than_the_window_is_refused_with_anthropics_error():
    with clients(max_context_tokens=4) as (_, _chat, claude):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 5 tokens > 4 maximum") as error:
            message_usage(claude, HELLO)

        assert error.value.type == "invalid_request_error"
        assert claude.messages.count_tokens(model="m", messages=HELLO).input_tokens == 5


def test_a_prompt_as_long_as_the_window_is_accepted():
    with clients(max_context_tokens=5) as (_, chat, claude):
        assert chat_usage(chat, HELLO).prompt_tokens == 5
        assert message_usage(claude, HELLO).input_tokens == 5


def test_cache_hits_grow_with_a_conversation():
    with clients() as (_, chat, _claude):
        usages = [chat_usage(chat, conversation(length)) for length in (1, 3, 5)]

    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages]
    assert cached == [0, usages[0].prompt_tokens, usages[1].prompt_tokens]


def test_after_a_change_nothing_is_read_from_the_cache():
    changed = conversation(5)
    changed[1] = {**changed[1], "content": "other"}
    with clients() as (_, chat, _claude):
        chat_usage(chat, conversation(5))
        first = chat_usage(chat, conversation(1))
        usage = chat_usage(chat, changed)

    assert usage.prompt_tokens_details.cached_tokens == first.prompt_tokens


def test_prefixes_of_all_earlier_requests_are_cached():
    with clients() as (_, chat, _claude):
        whole = chat_usage(chat, conversation(3))
        chat_usage(chat, HELLO)

        assert chat_usage(chat, conversation(3)).prompt_tokens_details.cached_tokens == whole.prompt_tokens


def test_a_request_with_other_tools_shares_no_prefix():
    tool = {"type": "function", "function": {"name": "t", "parameters": {}}}
    with clients() as (_, chat, _claude):
        chat_usage(chat, conversation(3))

        assert chat_usage(chat, conversation(3), tools=[tool]).prompt_tokens_details.cached_tokens == 0


@pytest.mark.parametrize("options", [{"model": "other"}, {"prompt_cache_key": "other"}])
def test_each_model_and_cache_key_has_its_own_cache(options):
    with clients() as (_, chat, _claude):
        chat_usage(chat, conversation(3))

        assert chat_usage(chat, conversation(3), **options).prompt_tokens_details.cached_tokens == 0


def test_openai_caches_from_a_minimum_on_and_in_steps():
    with clients(cache=OPENAI_CACHE) as (_, chat, _claude):
        small = [chat_usage(chat, conversation(5)).prompt_tokens_details.cached_tokens for _ in range(2)]
        usages = [chat_usage(chat, conversation(3, words=500)) for _ in range(2)]

    assert small == [0, 0]
    assert usages[1].prompt_tokens_details.cached_tokens == usages[1].prompt_tokens // 128 * 128 > 1024


def test_a_refused_request_is_not_cached():
    with clients(max_context_tokens=40) as (_, chat, _claude):
        with pytest.raises(openai.BadRequestError):
            chat_usage(chat, conversation(3))

        assert chat_usage(chat, conversation(1)).prompt_tokens_details.cached_tokens == 0


def test_anthropic_caches_up_to_the_last_mark():
    marked = [*conversation(3)]
    marked[0] = {
        "role": "user",
        "content": [{"type": "text", "text": conversation(1)[0]["content"], "cache_control": MARK}],
    }
    with clients() as (_, _chat, claude):
        first = message_usage(claude, marked)
        second = message_usage(claude, marked)

    assert first.cache_read_input_tokens == second.cache_creation_input_tokens == 0
    assert first.cache_creation_input_tokens == second.cache_read_input_tokens > 0
    assert first.input_tokens == second.input_tokens > 0


def test_messages_after_the_mark_are_not_cached():
    marked = conversation(3)
    marked[0] = {
        "role": "user",
        "content": [{"type": "text", "text": conversation(1)[0]["content"], "cache_control": MARK}],
    }
    with clients() as (_, _chat, claude):
        written = message_usage(claude, marked).cache_creation_input_tokens

        assert message_usage(claude, conversation(3), cache_control=MARK).cache_read_input_tokens == written > 0


def test_anthropic_caches_nothing_without_a_mark():
    with clients() as (_, _chat, claude):
        usages = [message_usage(claude, conversation(3)) for _ in range(2)]

    assert [usage.cache_read_input_tokens for usage in usages] == [0, 0]
    assert [usage.cache_creation_input_tokens for usage in usages] == [0, 0]


def test_anthropics_cache_hits_grow_when_the_mark_moves():
    with clients() as (_, _chat, claude):
        usages = [message_usage(claude, conversation(length), cache_control=MARK) for length in (1, 3, 5)]

    totals = [u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens for u in usages]
    assert [usage.cache_read_input_tokens for usage in usages] == [0, totals[0], totals[1]]


def test_a_mark_on_a_block_does_not_change_the_prompt():
    text = conversation(1)[0]["content"]
    with_mark = [{"role": "user", "content": [{"type": "text", "text": text, "cache_control": MARK}]}]
    with clients() as (_, _chat, claude):
        message_usage(claude, with_mark)

        assert message_usage(claude, conversation(1), cache_control=MARK).cache_read_input_tokens > 0


def test_with_marks_needed_false_anthropic_caches_without_marks():
    with clients(cache=CacheRules(marks_needed=False)) as (_, _chat, claude):
        usages = [message_usage(claude, conversation(3)) for _ in range(2)]

    assert usages[1].cache_read_input_tokens == usages[0].cache_creation_input_tokens > 0


def test_anthropic_writes_nothing_below_its_minimum():
    with clients(cache=ANTHROPIC_CACHE) as (_, _chat, claude):
        usage = message_usage(claude, conversation(3), cache_control=MARK)

    assert usage.cache_creation_input_tokens == 0


def test_requests_over_the_rate_limit_get_a_retry_after():
    now = [100.0]
    with clients(rate_limit=RateLimit(2, per_seconds=10), clock=lambda: now[0]) as (provider, chat, claude):
        chat_usage(chat, HELLO)
        now[0] = 103.5
        message_usage(claude, HELLO)
        with pytest.raises(openai.RateLimitError) as limited:
            chat_usage(chat, HELLO)
        with pytest.raises(anthropic.RateLimitError) as anthropic_limited:
            message_usage(claude, HELLO)
        now[0] = 110.0
        chat_usage(chat, HELLO)

    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.response.headers["retry-after-ms"] == "6500"
    assert limited.value.code == "rate_limit_exceeded"
    assert anthropic_limited.value.type == "rate_limit_error"
    assert [request.status for request in provider.requests] == [200, 200, 429, 429, 200]


def test_a_number_is_a_limit_per_minute():
    now = [0.0]
    with clients(rate_limit=1, clock=lambda: now[0]) as (_, chat, _claude):
        chat_usage(chat, HELLO)
        with pytest.raises(openai.RateLimitError):
            chat_usage(chat, HELLO)
        now[0] = 60.0

        assert chat_usage(chat, HELLO).prompt_tokens == 5


def test_a_wrong_key_is_refused_in_each_providers_format():
    with clients(key="wrong", api_key="right") as (_, chat, claude):
        with pytest.raises(openai.AuthenticationError) as openai_error:
            chat_usage(chat, HELLO)
        with pytest.raises(anthropic.AuthenticationError) as anthropic_error:
            message_usage(claude, HELLO)

    assert openai_error.value.code == "invalid_api_key"
    assert anthropic_error.value.type == "authentication_error"


def test_the_right_key_is_accepted():
    with clients(key="right", api_key="right") as (_, chat, claude):
        assert chat_usage(chat, HELLO).prompt_tokens == 5
        assert message_usage(claude, HELLO).input_tokens == 5


@pytest.mark.parametrize("options", [{"max_context_tokens": 0}, {"rate_limit": -1}, {"model": "gpt-4o"}], ids=str)
def test_invalid_options_are_refused_before_a_port_is_opened(options):
    with pytest.raises(InvalidSetting):
        LoopbackProvider(**{"model": FINE, **options})
