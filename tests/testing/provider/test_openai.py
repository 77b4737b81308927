"""Chat completions over HTTP, with OpenAI's official client."""

import asyncio
from contextlib import contextmanager

import openai
import pytest

from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, cut, ends, fail, refuse, say, think, uses

HELLO = [{"role": "user", "content": "hello"}]


@contextmanager
def chat(*steps, key="any", **options):
    with (
        LoopbackProvider(ScriptedModel(*steps), **options) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key=key, max_retries=0) as client,
    ):
        yield provider, client


def ask(client, messages=HELLO, **options):
    return client.chat.completions.create(model="gpt-4o", messages=messages, **options)


def stream_chunks(client, **options):
    return list(ask(client, stream=True, **options))


def test_a_text_arrives_with_its_usage_and_ids():
    with chat("Good morning.", clock=lambda: 1_700_000_000.5) as (provider, client):
        answer = ask(client)

    assert answer.choices[0].message.content == "Good morning."
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.id, answer.model, answer.created, answer._request_id) == (
        "chatcmpl-1",
        "gpt-4o",
        1_700_000_000,
        "req_1",
    )
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 3, 8)
    assert provider.requests[0].messages == HELLO


def test_parallel_calls_arrive_in_one_message():
    with chat(say("Looking.") + call("read_file", path="a.py") + call("ls", depth=2)) as (_, client):
        choice = ask(client).choices[0]

    assert [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [
        ("call_1", "read_file", '{"path": "a.py"}'),
        ("call_2", "ls", '{"depth": 2}'),
    ]
    assert (choice.message.content, choice.finish_reason) == ("Looking.", "tool_calls")


def test_a_message_with_calls_only_has_no_content():
    with chat(call("ls")) as (_, client):
        assert ask(client).choices[0].message.content is None


def test_a_stream_has_one_chunk_per_word_and_a_finish_reason():
    with chat("one two three") as (_, client):
        chunks = stream_chunks(client)

    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "one ", "two ", "three", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]
    assert chunks[0].choices[0].delta.role == "assistant"


def test_streamed_arguments_come_in_pieces_under_the_index_of_their_call():
    with chat(call("write", path="a.py", text="x = 1") + call("ls")) as (_, client):
        deltas = [d for chunk in stream_chunks(client) for d in chunk.choices[0].delta.tool_calls or ()]

    first = [d for d in deltas if d.index == 0]
    assert (first[0].id, first[0].function.name, first[0].type) == ("call_1", "write", "function")
    assert all(d.id is None and d.function.name is None for d in first[1:])
    assert len(first) > 3
    assert "".join(d.function.arguments for d in first) == '{"path": "a.py", "text": "x = 1"}'
    assert [d.id for d in deltas if d.index == 1 and d.id] == ["call_2"]


def test_the_client_assembles_the_same_answer_from_the_stream():
    step = think("Hm.") + say("Let me see.") + call("read_file", path="a.py") + call("ls")
    with chat(step, step) as (_, client):
        whole = ask(client).choices[0]
        with client.chat.completions.stream(model="gpt-4o", messages=HELLO) as stream:
            assembled = stream.get_final_completion().choices[0]

    assert assembled.message.content == whole.message.content
    assert assembled.finish_reason == whole.finish_reason
    assert [c.function.arguments for c in assembled.message.tool_calls] == ['{"path": "a.py"}', "{}"]


def test_usage_is_streamed_only_with_include_usage():
    with chat("hi", "hi") as (_, client):
        plain = stream_chunks(client)
        with_usage = stream_chunks(client, stream_options={"include_usage": True})

    assert all(chunk.usage is None for chunk in plain)
    assert all(chunk.usage is None for chunk in with_usage[:-1])
    assert with_usage[-1].choices == []
    assert with_usage[-1].usage.prompt_tokens == 5


def test_reasoning_is_separate_from_the_content():
    with chat(think("I wonder why.") + say("Because."), think("I wonder why.") + say("Because.")) as (_, client):
        message = ask(client).choices[0].message
        deltas = [chunk.choices[0].delta for chunk in stream_chunks(client)]

    assert (message.reasoning_content, message.content) == ("I wonder why.", "Because.")
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "I wonder why."


