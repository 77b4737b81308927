"""Answers of a real model to the official clients. A model of 135 million parameters is only tested for format."""

import asyncio
import json

import openai
import pytest

from minutebook.testing import LocalModel

HELLO = [{"role": "user", "content": "Name three colours."}]
TOO_LONG = [{"role": "user", "content": "word " * 5_000}]
NO_CACHE = {"cache_prompt": False}
"""With a cached prefix, tokens are computed in other batches, and rounding can change a word. Without it, answers are equal."""

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask(client, local, messages=HELLO, **options):
    return client.chat.completions.create(**{"model": local.model, "messages": messages, "max_tokens": 24, **options})


def test_the_model_is_listed_and_named_in_answers(local, openai_client):
    assert [model.id for model in openai_client.models.list()] == [local.model]
    assert ask(openai_client, local).model == local.model


def test_an_answer_has_text_and_counts_its_tokens(local, openai_client):
    answer = ask(openai_client, local)

    assert answer.choices[0].message.content.strip()
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert 0 < answer.usage.completion_tokens <= 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_has_the_same_text_as_a_whole_answer(local, openai_client):
    whole = ask(openai_client, local, extra_body=NO_CACHE)
    events = list(ask(openai_client, local, extra_body=NO_CACHE, stream=True, stream_options={"include_usage": True}))

    pieces = [event.choices[0].delta.content or "" for event in events if event.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 1
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert events[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_structured_answer_matches_its_schema(local, openai_client):
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    answer = ask(openai_client, local, max_tokens=120, response_format=form)

    person = json.loads(answer.choices[0].message.content)
    assert set(person) == {"name", "age"}
    assert isinstance(person["name"], str)
    assert 0 <= person["age"] <= 150


def test_an_answer_ends_after_max_tokens(local, openai_client):
    answer = ask(openai_client, local, max_tokens=3, extra_body={"ignore_eos": True})

    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


def test_an_answer_without_a_limit_ends_after_max_answer_tokens():
    with (
        LocalModel(max_context_tokens=256, max_answer_tokens=5) as model,
        openai.OpenAI(base_url=model.base_url, api_key="any", max_retries=0) as client,
    ):
        answer = ask(client, model, max_tokens=None, extra_body={"ignore_eos": True})

    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_exceeds_the_window_is_refused_with_both_sizes(local, openai_client, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(openai_client, local, TOO_LONG, stream=stream)

    error = caught.value.response.json()["error"]
    assert caught.value.status_code == 400
    assert (error["code"], error["type"]) == (400, "exceed_context_size_error")
    assert error["n_ctx"] == local.max_context_tokens
    assert error["n_prompt_tokens"] > 5_000
    assert error["message"] == (
        f"request ({error['n_prompt_tokens']} tokens) exceeds the available context size "
        f"({error['n_ctx']} tokens), try increasing it"
    )


def test_a_repeated_prefix_is_read_from_the_cache(local, openai_client):
    system = {"role": "system", "content": "The harbour master writes every ship into the book. " * 8}
    first = ask(openai_client, local, [system, {"role": "user", "content": "Which ships came?"}], max_tokens=2)
    second = ask(openai_client, local, [system, {"role": "user", "content": "And which left?"}], max_tokens=2)

    assert first.usage.prompt_tokens_details.cached_tokens < 20
    assert second.usage.prompt_tokens_details.cached_tokens > 80
    assert second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens


def test_the_history_of_an_agent_is_accepted(local, openai_client):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    history = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees, sunny"},
    ]

    assert ask(openai_client, local, history).choices[0].message.content


def test_requests_in_parallel_are_answered(local):
    async def ask_in_parallel():
        async with openai.AsyncOpenAI(base_url=local.base_url, api_key="any", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, local, max_tokens=4) for _ in range(4)))

    answers = asyncio.run(ask_in_parallel())

    assert all(answer.choices[0].message.content for answer in answers)


def test_a_restarted_model_gives_the_same_answers():
    def answers():
        with (
            LocalModel(max_context_tokens=512) as model,
            openai.OpenAI(base_url=model.base_url, api_key="any", max_retries=0) as client,
        ):
            return [ask(client, model).choices[0].message.content for _ in range(2)]

    assert answers() == answers()
