"""The loopback provider refuses and accepts the same requests as the real providers."""

import anthropic
import openai
import pytest

from minutebook.testing import coding_session
from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, say, think

HELLO = {"role": "user", "content": "hello"}


def calls(*ids, **extra):
    tool_calls = [{"id": call_id, "type": "function", "function": {"name": "t", "arguments": "{}"}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls, **extra}


def result(call_id, text="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.fixture(scope="module", params=[True], ids=["strict"])
def chat(request):
    with (
        LoopbackProvider(ScriptedModel(otherwise="fine"), strict=request.param) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
    ):
        yield lambda messages: client.chat.completions.create(model="m", messages=messages)


def use(*ids, extra=()):
    blocks = [{"type": "tool_use", "id": call_id, "name": "t", "input": {}} for call_id in ids]
    return {"role": "assistant", "content": [*extra, *blocks]}


def results(*ids, extra=()):
    return {"role": "user", "content": [*({"type": "tool_result", "tool_use_id": call_id} for call_id in ids), *extra]}


def text(content):
    return {"type": "text", "text": content}


@pytest.fixture(scope="module", params=[True], ids=["strict"])
def send_messages(request):
    with (
        LoopbackProvider(ScriptedModel(otherwise="fine"), strict=request.param) as provider,
        anthropic.Anthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client,
    ):
        yield lambda messages, **options: client.messages.create(
            **{"model": "m", "max_tokens": 9, "messages": messages, **options}
        )


BAD_CHATS = {
    "no messages": ([], "empty array"),
    "unknown role": ([{"role": "robot", "content": "hi"}], "'robot' is none of"),
    "orphan result": ([HELLO, result("a")], "role 'tool' must answer a message with 'tool_calls'"),
    "missing result": ([HELLO, calls("a", "b"), result("a")], "needs a tool message for each 'tool_call_id'.* b"),
    "result too late": ([HELLO, calls("a"), HELLO, result("a")], "must directly follow"),
    "answered twice": ([HELLO, calls("a"), result("a"), result("a")], "duplicate value for 'tool_call_id'"),
    "ids repeated in one message": ([HELLO, calls("a", "a"), result("a"), result("a")], "duplicate 'id'"),
    "result without id": ([HELLO, calls("a"), {"role": "tool", "content": "x"}], "tool_call_id' is required"),
    "result for an unknown id": ([HELLO, calls("a"), result("a"), result("zzz")], "must answer a message"),
    "calls of the user": ([{**calls("a"), "role": "user", "content": "x"}], "only allowed on messages with role"),
    "null content": ([{"role": "user", "content": None}], "must be a string, not null"),
    "empty assistant": ([HELLO, {"role": "assistant", "content": None}], "must be a string, not null"),
    "no content": ([{"role": "user"}], "must be a string, not null"),
    "no parts": ([{"role": "user", "content": []}], "is an empty array"),
    "a text in place of a part": ([{"role": "user", "content": ["x"]}], "must be an object"),
    "a tool name with odd letters": (
        [HELLO, {**calls(), "tool_calls": [{"id": "a", "function": {"name": "bad name!", "arguments": ""}}]}],
        "does not match the pattern",
    ),
    "an author with a blank": ([{**HELLO, "name": "Ada Lovelace"}], "name' does not match"),
    "empty tool_calls": ([HELLO, {"role": "assistant", "content": "x", "tool_calls": []}], "leave it out"),
    "content of a wrong type": ([{"role": "user", "content": 5}], "a string or an array of parts"),
    "part of a wrong type": ([{"role": "user", "content": [{"type": "smell"}]}], "'smell' is none of"),
    "arguments that are no text": (
        [HELLO, {**calls(), "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": {}}}]}],
        "arguments' must be a string",
    ),
}


UNKNOWN_KEYS = {
    "messages[0].kind": [{**HELLO, "kind": "summary"}],
    "messages[0].content[0].cache_control": [
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}
    ],
    "messages[1].tool_calls[0].mood": [HELLO, {**calls(), "tool_calls": [{**calls("a")["tool_calls"][0], "mood": 3}]}],
    "messages[2].is_error": [HELLO, calls("a"), {**result("a"), "is_error": True}],
}


@pytest.mark.parametrize("param", UNKNOWN_KEYS)
def test_openai_refuses_unknown_keys(param, chat):
    with pytest.raises(openai.BadRequestError) as error:
        chat(UNKNOWN_KEYS[param])

    assert error.value.body == {
        "message": f"Unknown parameter: '{param}'.",
        "type": "invalid_request_error",
        "param": param,
        "code": "unknown_parameter",
    }


