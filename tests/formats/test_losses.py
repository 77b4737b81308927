"""What `convert` reports: every field, message and part of a message that is not in the output."""

import json
from typing import Any

from minutebook.formats import Source, convert, read

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
TOOL = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}


def converted(request: dict[str, Any], target: str) -> tuple[Any, str]:
    (conversation,) = read(json.dumps(request).encode())
    result = convert(conversation, target)
    return result.value, "; ".join(result.lost)


def test_fields_of_a_request_that_are_not_written_are_named() -> None:
    request = {"model": "gpt-5", "temperature": 0, "tools": [{"type": "function", "function": {"name": "f"}}]}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    _, lost = converted({**request, "messages": messages}, "anthropic")

    assert lost == "fields of the conversation: temperature, tools"


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
