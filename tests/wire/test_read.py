"""What the official clients return and accept is read without loss."""

import copy
import json
from collections import deque
from contextlib import suppress

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Conversation, Transcript, check, view_of
from minutebook.errors import InvalidMessage
from minutebook.record import FindingKind, repair
from minutebook.wire import entry_from_json, entry_to_json, entry_to_provider_message, provider_message_to_entry
from minutebook.wire.read import read, read_input
from minutebook.wire.write import anthropic_arguments, encodable_copy, openai_messages, responses_arguments
from tests.protocols import answers, anthropic_conversations, conversations_with_neighbours, responses_conversations
from tests.strategies import conversations
from tests.wire.test_chat import NOW, RUN

USER = {"role": "user", "content": "hi"}
TOOL_USE = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": None}}
CALL = {"role": "assistant", "content": [TOOL_USE]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]}


def stored(messages):
    """The messages as they come back from a store."""
    lines = [
        entry_to_json(provider_message_to_entry(message, evaluation_id=RUN, sequence=index, created_at=NOW))
        for index, message in enumerate(messages)
    ]
    return [entry_to_provider_message(entry_from_json(line)) for line in lines]


@pytest.mark.fuzz
@given(st.one_of(anthropic_conversations(), conversations_with_neighbours()))
def test_an_anthropic_conversation_comes_back_unchanged(messages):
    before = copy.deepcopy(messages)

    assert json.loads(json.dumps(anthropic_arguments(stored(read(messages))))) == {"messages": encodable_copy(before)}
    assert view_of(messages, provider="anthropic").anthropic() == {"messages": encodable_copy(before)}
    assert messages == before


@pytest.mark.fuzz
@given(responses_conversations())
def test_responses_items_come_back_unchanged(items):
    before = copy.deepcopy(items)
    arguments = view_of(items).responses()

    leading = int(items[0]["role"] != "user")
    assert arguments["input"] == encodable_copy(before[leading:])
    assert responses_arguments(stored(read(items)))["input"] == encodable_copy(before[leading:])
    assert items == before


@given(conversations())
def test_chat_messages_are_not_changed_or_copied(chat):
    assert all(message is original for message, original in zip(read(chat), chat, strict=True))


@given(st.one_of(anthropic_conversations(), responses_conversations()))
def test_what_was_read_is_valid_in_every_format(given_messages):
    chat = read(given_messages)

    # Chat has no images in tool results, so a view replaces them.
    assert {finding.kind for finding in check(chat)} <= {FindingKind.BAD_PART}
    assert check(repair(chat).messages) == []
    assert all(set(message) <= {"role", "content", "tool_calls", "tool_call_id"} for message in openai_messages(chat))


@given(answers())
def test_an_anthropic_response_object_is_read_like_its_blocks(blocks):
    fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    usage = {"input_tokens": 5, "output_tokens": 2}
    response = anthropic.types.Message.construct(**fields, content=blocks, stop_sequence=None, usage=usage)
    given_input = read_input(response)

    assert (given_input.usage, given_input.model, given_input.finish) == (usage, "m", "end_turn")
    written = anthropic_arguments([USER, *given_input.messages])["messages"][1]["content"]
    assert ([{"type": "text", "text": written}] if isinstance(written, str) else written) == blocks


def test_content_blocks_of_the_client_are_read_inside_a_message_and_a_list():
    block = anthropic.types.ToolUseBlock.model_validate(TOOL_USE)

    messages = read([USER, {"role": "assistant", "content": [block]}, RESULT])

    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert anthropic_arguments(messages)["messages"] == [USER, CALL, RESULT]


def test_a_chat_completion_and_its_message_are_read_alike():
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"parsed": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    completion = openai.types.chat.ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6},
        }
    )

    assert read(completion) == read(completion.choices[0].message) == read([completion.choices[0].message]) == [message]
    assert read_input(completion).finish == "tool_calls"
    assert read_input(completion).usage["prompt_tokens"] == 4


def test_a_parsed_completion_is_read_without_what_the_client_added():
    message = {"role": "assistant", "content": '{"good": true}', "parsed": {"good": True}}
    parsed = openai.types.chat.ParsedChatCompletionMessage.construct(**message)

    assert read(parsed) == [{"role": "assistant", "content": '{"good": true}'}]


def test_a_response_and_its_items_are_read_alike():
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "read",
            "arguments": "{}",
            "status": "completed",
        },
    ]
    response = openai.types.responses.Response.construct(
        id="resp_1", object="response", model="gpt-5", output=output, status="completed", usage={"input_tokens": 3}
    )
    result = {"type": "function_call_output", "call_id": "c1", "output": "done"}

    assert responses_arguments(read(response)) == responses_arguments(read(list(response.output))) == {"input": output}
    assert responses_arguments(read([USER, *response.output, result]))["input"] == [USER, *output, result]
    assert read_input(response).usage == {"input_tokens": 3}