def test_a_refusal_is_not_content():
    with chat(refuse("I would rather not."), refuse("I would rather not.")) as (_, client):
        message = ask(client).choices[0].message
        deltas = [chunk.choices[0].delta for chunk in stream_chunks(client)]

    assert (message.refusal, message.content) == ("I would rather not.", None)
    assert "".join(delta.refusal or "" for delta in deltas) == "I would rather not."


def test_a_script_sets_the_finish_reason():
    with chat(say("and then the") + ends("length")) as (_, client):
        assert ask(client).choices[0].finish_reason == "length"


def test_a_script_sets_the_usage():
    with chat(say("hi") + uses(prompt=5000, completion=70, cached=4096)) as (_, client):
        usage = ask(client).usage

    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5000, 70, 5070)
    assert usage.prompt_tokens_details.cached_tokens == 4096


def test_scripted_errors_raise_the_clients_exceptions():
    with (
        chat(fail(500), fail(429, retry_after=2), fail(400, "no", code="weird", param="messages")) as (_, client),
    ):
        with pytest.raises(openai.InternalServerError):
            ask(client)
        with pytest.raises(openai.RateLimitError) as limited:
            ask(client)
        with pytest.raises(openai.BadRequestError) as bad:
            ask(client)

    assert limited.value.response.headers["retry-after"] == "2"
    assert limited.value.response.headers["retry-after-ms"] == "2000"
    assert (bad.value.code, bad.value.param, bad.value.request_id) == ("weird", "messages", "req_3")


def test_a_client_that_retries_gets_the_next_step():
    with chat(fail(429, retry_after=0.001), "at last") as (provider, client):
        answer = ask(client.with_options(max_retries=1))

    assert answer.choices[0].message.content == "at last"
    assert [request.status for request in provider.requests] == [429, 200]


def test_an_error_in_the_middle_of_a_stream_reaches_the_client():
    contents = []
    with chat(say("so far") + fail(529, "too busy")) as (_, client), pytest.raises(openai.APIError, match="too busy"):
        contents.extend(chunk.choices[0].delta.content for chunk in ask(client, stream=True))

    assert contents == ["", "so ", "far"]


def test_a_stream_that_is_cut_is_a_connection_error_after_the_chunks_before_the_cut():
    contents = []
    with (
        chat(say("one two three four") + cut(after_chunks=3)) as (_, client),
        ask(client, stream=True) as stream,
        pytest.raises(openai.APIConnectionError),
    ):
        contents.extend(chunk.choices[0].delta.content for chunk in stream)

    assert contents == ["", "one ", "two "]


@pytest.mark.parametrize("after", [0, 1])
def test_an_answer_that_is_cut_is_a_connection_error(after):
    with chat(say("one two") + cut(after_chunks=after), "again") as (_, client):
        with pytest.raises(openai.APIConnectionError):
            ask(client)

        assert ask(client).choices[0].message.content == "again"


def test_a_request_after_the_last_step_is_an_error_in_problems_and_not_retried():
    with chat("only") as (provider, client):
        ask(client)
        with pytest.raises(openai.InternalServerError, match="the script has 1 steps and this is request 2") as error:
            ask(client.with_options(max_retries=2))

    assert error.value.code == "script_exhausted"
    assert len(provider.requests) == 2
    assert provider.problems == [provider.requests[1].problem] == [error.value.body["message"]]


def test_the_async_client_gets_whole_and_streamed_answers():
    async def use_client(provider):
        async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client:
            whole = await ask(client)
            words = [chunk.choices[0].delta.content async for chunk in await ask(client, stream=True)]
            with pytest.raises(openai.APIConnectionError):
                [chunk async for chunk in await ask(client, stream=True)]
            with pytest.raises(openai.BadRequestError):
                await ask(client, messages=[])
        return whole.choices[0].message.tool_calls[1].id, words

    script = ScriptedModel(call("a") + call("b"), "x y", say("a b c") + cut(after_chunks=2))
    with LoopbackProvider(script) as provider:
        assert asyncio.run(use_client(provider)) == ("call_2", ["", "x ", "y", None])


def test_models_are_listed_and_retrieved():
    with chat(models=("tiny", "large")) as (_, client):
        assert [model.id for model in client.models.list()] == ["tiny", "large"]
        assert client.models.retrieve("tiny").object == "model"
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("huge")

    assert missing.value.code == "model_not_found"