@pytest.mark.parametrize("name", BAD_CHATS)
def test_openai_refuses_invalid_messages(name, chat):
    messages, problem = BAD_CHATS[name]

    with pytest.raises(openai.BadRequestError, match=problem) as error:
        chat(messages)

    assert error.value.type == "invalid_request_error"
    assert error.value.param.startswith("messages")


GOOD_CHATS = {
    "a session": coding_session(turns=3),
    "system messages alone": [{"role": "system", "content": "You are kind."}],
    "the assistant first": [{"role": "assistant", "content": "Welcome."}, HELLO],
    "the assistant last": [HELLO, {"role": "assistant", "content": "Well,"}],
    "two users in a row": [HELLO, HELLO],
    "the keys of an answer": [HELLO, {"role": "assistant", "content": "x", "refusal": None, "annotations": []}],
    "an id used again in a later exchange": [HELLO, calls("a"), result("a"), HELLO, calls("a"), result("a")],
    "results in another order": [HELLO, calls("a", "b"), result("b"), result("a")],
    "arguments that are no JSON": [
        HELLO,
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{x"}}],
        },
        result("a"),
    ],
    "empty text": [{"role": "user", "content": ""}],
    "a developer": [{"role": "developer", "content": "x"}, HELLO],
}


@pytest.mark.parametrize("name", GOOD_CHATS)
def test_openai_accepts_valid_messages(name, chat):
    assert chat(GOOD_CHATS[name]).choices[0].message.content == "fine"


THOUGHT = {"type": "thinking", "thinking": "mine", "signature": "Zm9yZ2Vk"}
BAD_MESSAGES = {
    "no messages": ([], "at least one message is required"),
    "the assistant first": ([{"role": "assistant", "content": "hi"}, HELLO], 'first message must use the "user" role'),
    "unknown role": ([{"role": "tool", "content": "hi"}], "messages.0.role"),
    "a system message first": ([{"role": "system", "content": "x"}, HELLO], "top-level 'system' parameter"),
    "a system message after the assistant": (
        [HELLO, {"role": "assistant", "content": "x"}, {"role": "system", "content": "x"}, HELLO],
        "must follow a user message",
    ),
    "empty content": ([{"role": "user", "content": ""}], "non-empty content"),
    "no blocks": ([{"role": "user", "content": []}], "non-empty content"),
    "empty text": ([{"role": "user", "content": [text("")]}], "text content blocks must be non-empty"),
    "blank text": ([{"role": "user", "content": " \n"}], "contain non-whitespace text"),
    "unknown key": ([{**HELLO, "kind": "summary"}], "messages.0.kind: Extra inputs are not permitted"),
    "unknown key of a block": (
        [{"role": "user", "content": [{**text("x"), "mood": 3}]}],
        "messages.0.content.0.text.mood: Extra inputs are not permitted",
    ),
    "unknown block": ([{"role": "user", "content": [{"type": "smell"}]}], "unknown block type 'smell'"),
    "a call of the user": ([{**use("a"), "role": "user"}], "`tool_use` blocks cannot be in user messages"),
    "a result of the assistant": (
        [HELLO, {**results("a"), "role": "assistant"}, HELLO],
        "`tool_result` blocks cannot be in assistant messages",
    ),
    "a call without input": (
        [HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t"}]}, results("a")],
        "tool_use.input: field required",
    ),
    "missing result": ([HELLO, use("a", "b"), results("a")], "`tool_result` blocks immediately after: b"),
    "missing result at the end": ([HELLO, use("a")], "`tool_result` blocks immediately after: a"),
    "results in two messages": ([HELLO, use("a", "b"), results("a"), results("b")], "immediately after: b"),
    "result too late": ([HELLO, use("a"), HELLO, results("a")], "immediately after: a"),
    "orphan result": ([results("a")], "unexpected `tool_use_id` in a `tool_result` block: a"),
    "result for another id": ([HELLO, use("a"), results("a", "b")], "unexpected `tool_use_id`.*: b"),
    "answered twice": ([HELLO, use("a"), results("a", "a")], "more than one `tool_result` for a"),
    "text before results": (
        [HELLO, use("a"), {"role": "user", "content": [text("so"), *results("a")["content"]]}],
        "must come before any other content",
    ),
    "an id used again": ([HELLO, use("a"), results("a"), use("a"), results("a")], "ids must be unique: a"),
    "a tool name with odd letters": (
        [HELLO, {"role": "assistant", "content": [{**use("a")["content"][0], "name": "bad name!"}]}, results("a")],
        "tool_use.name: String should match pattern",
    ),
    "an id with odd letters": ([HELLO, use("a b"), results("a b")], "letters, digits"),
    "forged thinking": ([HELLO, use("a", extra=[THOUGHT]), results("a")], "messages.1.content.0: invalid `signature`"),
    "the assistant last": ([HELLO, {"role": "assistant", "content": "Well,"}], "must end with a user message"),
    "a result that holds a call": (
        [
            HELLO,
            use("a"),
            {"role": "user", "content": [{**results("a")["content"][0], "content": use("b")["content"]}]},
        ],
        "tool_result.content.0: must be one of",
    ),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_anthropic_refuses_invalid_messages(name, send_messages):
    messages, problem = BAD_MESSAGES[name]

    with pytest.raises(anthropic.BadRequestError, match=problem) as error:
        send_messages(messages)

    assert error.value.type == "invalid_request_error"


GOOD_MESSAGES = {
    "calls and results": [HELLO, use("a", "b"), results("b", "a", extra=[text("and?")])],
    "two users in a row": [HELLO, HELLO],
    "a system message after the user": [HELLO, {"role": "system", "content": "Be brief."}],
    "an empty result": [HELLO, use("a"), results("a")],
    "server tools": [
        HELLO,
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]},
        HELLO,
    ],
}