def test_reasoning_before_a_message_without_a_type_belongs_to_it():
    items = [USER, {"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "assistant", "content": "Hello."}]

    assert [message["content"] for message in read(items)] == ["hi", "Hello."]


def test_a_changed_result_is_sent_changed_with_its_cache_mark():
    block = {
        **RESULT["content"][0],
        "cache_control": {"type": "ephemeral"},
        "content": [{"type": "text", "text": "a" * 9}],
    }
    (message,) = read([{"role": "user", "content": [block]}])
    changed = {**message, "content": "[cleared]"}

    assert anthropic_arguments([changed])["messages"][0]["content"] == [{**block, "content": "[cleared]"}]


@pytest.mark.parametrize(
    ("given_input", "problem"),
    [
        (b"hi", "message is of type bytes"),
        (17, "message is of type int"),
        (["hi"], "message 0 is text"),
        ([None], "message 0 is of type NoneType"),
        ({"content": "hi"}, "role is missing"),
        ({"role": 3, "content": "hi"}, "role is of type int"),
        ({"role": "user", "parts": []}, "parts is empty"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
            r"content\[0\].input is missing",
        ),
        ({"role": "user", "content": [{"type": "tool_result"}]}, r"content\[0\].tool_use_id is missing"),
        ({"role": "user", "content": [TOOL_USE]}, "wrong role"),
        ({"type": "function_call", "name": "f"}, "call_id is missing"),
        ({"choices": []}, "pass the final response"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused(given_input, problem):
    with pytest.raises(InvalidMessage, match=problem):
        read(given_input)


FOREIGN = [CALL, RESULT, {"type": "function_call_output", "call_id": "c1", "output": "x"}]


@pytest.mark.parametrize("message", FOREIGN, ids=["tool_use", "tool_result", "item"])
def test_a_transcript_and_check_refuse_calls_that_they_would_not_find(message):
    for use in (Transcript, Transcript.of, check):
        with pytest.raises(InvalidMessage, match=r"message 1: .*minutebook\.wire\.read"):
            use([USER, message])


def test_content_parts_of_other_providers_stay_as_they_are():
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}

    assert read([USER, thought]) == [USER, thought]
    assert Transcript([USER, thought])[1] == thought


NOT_JSON = {
    "bytes": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "set": lambda: {"x"},
    "generator": lambda: ({"type": "text", "text": text} for text in "xy"),
    "deque": lambda: deque([{"type": "text", "text": "x"}]),
    "object": object,
}
MESSAGES_WITH = {
    "content": lambda value: {"role": "user", "content": value},
    "part": lambda value: {"role": "user", "content": [value]},
    "text": lambda value: {"role": "user", "content": [{"type": "text", "text": value}]},
    "url": lambda value: {"role": "user", "content": [{"type": "image_url", "image_url": {"url": value}}]},
    "result": lambda value: {**RESULT, "content": [{**RESULT["content"][0], "content": value}]},
    "result part": lambda value: {**RESULT, "content": [{**RESULT["content"][0], "content": [value]}]},
    "input": lambda value: {**CALL, "content": [{**TOOL_USE, "input": {"path": value}}]},
    "item": lambda value: {"type": "message", "role": "user", "content": value},
    "item text": lambda value: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]},
    "output": lambda value: {"type": "function_call_output", "call_id": "c", "output": value},
    "arguments": lambda value: {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": value}}],
    },
    "parts": lambda value: {"role": "user", "parts": [{"text": value}]},
}


@pytest.mark.parametrize("new_value", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("message_with", MESSAGES_WITH.values(), ids=MESSAGES_WITH)
def test_content_that_is_not_json_data_is_refused(message_with, new_value):
    with pytest.raises(InvalidMessage):
        read(message_with(new_value()))
    with pytest.raises(InvalidMessage):
        read([USER, message_with(new_value())])
    with pytest.raises(InvalidMessage):
        Conversation("a").append(message_with(new_value()))


def test_an_async_stream_is_refused_and_the_error_names_the_final_response():
    async def chunks():
        yield {"choices": []}

    with pytest.raises(InvalidMessage, match="is of type async_generator; pass the final response"):
        read(chunks())


def test_an_answer_that_is_not_awaited_is_refused_and_the_error_says_so():
    async def answer():
        return {"role": "assistant", "content": "17"}

    coroutine = answer()
    with pytest.raises(InvalidMessage, match="is of type coroutine; await it and pass the result"):
        read(coroutine)
    coroutine.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.sampled_from(["type", "text"]), values),
    max_leaves=4,
)


@pytest.mark.fuzz
@given(st.sampled_from([*MESSAGES_WITH]), json_values)
def test_json_data_of_any_shape_is_read_or_refused(name, value):
    with suppress(InvalidMessage):
        view_of([USER, MESSAGES_WITH[name](value)]).responses()


@pytest.mark.parametrize("fields", [{}, {"type": "message"}, {"stop_reason": "end_turn"}])
def test_a_message_of_anthropic_is_recognised_without_its_type_or_stop_reason(fields):
    content = [{"type": "text", "text": "Hello."}]
    usage = {"input_tokens": 7, "output_tokens": 1}
    answer = {"id": "msg_1", "role": "assistant", "model": "claude-opus-4-6", "content": content, "usage": usage}
    value = {**answer, **fields}

    assert read(value) == read([USER, value])[1:] == [{"role": "assistant", "content": "Hello."}]
    assert (read_input(value).usage, read_input(value).model) == (usage, "claude-opus-4-6")
