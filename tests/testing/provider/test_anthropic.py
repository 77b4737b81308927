"""Messages over HTTP, with Anthropic's official client."""

import asyncio
from contextlib import contextmanager

import anthropic
import httpx2
import pytest

from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, cut, ends, fail, overflow, refuse, say, think, uses

HELLO = [{"role": "user", "content": "hello"}]


@contextmanager
def claude(*steps, key="any", **options):
    with (
        LoopbackProvider(ScriptedModel(*steps), **options) as provider,
        anthropic.Anthropic(base_url=provider.anthropic_url, api_key=key, max_retries=0) as client,
    ):
        yield provider, client


def ask(client, messages=HELLO, **options):
    return client.messages.create(**{"model": "claude-opus-4-5", "max_tokens": 100, "messages": messages, **options})


def stream_message(client, messages=HELLO, **options):
    with client.messages.stream(model="claude-opus-4-5", max_tokens=100, messages=messages, **options) as stream:
        return stream.get_final_message()


def test_a_text_arrives_with_its_usage_and_ids():
    with claude("Good morning.") as (provider, client):
        answer = ask(client, system="Be kind.")

    assert answer.content[0].text == "Good morning."
    assert (answer.id, answer.model, answer.stop_reason) == ("msg_1", "claude-opus-4-5", "end_turn")
    assert answer._request_id == "req_1"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (12, 3)
    assert provider.requests[0].body["system"] == "Be kind."


def test_thinking_text_and_parallel_calls_are_blocks_in_order():
    with claude(think("Hm.") + say("Looking.") + call("read_file", path="a.py") + call("ls")) as (_, client):
        answer = ask(client)

    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert answer.content[0].thinking == "Hm."
    assert answer.content[0].signature
    assert [(b.id, b.name, b.input) for b in answer.content[2:]] == [
        ("call_1", "read_file", {"path": "a.py"}),
        ("call_2", "ls", {}),
    ]
    assert answer.stop_reason == "tool_use"


def test_the_client_assembles_the_same_answer_from_the_stream():
    step = think("Hm, well.") + say("Let me see.") + call("write", path="a.py", text="x = 1")
    with claude(step, step) as (_, client):
        whole, streamed = ask(client), stream_message(client)

    assert [block.model_dump(exclude={"id", "parsed_output"}) for block in streamed.content] == [
        block.model_dump(exclude={"id"}) for block in whole.content
    ]
    assert (streamed.stop_reason, streamed.usage) == (whole.stop_reason, whole.usage)


def test_a_stream_has_anthropics_events_in_order():
    with (
        claude(say("one two")) as (_, client),
        client.messages.with_streaming_response.create(
            model="m", max_tokens=9, messages=HELLO, stream=True
        ) as response,
    ):
        lines = list(response.iter_lines())

    assert [line.removeprefix("event: ") for line in lines if line.startswith("event: ")] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_streamed_arguments_come_in_pieces():
    with claude(call("write", path="a.py", text="x = 1")) as (_, client):
        deltas = [e.delta for e in ask(client, stream=True) if e.type == "content_block_delta"]

    assert len(deltas) > 3
    assert "".join(delta.partial_json for delta in deltas) == '{"path": "a.py", "text": "x = 1"}'


def test_a_refusal_has_a_stop_reason_and_no_content():
    with claude(refuse("I would rather not."), refuse("I would rather not.")) as (_, client):
        whole, streamed = ask(client), stream_message(client)

    assert whole.content == streamed.content == []
    assert whole.stop_reason == streamed.stop_reason == "refusal"
    assert whole.stop_details.explanation == "I would rather not."


def test_a_script_sets_the_finish_reason_and_the_usage():
    with claude(say("and then the") + ends("length") + uses(prompt=900, completion=8, cached=100)) as (_, client):
        answer = ask(client)

    assert answer.stop_reason == "max_tokens"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (
        800,
        100,
        8,
    )


def test_scripted_errors_raise_the_clients_exceptions():
    with claude(fail(429, retry_after=1.2), fail(529), fail(500), overflow(300, 200)) as (_, client):
        with pytest.raises(anthropic.RateLimitError) as limited:
            ask(client)
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            ask(client)
        with pytest.raises(anthropic.InternalServerError):
            ask(client)
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 300 tokens > 200 maximum"):
            ask(client)

    assert limited.value.response.headers["retry-after"] == "2"
    assert limited.value.response.headers["retry-after-ms"] == "1200"
    assert (overloaded.value.status_code, overloaded.value.type) == (529, "overloaded_error")
    assert limited.value.request_id == "req_1"


def test_an_error_in_the_middle_of_a_stream_reaches_the_client():
    with claude(say("so far so") + fail(529)) as (_, client), pytest.raises(anthropic.APIStatusError) as error:
        list(ask(client, stream=True))

    assert error.value.type == "overloaded_error"


def test_a_stream_that_is_cut_raises_after_the_events_before_the_cut():
    event_types = []
    # Once a stream has started, this client raises the error of its HTTP library.
    raises_connection_error = pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError))
    with (
        claude(say("one two three") + cut(after_chunks=4)) as (_, client),
        ask(client, stream=True) as stream,
        raises_connection_error,
    ):
        event_types.extend(event.type for event in stream)

    assert event_types == ["message_start", "content_block_start", "content_block_delta"]


def test_an_answer_that_is_cut_is_a_connection_error():
    with claude(cut()) as (_, client), pytest.raises(anthropic.APIConnectionError):
        ask(client)


def test_a_request_after_the_last_step_is_an_error_in_problems():
    with claude() as (provider, client), pytest.raises(anthropic.InternalServerError, match="the script has 0 steps"):
        ask(client.with_options(max_retries=2))

    assert len(provider.problems) == 1


def test_counting_tokens_does_not_use_a_step_of_the_script():
    with claude("hi") as (provider, client):
        counted = client.messages.count_tokens(model="m", messages=HELLO, system="Be kind.")
        answer = ask(client, system="Be kind.")

    assert counted.input_tokens == answer.usage.input_tokens
    assert [request.path for request in provider.requests] == ["/v1/messages/count_tokens", "/v1/messages"]


def test_the_async_client_gets_whole_and_streamed_answers():
    async def use_client(provider):
        async with anthropic.AsyncAnthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client:
            whole = await ask(client)
            async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
                words = [word async for word in stream.text_stream]
            with pytest.raises(anthropic.BadRequestError):
                await ask(client, messages=[])
        return whole.content[1].id, words

    with LoopbackProvider(ScriptedModel(call("a") + call("b"), "x y")) as provider:
        assert asyncio.run(use_client(provider)) == ("call_2", ["x ", "y"])


def test_models_are_listed_in_anthropics_format():
    with claude(models=("tiny", "large")) as (_, client):
        assert [(m.id, m.type, m.lifecycle) for m in client.models.list()] == [
            ("tiny", "model", "active"),
            ("large", "model", "active"),
        ]
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("huge")