@pytest.mark.parametrize("name", GOOD_MESSAGES)
def test_anthropic_accepts_valid_messages(name, send_messages):
    assert send_messages(GOOD_MESSAGES[name]).content[0].text == "fine"


def test_duplicate_tool_names_are_refused(send_messages):
    tool = {"name": "t", "input_schema": {"type": "object"}}

    with pytest.raises(anthropic.BadRequestError, match="tool names must be unique"):
        send_messages([HELLO], tools=[tool, tool])


@pytest.mark.parametrize("chat", [False], indirect=True, ids=["lenient"])
@pytest.mark.parametrize("send_messages", [False], indirect=True, ids=["lenient"])
def test_without_strict_invalid_conversations_are_accepted(chat, send_messages):
    assert chat([HELLO, result("a")]).choices[0].message.content == "fine"
    assert send_messages([use("a")]).content[0].text == "fine"


def thinking_loop(edit, *, system=None, **options):
    """Get an answer with thinking and a call, and send its blocks back as `edit` returns them."""
    script = ScriptedModel(think("Let me see.") + say("Yes.") + call("t"), "done")
    with (
        LoopbackProvider(script, **options) as provider,
        anthropic.Anthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client,
    ):
        ask = {"model": "m", "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        first = client.messages.create(**ask, messages=[HELLO], **({"system": "Be kind."} if system else {}))
        blocks = edit([block.model_dump(exclude_none=True) for block in first.content])
        messages = [HELLO, {"role": "assistant", "content": blocks}, results("call_1")]
        return client.messages.create(**ask, messages=messages, **({"system": system} if system else {}))


def test_signed_thinking_is_accepted_unchanged():
    assert thinking_loop(lambda blocks: blocks).content[0].text == "done"


def test_thinking_whose_text_was_changed_is_refused():
    with pytest.raises(anthropic.BadRequestError, match="invalid `signature` in `thinking` block"):
        thinking_loop(lambda blocks: [{**blocks[0], "thinking": "Let me see!"}, *blocks[1:]])


def test_thinking_whose_signature_was_changed_is_refused():
    with pytest.raises(anthropic.BadRequestError, match="invalid `signature` in `thinking` block"):
        thinking_loop(lambda blocks: [{**blocks[0], "signature": blocks[0]["signature"][:-8]}, *blocks[1:]])


def test_thinking_is_required_with_the_results_of_its_calls():
    with pytest.raises(anthropic.BadRequestError, match=r"messages.1.content.0.type: expected `thinking`.*`text`"):
        thinking_loop(lambda blocks: blocks[1:])


def test_thinking_at_the_end_of_a_message_is_refused():
    with pytest.raises(anthropic.BadRequestError, match="final block of an assistant message cannot be `thinking`"):
        thinking_loop(lambda blocks: [*blocks, blocks[0]])


def test_a_signature_is_accepted_by_another_server(send_messages):
    with (
        LoopbackProvider(ScriptedModel(think("Hm.") + call("t"))) as old,
        anthropic.Anthropic(base_url=old.anthropic_url, api_key="any", max_retries=0) as client,
    ):
        blocks = client.messages.create(model="m", max_tokens=9, messages=[HELLO]).to_dict()["content"]

    assert send_messages([HELLO, {"role": "assistant", "content": blocks}, results("call_1")]).content[0].text == "fine"


def test_preserved_thinking_is_refused_after_another_prompt():
    assert thinking_loop(lambda blocks: blocks, system="Be kind.", preserved_thinking=True).content[0].text == "done"
    assert thinking_loop(lambda blocks: blocks, system="Be quick.").content[0].text == "done"
    with pytest.raises(anthropic.BadRequestError, match="whose preceding prompt has changed"):
        thinking_loop(lambda blocks: blocks, system="Be quick.", preserved_thinking=True)
