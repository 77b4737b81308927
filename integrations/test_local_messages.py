"""The local model with Anthropic's client."""

import anthropic
import pytest

HELLO = [{"role": "user", "content": "Name three colours."}]
TOO_LONG = [{"role": "user", "content": "word " * 5_000}]


def ask(client, local, messages=HELLO, **options):
    return client.messages.create(**{"model": local.model, "messages": messages, "max_tokens": 24, **options})


def test_an_answer_has_text_and_counts_its_tokens(local, anthropic_client):
    answer = ask(anthropic_client, local)

    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text.strip()
    assert answer.stop_reason in {"end_turn", "max_tokens"}
    assert 0 < answer.usage.output_tokens <= 24


def test_a_stream_has_the_same_text_as_a_whole_answer(local, anthropic_client):
    ask(anthropic_client, local)  # so that both answers below start with the same tokens in the cache
    whole = ask(anthropic_client, local)
    with anthropic_client.messages.stream(model=local.model, messages=HELLO, max_tokens=24) as streamed:
        text = "".join(streamed.text_stream)
        final = streamed.get_final_message()

    assert text == whole.content[0].text
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


def test_tokens_are_counted_as_they_are_billed(local, anthropic_client):
    for options in ({}, {"system": "Be brief."}):
        counted = anthropic_client.messages.count_tokens(model=local.model, messages=HELLO, **options).input_tokens
        usage = ask(anthropic_client, local, max_tokens=1, **options).usage

        assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_a_prompt_that_does_not_fit_can_still_be_counted(local, anthropic_client):
    counted = anthropic_client.messages.count_tokens(model=local.model, messages=TOO_LONG)

    assert counted.input_tokens > local.max_context_tokens


def test_a_prompt_that_exceeds_the_window_is_refused_in_openais_format(local, anthropic_client):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(anthropic_client, local, TOO_LONG)

    body = caught.value.response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "type", "n_prompt_tokens", "n_ctx"}
    assert (body["error"]["code"], body["error"]["type"]) == (400, "exceed_context_size_error")
    assert "exceeds the available context size" in body["error"]["message"]


def test_a_repeated_prefix_is_read_from_the_cache(local, anthropic_client):
    system = "The lighthouse keeper notes the wind at every bell. " * 8
    ask(anthropic_client, local, [{"role": "user", "content": "What wind?"}], system=system, max_tokens=2)
    second = ask(anthropic_client, local, [{"role": "user", "content": "And now?"}], system=system, max_tokens=2)

    assert second.usage.cache_read_input_tokens > 80
    assert second.usage.input_tokens < 80
