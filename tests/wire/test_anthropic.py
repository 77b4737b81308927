import copy

import pytest
from hypothesis import given

from minutebook import view_of
from minutebook.testing.provider.anthropic import blocks_of
from minutebook.wire.anthropic import BLOCKS_KEY, PROMPT_DIGEST_KEY, from_anthropic, to_anthropic, without_blocks
from tests.strategies import conversations

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
THINKING_REPLY = [
    {"type": "thinking", "thinking": "Two files.", "signature": "abc="},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}},
]


def test_leading_system_messages_are_the_system_prompt():
    converted = to_anthropic(
        [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}, USER]
    )

    assert converted.system == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert converted.messages == [USER]


def test_results_of_parallel_calls_are_one_user_message_with_the_next_user_text():
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}} for i in ("a", "b")]
    chat = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    chat += [{"role": "tool", "tool_call_id": i, "content": i} for i in ("b", "a")] + [USER]
    converted = to_anthropic(chat).messages

    assert [message["role"] for message in converted] == ["user", "assistant", "user"]
    assert [block["type"] for block in converted[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert converted[1]["content"][0] == {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}


def test_signed_thinking_is_sent_back_byte_for_byte():
    message = from_anthropic(THINKING_REPLY)

    assert message["content"] == "Looking."
    assert message["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a.py"}'}
    assert to_anthropic([USER, message]).messages[1]["content"] == THINKING_REPLY
    assert BLOCKS_KEY not in without_blocks(message)


def test_a_changed_message_is_sent_without_its_thinking():
    message = from_anthropic(THINKING_REPLY)
    changed = {key: value for key, value in message.items() if key != "tool_calls"}

    assert to_anthropic([USER, changed]).messages[1]["content"] == "Looking."


def test_plain_replies_store_no_blocks():
    assert from_anthropic([{"type": "text", "text": "ok"}]) == {"role": "assistant", "content": "ok"}
    assert from_anthropic(THINKING_REPLY[2:])["content"] is None
    assert BLOCKS_KEY not in from_anthropic(THINKING_REPLY[1:])


def test_images_and_invalid_arguments_are_converted():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
    converted = to_anthropic(
        [
            {"role": "user", "content": [image, {"type": "text", "text": ""}]},
            {"role": "assistant", "tool_calls": [call]},
        ]
    ).messages

    assert converted[0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    ]
    assert converted[1]["content"][-1]["input"] == {"arguments": "{oops"}


@given(conversations(user_first=True))
def test_every_valid_view_becomes_alternating_messages_with_results_first(chat):
    before = copy.deepcopy(chat)
    converted = view_of(chat, provider="anthropic").messages

    assert chat == before
    roles = [message["role"] for message in converted]
    assert roles == [("user", "assistant")[index % 2] for index in range(len(roles))]
    for message in converted:
        blocks = blocks_of(message)
        kinds = [block["type"] for block in blocks]
        assert kinds
        assert all(block.get("text") != "" for block in blocks)
        if "tool_result" in kinds:
            assert kinds[: kinds.count("tool_result")] == ["tool_result"] * kinds.count("tool_result")


@pytest.mark.parametrize("content", ["", " ", "\n\t", [{"type": "text", "text": " "}]], ids=repr)
def test_a_blank_text_is_never_sent(content):
    user = {"role": "user", "content": content}
    assistant = {"role": "assistant", "content": content, "tool_calls": [CALL]}

    converted = to_anthropic([user, assistant])

    assert converted.messages[0]["content"] == [{"type": "text", "text": "[empty]"}]
    assert [block["type"] for block in converted.messages[1]["content"]] == ["tool_use"]


def test_thinking_is_left_out_when_an_earlier_message_has_changed():
    prompt = [{"role": "user", "content": "Look."}]
    reply = {
        **from_anthropic([
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        ]),
        PROMPT_DIGEST_KEY: to_anthropic(prompt).prompt_digest,
    }  # fmt: skip
    result = {"role": "tool", "tool_call_id": "c1", "content": "A cat."}

    same = to_anthropic([*prompt, reply, result])
    other = to_anthropic([{"role": "user", "content": "Look again."}, reply, result])

    assert [block["type"] for block in same.messages[1]["content"]] == ["thinking", "tool_use"]
    assert not same.thinking_dropped
    assert [block["type"] for block in other.messages[1]["content"]] == ["tool_use"]
    assert other.thinking_dropped


def test_cache_control_does_not_change_the_prompt_digest():
    plain = [{"role": "user", "content": [{"type": "text", "text": "Look."}]}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]}]

    assert to_anthropic(plain).prompt_digest == to_anthropic(marked).prompt_digest
    assert to_anthropic(plain).prompt_digest != to_anthropic(plain, tools=[{"name": "look"}]).prompt_digest
