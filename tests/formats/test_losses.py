"""What `convert` reports: every field, message and part of a message that is not in the output."""

import json
from typing import Any

import pytest

from minutebook import check
from minutebook.formats import Source, convert, formats, read
from minutebook.formats.registry import with_messages
from minutebook.record.finding import errors
from minutebook.record.message import call_ids, call_names, result_id, text_of
from tests.formats.samples import SAMPLES

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
TOOL = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}


def converted(request: dict[str, Any], target: str) -> tuple[Any, str]:
    (conversation,) = read(json.dumps(request).encode())
    result = convert(conversation, target)
    return result.value, "; ".join(result.lost)


def test_fields_of_a_request_that_are_not_written_are_named() -> None:
    request = {"model": "gpt-5", "seed": 0, "response_format": {"type": "json_object"}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    _, lost = converted({**request, "messages": messages}, "anthropic")

    assert lost == "fields of the conversation: seed, response_format"


def test_losses_are_named_also_if_messages_are_joined() -> None:
    messages = [
        {"role": "system", "content": "one"},
        {"role": "system", "content": "two"},
        {"role": "user", "content": "a", "name": "ada"},
        {"role": "assistant", "content": "b", "reasoning_content": "because"},
    ]

    value, lost = converted({"model": "gpt-5", "seed": 1, "messages": messages}, "anthropic")

    assert [block["text"] for block in value["system"]] == ["one", "two"]
    assert "fields of the conversation: seed" in lost
    assert "message 2: name" in lost
    assert "message 3: reasoning_content" in lost


def test_a_message_that_is_not_written_is_named() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b"},
    ]

    _, lost = converted({"model": "gpt-5", "messages": messages}, "sharegpt")

    assert "message 1: the whole assistant message" in lost


def test_an_image_of_a_tool_result_is_in_a_user_message_of_chat() -> None:
    results = [{"type": "tool_result", "tool_use_id": "call_1", "content": [IMAGE, {"type": "text", "text": "a cat"}]}]
    request = {
        "model": "claude-opus-4-5",
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [TOOL]},
            {"role": "user", "content": results},
        ],
    }

    value, lost = converted(request, "openai-chat")

    assert [message["role"] for message in value["messages"]] == ["user", "assistant", "tool", "user"]
    assert value["messages"][2]["content"] == [{"type": "text", "text": "a cat"}]
    assert value["messages"][3]["content"][0]["type"] == "image_url"
    assert lost == "message 2: content (image_url)"


