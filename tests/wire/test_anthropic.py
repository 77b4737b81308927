import copy

import pytest
from hypothesis import given

from minutebook import view_of
from minutebook.wire.anthropic import BLOCKS_KEY, PROMPT_DIGEST_KEY, from_anthropic, to_anthropic, without_blocks
from tests.strategies import conversations

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
THOUGHT = [
    {"type": "thinking", "thinking": "Two files.", "signature": "abc="},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}},
]


def test_leading_system_messages_are_the_system_prompt():
    made = to_anthropic(
        [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}, USER]
    )

    assert made.system == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert made.messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def test_results_of_parallel_calls_are_one_user_message_with_what_the_user_then_said():
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}} for i in ("a", "b")]
    chat = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    chat += [{"role": "tool", "tool_call_id": i, "content": i} for i in ("b", "a")] + [USER]
    made = to_anthropic(chat).messages

    assert [message["role"] for message in made] == ["user", "assistant", "user"]
    assert [block["type"] for block in made[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert made[1]["content"][0] == {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}


def test_signed_thinking_goes_back_byte_for_byte():
    message = from_anthropic(THOUGHT)

    assert message["content"] == "Looking."
    assert message["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a.py"}'}
    assert to_anthropic([USER, message]).messages[1]["content"] == THOUGHT
    assert BLOCKS_KEY not in without_blocks(message)


def test_a_changed_message_goes_back_without_its_thinking():
    message = from_anthropic(THOUGHT)
    changed = {key: value for key, value in message.items() if key != "tool_calls"}

    assert to_anthropic([USER, changed]).messages[1]["content"] == [{"type": "text", "text": "Looking."}]


def test_plain_replies_keep_no_blocks():
    assert from_anthropic([{"type": "text", "text": "ok"}]) == {"role": "assistant", "content": "ok"}
    assert from_anthropic(THOUGHT[2:])["content"] is None
    assert BLOCKS_KEY not in from_anthropic(THOUGHT[1:])


def test_images_and_odd_arguments_are_carried_over():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
    made = to_anthropic(
        [
            {"role": "user", "content": [image, {"type": "text", "text": ""}]},
            {"role": "assistant", "tool_calls": [call]},
        ]
    ).messages

    assert made[0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    ]
    assert made[1]["content"][-1]["input"] == {"arguments": "{oops"}


@given(conversations(user_first=True))
def test_every_valid_view_becomes_alternating_messages_with_results_first(chat):
    before = copy.deepcopy(chat)
    made = to_anthropic(view_of(chat, provider="anthropic").messages).messages

    assert chat == before
    roles = [message["role"] for message in made]
    assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))]
    for message in made:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert all(block.get("text") != "" for block in message["content"])
        if "tool_result" in kinds:
            assert kinds[: kinds.count("tool_result")] == ["tool_result"] * kinds.count("tool_result")


@pytest.mark.parametrize("content", ["", " ", "\n\t", [{"type": "text", "text": " "}]], ids=repr)
def test_a_text_without_a_word_is_never_sent(content):
    asking = {"role": "user", "content": content}
    calling = {"role": "assistant", "content": content, "tool_calls": [CALL]}

    made = to_anthropic([asking, calling])

    assert made.messages[0]["content"] == [{"type": "text", "text": "[empty]"}]
    assert [block["type"] for block in made.messages[1]["content"]] == ["tool_use"]


def test_thinking_is_left_out_when_what_stood_before_it_has_changed():
    asked = [{"role": "user", "content": "Look."}]
    thought = {
        **from_anthropic([
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        ]),
        PROMPT_DIGEST_KEY: to_anthropic(asked).prompt,
    }  # fmt: skip
    result = {"role": "tool", "tool_call_id": "c1", "content": "A cat."}

    same = to_anthropic([*asked, thought, result])
    other = to_anthropic([{"role": "user", "content": "Look again."}, thought, result])

    assert [block["type"] for block in same.messages[1]["content"]] == ["thinking", "tool_use"]
    assert not same.unthought
    assert [block["type"] for block in other.messages[1]["content"]] == ["tool_use"]
    assert other.unthought


def test_a_mark_for_the_cache_does_not_change_what_thinking_came_after():
    plain = [{"role": "user", "content": [{"type": "text", "text": "Look."}]}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]}]

    assert to_anthropic(plain).prompt == to_anthropic(marked).prompt
    assert to_anthropic(plain).prompt != to_anthropic(plain, tools=[{"name": "look"}]).prompt
