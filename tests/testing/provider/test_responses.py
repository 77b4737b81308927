"""The Responses API over HTTP, with OpenAI's official client."""

from contextlib import contextmanager

import openai
import pytest

from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, ends, fail, refuse, say, think

USER = {"role": "user", "content": "hello"}
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}


@contextmanager
def responses(*steps, otherwise=None, **options):
    with (
        LoopbackProvider(ScriptedModel(*steps, otherwise=otherwise), **options) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
    ):
        yield provider, lambda given, **fields: client.responses.create(model="gpt-4o", input=given, **fields)


@pytest.fixture(scope="module")
def create():
    with responses(otherwise="fine") as (_, create_response):
        yield create_response


STEP = think("Two files.") + say("Looking.") + call("read", path="a.py") + call("ls")


def test_an_answer_is_a_list_of_items_with_usage():
    with responses(STEP) as (provider, create):
        response = create("hello", instructions="Be brief.")

    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert response.output_text == "Looking."
    assert [(item.call_id, item.name, item.arguments) for item in response.output[2:]] == [
        ("call_1", "read", '{"path": "a.py"}'),
        ("call_2", "ls", "{}"),
    ]
    assert (response.status, response.model, response.instructions) == ("completed", "gpt-4o", "Be brief.")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == 3
    assert provider.requests[0].last_text == "hello"


def test_a_stream_ends_with_the_response_that_is_not_streamed():
    with responses(STEP, STEP) as (_, create):
        whole = create([USER])
        events = list(create([USER], stream=True))

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Looking."
    arguments = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(arguments) == '{"path": "a.py"}{}'
    done = [event.item for event in events if event.type == "response.output_item.done"]
    final = events[-1].response
    assert events[-1].type == "response.completed"
    assert done == final.output
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert final.usage.input_tokens == final.usage.input_tokens_details.cached_tokens == whole.usage.input_tokens


def test_the_clients_stream_helper_accepts_the_events():
    with (
        LoopbackProvider(ScriptedModel(STEP)) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
        client.responses.stream(model="gpt-4o", input=[USER]) as stream,
    ):
        assert stream.get_final_response().output_text == "Looking."


def test_a_refusal_and_a_truncated_answer_are_reported():
    with responses(refuse("No."), say("And then") + ends("length")) as (_, create):
        assert create([USER]).output[0].content[0].refusal == "No."
        truncated = create([USER])

    assert (truncated.status, truncated.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_stream_can_end_with_an_error():
    with responses(say("So") + fail(500, "lost")) as (_, create):
        events = list(create([USER], stream=True))

    assert (events[-1].type, events[-1].message) == ("error", "lost")
    assert not any(event.type == "response.completed" for event in events)


def test_the_answer_can_be_sent_back_with_outputs():
    with responses(STEP, "done") as (provider, create):
        output = [item.to_dict() for item in create([USER]).output]
        outputs = [{"type": "function_call_output", "call_id": f"call_{n}", "output": "x"} for n in (2, 1)]

        assert create([USER, *output, *outputs]).output_text == "done"

    assert provider.problems == []


BAD_INPUTS = {
    "no items": ([], "empty array"),
    "a number": (5, "must be a string or an array"),
    "unknown role": ([{"role": "tool", "content": "x"}], "'tool' is none of"),
    "unknown type": ([{"type": "smell"}], "'smell' is none of"),
    "a reference": ([{"type": "item_reference", "id": "msg_1"}], "'item_reference' is none of"),
    "unknown field": ([{**USER, "kind": "summary"}], r"Unknown parameter: 'input\[0\].kind'"),
    "unknown field of a part": (
        [{"role": "user", "content": [{"type": "input_text", "text": "x", "cache_control": {}}]}],
        r"Unknown parameter: 'input\[0\].content\[0\].cache_control'",
    ),
    "a chat part": ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "'text' is none of"),
    "an input part of the assistant": (
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        "'input_text' is none of",
    ),
    "a text part without text": ([{"role": "user", "content": [{"type": "input_text"}]}], "text' is required"),
    "null content": ([{"role": "user", "content": None}], "content' is required"),
    "arguments that are no text": ([USER, {**CALL, "arguments": {}}, OUTPUT], "arguments' is required"),
    "an output without a call": ([USER, OUTPUT], "No tool call found for function call output with call_id c1"),
    "an output before its call": ([USER, OUTPUT, CALL], "No tool call found"),
    "two outputs": ([USER, CALL, OUTPUT, OUTPUT], "No tool call found"),
    "an output of another type": ([USER, CALL, {**OUTPUT, "type": "custom_tool_call_output"}], "No tool call found"),
    "a call without an output": ([USER, CALL], "No tool output found for function call c1"),
    "reasoning at the end": ([USER, REASONING], "'rs_1' of type 'reasoning' was provided without"),
    "reasoning before the user": ([USER, REASONING, USER], "'rs_1' of type 'reasoning' was provided without"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_invalid_input_is_refused(name, create):
    given, problem = BAD_INPUTS[name]

    with pytest.raises(openai.BadRequestError, match=problem) as error:
        create(given)

    assert error.value.type == "invalid_request_error"
    assert error.value.param.startswith("input")


def test_unknown_fields_and_responses_are_refused(create):
    with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'messages'"):
        create("hello", extra_body={"messages": [USER]})
    with pytest.raises(openai.BadRequestError, match="'resp_9' not found") as error:
        create("hello", previous_response_id="resp_9")
    assert error.value.code == "previous_response_not_found"


GOOD_INPUTS = {
    "text": "hello",
    "a conversation": [USER, REASONING, ANSWER, CALL, {**CALL, "call_id": "c2"}, OUTPUT, {**OUTPUT, "call_id": "c2"}],
    "other items between a call and its output": [USER, CALL, USER, OUTPUT],
    "reasoning before a call": [USER, REASONING, CALL, OUTPUT],
    "the assistant last": [USER, ANSWER],
    "a hosted tool": [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, ANSWER],
}


@pytest.mark.parametrize("name", GOOD_INPUTS)
def test_valid_input_is_accepted(name, create):
    assert create(GOOD_INPUTS[name]).output_text == "fine"


def test_a_long_input_exceeds_the_window():
    with responses("x", max_context_tokens=50) as (_, create):
        with pytest.raises(openai.BadRequestError) as error:
            create([USER, {**CALL, "arguments": "a b c " * 50}, OUTPUT])

    assert error.value.code == "context_length_exceeded"