def test_a_local_shell_call_of_codex_has_its_output() -> None:
    def line(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2026-03-01T10:00:00Z", "type": kind, "payload": payload}

    action = {"type": "exec", "command": ["ls"]}
    lines = [
        line("session_meta", {"id": "s-1"}),
        line("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}),
        line("response_item", {"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": action}),
        line("response_item", {"type": "function_call_output", "call_id": "c1", "output": "a.py"}),
        line("unheard_of", {"a": 1}),
    ]
    source = Source("\n".join(map(json.dumps, lines)).encode())

    (conversation,) = read(source)

    function = conversation.messages[1]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("local_shell", action)
    assert conversation.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert list(map(str, source.skipped)) == ["line 5: is a line of the unknown type 'unheard_of'"]


PDF = "data:application/pdf;base64,AAAA"
MEDIA: list[dict[str, Any]] = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF}},
]
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def chat_with(*parts: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": list(parts)}, {"role": "assistant", "content": "A cat."}]
    return {"model": "gpt-5", "messages": messages}


@pytest.mark.parametrize("target", ["gemini", "openai-responses", "anthropic"])
def test_images_and_files_are_converted_and_come_back(target: str) -> None:
    parts = [*MEDIA, AUDIO] if target == "gemini" else MEDIA

    value, lost = converted(chat_with(*parts), target)
    (again,) = read(json.dumps(value).encode(), target)

    assert lost == ""
    assert again.messages[0]["content"] == parts


def test_a_document_of_mistral_is_a_file_for_responses_and_gemini() -> None:
    request = chat_with({"type": "document_url", "document_url": PDF})

    responses, _ = converted(request, "openai-responses")
    gemini, _ = converted(request, "gemini")

    assert responses["input"][0]["content"] == [{"type": "input_file", "file_data": PDF}]
    assert gemini["contents"][0]["parts"] == [{"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}]


@pytest.mark.parametrize("target", ["gemini", "openai-responses", "anthropic"])
def test_a_part_without_a_counterpart_is_named_in_its_place(target: str) -> None:
    value, lost = converted(chat_with({"type": "video_url", "video_url": {"url": "https://example.org/a"}}), target)

    (again,) = read(json.dumps(value).encode(), target)

    assert lost == "message 0: content (video_url)"
    assert "video_url: left out" in text_of(again.messages[0])


def test_parts_and_items_that_are_not_known_are_kept_in_a_responses_request() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_video", "video": "a"}]},
        {"type": "hologram", "data": 1},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
    ]
    request = {"model": "gpt-5", "input": items}

    (conversation,) = read(json.dumps(request).encode())

    assert conversation.format == "openai-responses"
    assert with_messages(conversation, conversation.items) == request


def test_usage_of_codex_in_an_event_of_an_unknown_type_is_reported() -> None:
    lines = SAMPLES["codex session"][1].replace(b'"token_count"', b'"token_counts"')
    source = Source(lines)

    (conversation,) = read(source)

    assert not any(item.usage for item in conversation.items)
    assert "has usage in an event of the unknown type 'token_counts'" in str(source.skipped[0])


def test_parallel_calls_have_their_own_results_in_sharegpt() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": name})}}
        for name in ("a", "b")
    ]
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "a dog"},
        {"role": "tool", "tool_call_id": "a", "content": "a cat"},
        {"role": "assistant", "content": "A cat and a dog."},
    ]

    value, _ = converted({"model": "gpt-5", "messages": messages}, "sharegpt")
    (again,) = read(json.dumps(value).encode())

    assert check(again.messages) == []
    arguments = [message["tool_calls"][0]["function"]["arguments"] for message in again.messages[1:5:2]]
    assert list(map(json.loads, arguments)) == [{"at": "b"}, {"at": "a"}]
    assert [message["content"] for message in again.messages[2:6:2]] == ["a dog", "a cat"]


CUSTOM = {"tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin Patch"}}]}
DEPRECATED = {"function_call": {"name": "apply_patch", "arguments": '{"patch": "*** Begin Patch"}'}}


@pytest.mark.parametrize("target", ["gemini", "langchain", "sharegpt", "anthropic"])
@pytest.mark.parametrize(
    ("calls", "result"),
    [
        (CUSTOM, {"role": "tool", "tool_call_id": "c1"}),
        (DEPRECATED, {"role": "function", "name": "apply_patch"}),
    ],
)
def test_a_call_of_a_custom_tool_or_a_function_keeps_its_input(
    calls: dict[str, Any], result: dict[str, Any], target: str
) -> None:
    messages = [
        {"role": "user", "content": "Change it."},
        {"role": "assistant", "content": None, **calls},
        {**result, "content": "done"},
        {"role": "assistant", "content": "It is changed."},
    ]

    value, _ = converted({"model": "gpt-5", "messages": messages}, target)
    (again,) = read(json.dumps(value).encode(), target)

    assert [message["role"] for message in again.messages] == ["user", "assistant", "tool", "assistant"]
    assert call_names(again.messages[1]) == ["apply_patch"]
    assert "*** Begin Patch" in again.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert result_id(again.messages[2]) == call_ids(again.messages[1])[0]
    assert errors(check(again.messages, provider=formats()[target].provider)) == []
    if target == "gemini":
        assert value["contents"][2]["parts"][0]["functionResponse"]["name"] == "apply_patch"


def test_a_refusal_is_a_text_of_gemini() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "refusal": "No."}]

    value, _ = converted({"model": "gpt-5", "messages": messages}, "gemini")

    assert value["contents"][1] == {"role": "model", "parts": [{"text": "No."}]}


NOTHING_TO_REPORT = [
    name
    for name, (format_name, content) in SAMPLES.items()
    if format_name in {"openai-chat", "anthropic", "openai-responses", "gemini"} and b"custom_id" not in content
]


@pytest.mark.parametrize("sample", NOTHING_TO_REPORT)
@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "openai-responses", "gemini"])
def test_nothing_is_reported_as_lost_from_texts_and_calls_that_every_format_has(sample: str, target: str) -> None:
    conversation = next(read(SAMPLES[sample][1]))

    lost = convert(conversation, target).lost

    assert [line for line in lost if not line.startswith("fields of the conversation")] == []


def test_only_the_ids_of_parallel_calls_are_lost_in_sharegpt() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": f'{{"at":"{name}"}}'}}
        for name in ("a", "b")
    ]
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "a cat"},
        {"role": "tool", "tool_call_id": "b", "content": "a dog"},
        {"role": "assistant", "content": "A cat and a dog."},
    ]

    _, lost = converted({"model": "gpt-5", "messages": messages}, "sharegpt")

    assert lost == "message 1: tool_calls (id); message 2: tool_call_id; message 3: tool_call_id"


def test_details_that_a_chat_message_does_not_have_are_named_by_their_fields() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    thinking = {"type": "thinking", "thinking": "look", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "a cat", "is_error": False}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look.", **cached}]},
        {"role": "assistant", "content": [thinking, {**TOOL, **cached}]},
        {"role": "user", "content": [result]},
    ]

    _, lost = converted({"model": "claude-opus-4-5", "messages": messages}, "openai-chat")

    assert lost == (
        "message 0: details of the original format: cache_control; "
        "message 1: details of the original format: thinking, cache_control"
    )


SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
FUNCTION = {"name": "find_order", "description": "Find an order.", "parameters": SCHEMA}
REQUESTS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "max_completion_tokens": 100,
        "temperature": 0,
    },
    "openai-responses": {
        "model": "m",
        "input": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", **FUNCTION, "strict": False}],
        "max_output_tokens": 100,
        "temperature": 0,
    },
    "anthropic": {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"name": "find_order", "description": "Find an order.", "input_schema": SCHEMA}],
        "max_tokens": 100,
        "temperature": 0,
    },
    "gemini": {
        "model": "m",
        "contents": [{"role": "user", "parts": [{"text": "a"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "find_order", "description": "Find an order.", "parametersJsonSchema": SCHEMA}
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0},
    },
}


@pytest.mark.parametrize("source", REQUESTS)
@pytest.mark.parametrize("target", REQUESTS)
def test_the_tools_and_settings_of_a_request_are_converted(source: str, target: str) -> None:
    (conversation,) = read(json.dumps(REQUESTS[source]).encode(), source)

    result = convert(conversation, target)

    assert result.value == REQUESTS[target]
    assert result.lost == ()


def test_the_request_in_a_line_of_a_batch_keeps_its_tools() -> None:
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": REQUESTS["openai-chat"]}

    value, lost = converted(line, "anthropic")

    assert value == {**REQUESTS["anthropic"], "id": "1"}
    assert lost == "fields of the conversation: method, url"


def test_a_schema_of_gemini_with_types_in_capitals_is_a_json_schema() -> None:
    schema = {"type": "OBJECT", "properties": {"number": {"type": "INTEGER"}}}
    tools = [{"function_declarations": [{"name": "find_order", "description": "Find an order.", "parameters": schema}]}]

    value, lost = converted({**REQUESTS["gemini"], "tools": tools}, "openai-chat")

    assert (value["tools"], lost) == (REQUESTS["openai-chat"]["tools"], "")


def test_settings_and_tools_that_the_other_format_does_not_have_are_named() -> None:
    request = {**REQUESTS["anthropic"], "top_k": 5, "stop_sequences": ["x"]}
    tools = [*request["tools"], {"type": "web_search_20250305", "name": "web_search"}]

    value, lost = converted({**request, "tools": tools}, "openai-responses")

    assert value["tools"] == REQUESTS["openai-responses"]["tools"]
    assert lost == "fields of the conversation: tools, top_k, stop_sequences"


def test_the_instructions_of_a_response_are_named_as_lost() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}

    _, lost = converted({"id": "r", "object": "response", "instructions": "Be brief.", "output": [item]}, "openai-chat")

    assert lost == "fields of the conversation: instructions"


def test_the_earlier_name_of_the_limit_and_a_single_stop_sequence_of_chat_are_converted() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 100, "stop": "x"}

    value, lost = converted(request, "anthropic")

    assert (value["max_tokens"], value["stop_sequences"], lost) == (100, ["x"], "")
