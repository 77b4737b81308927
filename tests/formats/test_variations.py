"""Files as other versions of the programs write them, and parts of files that the samples do not have."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from minutebook import check
from minutebook.agent.messages import usage_from
from minutebook.errors import UnreadableInput
from minutebook.formats import Source, SourceConversation, convert, detect, formats, read
from minutebook.formats.registry import with_messages
from minutebook.record.message import call_ids, is_result, result_id, text_of
from tests.formats.samples import CONTENTS, ITEMS, SAMPLES, TIME

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
PART = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
USER = {"role": "user", "content": "hello"}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read_one(value: Any, name: str) -> SourceConversation:
    """The conversation of a file, which must be in the format of that name and understood completely."""
    source = Source(value if isinstance(value, bytes) else json.dumps(value).encode())
    assert detect(source).name == name
    (conversation,) = read(source)
    assert source.skipped == []
    return conversation


def database(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


@pytest.mark.parametrize("in_request", [False, True])
def test_messages_of_vercel_version_4_may_have_only_a_text(*, in_request: bool) -> None:
    tool = {"state": "result", "toolCallId": "c1", "toolName": "look", "args": {}, "result": "seen"}
    file = {"name": "a.png", "contentType": "image/png", "url": "data:image/png;base64,AAAA"}
    messages = [
        {"id": "1", **USER, "experimental_attachments": [file]},
        {"id": "2", "role": "assistant", "content": "", "toolInvocations": [tool]},
        {"id": "3", "role": "assistant", "content": "done"},
    ]
    conversation = read_one({"id": "x", "messages": messages} if in_request else messages, "vercel-ui")

    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert IMAGE in conversation.messages[0]["content"]


def test_sessions_of_two_users_with_the_same_id_are_separate(tmp_path: Path) -> None:
    path = database(
        tmp_path / "adk.db",
        """CREATE TABLE sessions(app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time TEXT, update_time TEXT);
        CREATE TABLE events(id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, author TEXT, timestamp TEXT, content TEXT,
          usage_metadata TEXT);
        INSERT INTO sessions VALUES ('app', 'ada', 's', '{}', '', ''), ('app', 'bob', 's', '{}', '', '');
        INSERT INTO events VALUES
          ('1', 'app', 'ada', 's', 'user', '2026-03-01', '{"role": "user", "parts": [{"text": "of ada"}]}', NULL),
          ('2', 'app', 'bob', 's', 'user', '2026-03-01', '{"role": "user", "parts": [{"text": "of bob"}]}', NULL),
          ('3', 'app', 'ada', 's', 'agent', '2026-03-01', '{"role": "model", "parts": [{"text": "hi ada"}]}',
           '{"prompt_token_count": 3, "candidates_token_count": 4}');""",
    )
    ada, bob = read(path)

    assert [text_of(message) for message in ada.messages] == ["of ada", "hi ada"]
    assert [text_of(message) for message in bob.messages] == ["of bob"]
    assert (usage_from(ada.items[1].usage).input_tokens, usage_from(ada.items[1].usage).output_tokens) == (3, 4)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"functionResponse": {"response": {"output": "seen"}}}, "seen"),
        ("seen", "seen"),
        ([{"functionResponse": {"response": {"output": "seen"}}}, PART], [{"type": "text", "text": "seen"}, IMAGE]),
    ],
)
def test_contents_of_gemini_cli_may_be_a_text_a_part_or_a_list(result: Any, expected: Any) -> None:
    tool = {"id": "c1", "name": "look", "args": {}, "status": "success", "timestamp": TIME, "result": result}
    messages = [
        {"id": "1", "timestamp": TIME, "type": "user", "content": {"text": "hello"}},
        {"id": "2", "timestamp": TIME, "type": "gemini", "content": {"text": "I look."}, "toolCalls": [tool]},
    ]
    conversation = read_one({"sessionId": "s", "projectHash": "p", "messages": messages}, "gemini-cli")

    assert text_of(conversation.messages[0]) == "hello"
    assert conversation.messages[2]["content"] == expected
    assert check(conversation.messages, provider=formats()["gemini-cli"].provider) == []


def test_a_saved_checkpoint_of_gemini_cli_is_read() -> None:
    conversation = read_one({"history": CONTENTS, "authType": "gemini-api-key"}, "gemini-cli")

    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert [item.place for item in conversation.items] == [f"history[{index}]" for index in range(4)]


@pytest.mark.parametrize("name", ["gemini", "adk"])
def test_null_fields_of_a_part_of_gemini_are_fields_that_are_not_set(name: str) -> None:
    nulls = dict.fromkeys(("text", "inline_data", "file_data", "function_call", "function_response", "thought"))
    image = {"mime_type": "image/png", "data": "AAAA", "display_name": None}
    function_call = {"id": "c1", "name": "look", "args": {}, "partial_args": None}
    response = {"id": "c1", "name": "look", "response": {"output": "seen"}, "parts": None}
    contents = [
        {"role": "user", "parts": [{**nulls, "text": "look"}, {**nulls, "inline_data": image}]},
        {"role": "model", "parts": [{**nulls, "function_call": function_call}]},
        {"role": "user", "parts": [{**nulls, "function_response": response}]},
        {"role": "model", "parts": [{**nulls, "text": "done"}]},
    ]
    events = [{"author": content["role"], "content": content} for content in contents]
    conversation = read_one(contents if name == "gemini" else {"app_name": "a", "events": events}, name)

    assert conversation.messages[0]["content"] == [{"type": "text", "text": "look"}, IMAGE]
    assert [message["content"] for message in conversation.messages[1:]] == [None, "seen", "done"]
    assert [lost for lost in convert(conversation, "openai-chat").lost if lost.startswith("message")] == []


def test_a_result_that_gemini_cli_repeats_in_a_message_of_the_user_is_one_result() -> None:
    def response(call_id: str, text: str) -> dict[str, Any]:
        return {"functionResponse": {"id": call_id, "name": "look", "response": {"output": text}}}

    def line(name: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"id": name, "timestamp": TIME, "type": kind, "content": content, **more}

    tool = {"id": "c1", "name": "look", "args": {}, "status": "success", "result": [response("c1", "seen"), PART]}
    unanswered = {"id": "c2", "name": "look", "args": {}, "status": "executing"}
    session = lines(
        {"sessionId": "s", "projectHash": "p"},
        line("1", "user", [{"text": "look"}]),
        line("2", "gemini", "", toolCalls=[tool, unanswered]),
        line("3", "user", [{"text": "hurry"}, response("c1", "seen"), PART, response("c2", "nothing")]),
        line("4", "gemini", "done"),
    )
    conversation = read_one(session, "gemini-cli")

    assert [message["role"] for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert [result_id(message) for message in conversation.messages[2:4]] == ["c1", "c2"]
    assert conversation.messages[2]["content"] == [{"type": "text", "text": "seen"}, IMAGE]
    assert conversation.messages[4] == {"role": "user", "content": "hurry"}


def test_a_compaction_of_opencode_is_a_fold() -> None:
    def message(role: str, *parts: Any, **info: Any) -> dict[str, Any]:
        return {"info": {"role": role, **info}, "parts": list(parts)}

    text = {"type": "text", "text": "read it"}
    file = {"type": "file", "mime": "text/plain", "url": "file:///a.txt", "filename": "a.txt"}
    conversation = read_one(
        {
            "info": {"id": "s"},
            "messages": [
                message("user", text, {"type": "text", "text": "no", "ignored": True}, file, summary={"diffs": []}),
                message("assistant", {"type": "text", "text": "It is long."}),
                message("user", {"type": "compaction", "auto": True}),
                message("assistant", {"type": "text", "text": "They read a file."}, summary=True),
                message("user", {"type": "text", "text": "Continue"}),
            ],
        },
        "opencode",
    )

    assert [text_of(each) for each in conversation.messages] == [
        "read it",
        "It is long.",
        "What did we do so far?",
        "They read a file.",
        "Continue",
    ]
    (fold,) = conversation.folds
    assert (fold.start, fold.stop, fold.shown) == (0, 2, ())


def test_each_step_of_opencode_has_its_usage() -> None:
    def tokens(count: int) -> dict[str, Any]:
        return {"input": count, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}

    def step(text: str, count: int) -> list[dict[str, Any]]:
        parts = [{"type": "text", "text": text}] if text else []
        return [{"type": "step-start"}, *parts, {"type": "step-finish", "tokens": tokens(count)}]

    info = {"role": "assistant", "modelID": "m", "tokens": tokens(7)}
    message = {"info": info, "parts": [*step("one", 5), *step("two", 7), *step("", 9)]}
    conversation = read_one({"info": {"id": "s"}, "messages": [message]}, "opencode")

    assert [usage_from(item.usage).input_tokens for item in conversation.items] == [5, 7]


def test_calls_without_ids_get_ids_of_their_own() -> None:
    call = {"name": "look", "args": {}, "id": None, "type": "tool_call"}
    conversation = read_one(
        [
            {"type": "human", "data": {"content": "hello"}},
            {"type": "ai", "data": {"content": "", "tool_calls": [call, call]}},
            {"type": "tool", "data": {"content": "one", "tool_call_id": None}},
            {"type": "tool", "data": {"content": "two", "tool_call_id": None}},
        ],
        "langchain",
    )

    results = [result_id(message) for message in conversation.messages if is_result(message)]
    assert results == call_ids(conversation.messages[1])
    assert check(conversation.messages) == []


@pytest.mark.parametrize("name", ["sharegpt", "langchain"])
def test_a_changed_conversation_keeps_the_fields_that_chat_messages_do_not_have(name: str) -> None:
    ai = {"content": "hi", "id": "a", "response_metadata": {"model_name": "m"}, "usage_metadata": {"input_tokens": 3}}
    messages = [{"type": "human", "data": {"content": "hello", "name": "ada"}}, {"type": "ai", "data": ai}]
    turns = [{"from": "human", "value": "hello", "weight": 1}, {"from": "gpt", "value": "hi", "loss": False}]
    fields = {"id": "x", "source": "web", "system": "Be brief."} if name == "sharegpt" else {"id": "x", "meta": 5}
    list_name, values = ("conversations", turns) if name == "sharegpt" else ("messages", messages)
    conversation = read_one({**fields, list_name: values}, name)

    assert with_messages(conversation, conversation.items) == {**fields, list_name: values}
    assert with_messages(conversation, conversation.items[:-1]) == {**fields, list_name: values[:-1]}


def test_a_changed_anthropic_request_keeps_the_fields_of_its_messages() -> None:
    request = {
        "model": "claude-opus-4-6",
        "system": "Be brief.",
        "messages": [
            {**USER, "id": "m1"},
            {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "id": "m2", "unknown": [1]},
        ],
    }
    conversation = read_one(request, "anthropic")

    assert with_messages(conversation, conversation.items) == request


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anthropic", {"system": "s", "messages": [USER, {"role": "assistant", "content": [{"type": "new", "a": 1}]}]}),
        ("anthropic", {"system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "new"}]}]}),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": "AAAA"}}]}]}),
        ("openai-responses", {"model": "m", "input": [USER, {"role": "assistant", "content": "hi", "phase": "final_answer"}]}),
        ("openai-responses", {"model": "m", "input": [*ITEMS, {**USER, "id": "m1", "new": [1]}]}),
        ("openai-responses", {"model": "m", "input": [{"type": "message", "role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]}),
        ("openai-responses", {"model": "m", "instructions": "", "input": [{"type": "message", "role": "system", "content": []}, ITEMS[0]]}),
        ("gemini", {"contents": [{"parts": [{"text": "hello"}]}]}),
        ("gemini", {"contents": [{"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}, {"text": "a"}]}]}),
    ],
)  # fmt: skip
def test_a_changed_request_keeps_what_its_api_may_have(name: str, value: Any) -> None:
    conversation = read_one(value, name)

    assert with_messages(conversation, conversation.items) == value


def test_images_in_results_of_langchain_are_images() -> None:
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    conversation = read_one(
        [
            {"type": "human", "data": {"content": "hello"}},
            {
                "type": "ai",
                "data": {"content": [{"type": "thinking", "thinking": "hm"}, call], "tool_calls": [call]},
            },
            {"type": "tool", "data": {"content": [{"type": "text", "text": "seen"}, IMAGE], "tool_call_id": "c1"}},
            {"type": "ai", "data": {"content": [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]}},
        ],
        "langchain",
    )

    _, answer, result, last = conversation.messages
    assert (answer["content"], answer["reasoning_content"]) == (None, "hm")
    assert result["content"] == [{"type": "text", "text": "seen"}, IMAGE]
    assert last["content"] == [IMAGE]


@pytest.mark.parametrize("uses_items", [False, True])
def test_steps_of_mini_swe_agent_have_times_usage_and_an_exit(*, uses_items: bool) -> None:
    chat_usage = {"prompt_tokens": 5, "completion_tokens": 2}
    extra = {"timestamp": 1772359200.5, "response": {"model": "m", "usage": chat_usage}}
    function = {"name": "bash", "arguments": "{}"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    steps: list[dict[str, Any]] = [{**call, "extra": extra}, {"role": "tool", "tool_call_id": "c1", "content": "out"}]
    if uses_items:
        item = {"type": "function_call", "call_id": "c1", **function}
        usage = {"input_tokens": 5, "output_tokens": 2}
        response = {"object": "response", "output": [item], "model": "m", "usage": usage}
        steps = [{**response, "extra": extra}, {"type": "function_call_output", "call_id": "c1", "output": "out"}]
    info = {"exit_status": "Submitted", "model_stats": {"api_calls": 1}}
    conversation = read_one(
        {"info": info, "messages": [USER, *steps, {"role": "exit", "content": "diff"}]}, "swe-agent"
    )

    answer = conversation.items[1]
    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool"]
    assert (answer.model, usage_from(answer.usage).input_tokens) == ("m", 5)
    assert answer.at is not None
    assert check(conversation.messages) == []


def test_events_of_openhands_have_images_models_usage_and_the_original_arguments() -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 4}
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    response = {"id": "r1", "model": "m", "usage": usage, "choices": [{"message": {"tool_calls": [call]}}]}
    metadata = {"function_name": "bash", "tool_call_id": "c1", "model_response": response}
    urls = [IMAGE["image_url"]["url"]]  # type: ignore[index]
    conversation = read_one(
        [
            {"id": 1, "source": "user", "action": "message", "args": {"content": "look", "image_urls": urls}},
            {"id": 2, "source": "agent", "action": "run", "args": {"hidden": False}, "tool_call_metadata": metadata},
            {"id": 3, "source": "agent", "observation": "run", "content": "a", "tool_call_metadata": metadata},
        ],
        "openhands",
    )

    assert IMAGE in conversation.messages[0]["content"]
    assert conversation.messages[1]["tool_calls"] == [call]
    assert [(item.model, item.usage) for item in conversation.items] == [(None, None), ("m", usage), (None, None)]


def test_a_claude_ai_export_with_parents_has_branches() -> None:
    def message(name: str, parent: str, sender: str) -> dict[str, Any]:
        return {"uuid": name, "parent_message_uuid": parent, "sender": sender, "text": name}

    messages = [message("q", "0", "human"), message("old", "q", "assistant"), message("new", "q", "assistant")]
    current, branch = read(json.dumps([{"uuid": "c", "chat_messages": messages}]).encode())

    assert [text_of(each) for each in current.messages] == ["q", "new"]
    assert [text_of(each) for each in branch.messages] == ["q", "old"]
    assert (current.id, branch.id, branch.branch_of) == ("c", "c.old", "c")


def test_contents_of_chatgpt_keep_all_their_texts() -> None:
    contents = [
        {"content_type": "user_editable_context", "user_profile": "A profile", "user_instructions": "Be brief."},
        {"content_type": "tether_quote", "title": "A page", "url": "http://a", "text": "quoted"},
        {"content_type": "multimodal_text", "parts": [{"content_type": "audio_transcription", "text": "spoken"}]},
    ]
    names = ["root", "a", "b", "c"]
    messages = [None, *({"author": {"role": "user"}, "content": content} for content in contents)]
    mapping = {
        name: {"parent": None if index == 0 else names[index - 1], "message": messages[index]}
        for index, name in enumerate(names)
    }
    conversation = read_one([{"id": "x", "mapping": mapping, "current_node": "c"}], "chatgpt")

    texts = ["A profile\nBe brief.", "A page\nhttp://a\nquoted", "spoken"]
    assert [text_of(message) for message in conversation.messages] == texts


def test_one_damaged_row_does_not_stop_a_session_of_openai_agents(tmp_path: Path) -> None:
    rows = [USER, {"__enc__": 1}, ITEMS[-1]]
    path = database(
        tmp_path / "agents.db",
        "CREATE TABLE agent_sessions(session_id TEXT, created_at TEXT);"
        "CREATE TABLE agent_messages(id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);"
        "INSERT INTO agent_sessions VALUES ('s', '2026-03-01');"
        + "".join(
            f"INSERT INTO agent_messages VALUES ({index}, 's', '{json.dumps(row)}', '2026-03-01 10:00:0{index}');"
            for index, row in enumerate(rows)
        ),
    )
    source = Source(path)
    (conversation,) = read(source)

    assert [item.place for item in conversation.items] == ["agent_messages 0", "agent_messages 2"]
    assert [part.place for part in source.skipped] == ["agent_messages 1"]
    assert conversation.items[1].at is not None
    assert conversation.items[1].at.second == 2


def test_responses_of_llm_without_a_conversation_are_read(tmp_path: Path) -> None:
    path = database(
        tmp_path / "logs.db",
        """CREATE TABLE conversations(id TEXT, name TEXT, model TEXT);
        CREATE TABLE responses(id TEXT, model TEXT, prompt TEXT, system TEXT, response TEXT, conversation_id TEXT,
          datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER, token_details TEXT);
        INSERT INTO conversations VALUES ('c', 'named', 'm');
        INSERT INTO responses VALUES ('1', 'm', 'q', 'Be brief.', 'a', 'c', '2026-03-01', 3, 1, '{"prompt_tokens_details": {"cached_tokens": 2}}'),
          ('2', 'm', 'q2', 'Be long.', 'a2', 'c', '2026-03-01', 3, 1, NULL),
          ('3', 'm', 'alone', NULL, 'a3', NULL, '2026-03-01', 3, 1, NULL);""",
    )
    source = Source(path)
    named, alone = read(source)

    assert usage_from(named.items[2].usage).cached_tokens == 2
    assert [text_of(message) for message in alone.messages] == ["alone", "a3"]
    assert [str(part) for part in source.skipped] == ["response 2, system: is not that of the first request"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "langchain",
            [{"type": "ai", "data": {"content": "a", "usage_metadata": {"input_tokens": 5, "output_tokens": 1, "input_token_details": {"cache_read": 3}}}}],
            (5, 3),
        ),
        (
            "pydantic-ai",
            [{"kind": "response", "parts": [], "usage": {"request_tokens": 5, "response_tokens": 1, "cache_read_tokens": 3}}],
            (5, 3),
        ),
        (
            "bedrock",
            {"output": {"message": {"role": "assistant", "content": [{"text": "a"}]}}, "stopReason": "end_turn", "usage": {"inputTokens": 2, "outputTokens": 1, "cacheReadInputTokens": 3}},
            (5, 3),
        ),
        (
            "openai-responses",
            {"custom_id": "x", "response": {"body": {"object": "response", "output": ITEMS[-1:], "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 3}}}}},
            (5, 3),
        ),
        (
            "anthropic",
            {"custom_id": "x", "result": {"type": "succeeded", "message": {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": [{"type": "text", "text": "a"}], "usage": {"input_tokens": 2, "cache_read_input_tokens": 3}}}},
            (5, 3),
        ),
    ],
)  # fmt: skip
def test_the_usage_of_a_response_is_understood(name: str, value: Any, expected: tuple[int, int]) -> None:
    usage = usage_from(read_one(value, name).items[-1].usage)

    assert (usage.input_tokens, usage.cached_tokens) == expected


def test_requests_in_a_batch_of_the_responses_api_are_written_back() -> None:
    request = {"custom_id": "x", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": ITEMS}}
    conversation = read_one(lines(request, {**request, "custom_id": "y"})[: len(lines(request))], "openai-responses")

    assert conversation.id == "x"
    assert with_messages(conversation, conversation.items) == request


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": [{"new": 1}]}]}),
        ("bedrock", {"messages": [{"role": "user", "content": [{"text": "q"}]}, {"role": "assistant", "content": [{"new": 1}]}]}),
        ("openai-responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}, {"type": "input_audio", "input_audio": {}}]}]}),
    ],
)  # fmt: skip
def test_a_request_with_an_unknown_part_has_its_format(name: str, value: Any) -> None:
    read_one(value, name)


def test_the_first_line_of_an_old_codex_session_decides_its_format() -> None:
    conversation = read_one(lines({"id": "s", "timestamp": TIME, "instructions": "Be brief."}, *ITEMS), "codex")

    assert (conversation.id, text_of(conversation.messages[0])) == ("s", "Be brief.")


def test_items_after_the_lines_of_a_codex_session_are_reported() -> None:
    header = {"timestamp": TIME, "type": "session_meta", "payload": {"id": "s"}}
    source = Source(lines(header, {"timestamp": TIME, "type": "response_item", "payload": ITEMS[0]}, *ITEMS))

    assert sum(len(each.items) for each in read(source, "codex")) == 1
    assert len(source.skipped) == len(ITEMS)


def test_turns_that_codex_has_rolled_back_are_a_branch() -> None:
    def line(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": TIME, "type": kind, "payload": payload}

    def turn(text: str) -> list[dict[str, Any]]:
        return [
            line("response_item", {"role": role, "type": "message", "content": text}) for role in ("user", "assistant")
        ]

    rollback = line("event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    session = [line("session_meta", {"id": "s"}), *turn("one"), *turn("wrong"), rollback, *turn("right")]
    current, branch = read(lines(*session))

    assert [text_of(message) for message in current.messages] == ["one", "one", "right", "right"]
    assert [text_of(message) for message in branch.messages] == ["one", "one", "wrong", "wrong"]
    assert (branch.id, branch.branch_of) == ("s.1", "s")


def test_a_history_of_aider_may_have_the_line_ends_of_windows() -> None:
    text = "# aider chat started at 2026-03-01 10:00:00\n\n#### first  \n#### second  \n\nIt is done.\n"
    conversation = read_one(text.replace("\n", "\r\n").encode(), "aider")

    assert [text_of(message) for message in conversation.messages] == ["first\nsecond", "It is done."]
    assert conversation.created_at is not None


def test_a_thread_of_llm_is_read_instead_of_the_conversation_that_it_continues(tmp_path: Path) -> None:
    path = tmp_path / "logs.db"
    path.write_bytes(SAMPLES["llm database with threads"][1])
    database(
        path,
        """
        INSERT INTO conversations VALUES ('c-1', 'earlier', 'm'), ('c-2', 'other', 'm');
        INSERT INTO responses VALUES ('r1', 'm', 'q', NULL, 'a', NULL, 'c-1', '2026-01-01T10:00:00', 1, 1),
            ('r2', 'm', 'q', NULL, 'a', 'because', 'c-2', '2026-01-01T10:00:00', 1, 1);
        INSERT INTO fragments VALUES (1, 'fragment');
        UPDATE parts SET text = NULL, payload = '{"text_ref": [{"fragment": 1}, {"literal": " and text"}]}'
            WHERE message_hash = 'm1';
        INSERT INTO parts VALUES (9, 'm1', 1, 'attachment', NULL, '{"attachment": {"id": "a1"}}');
        INSERT INTO turns VALUES ('t9', 'c-1', NULL, 'm9', 'm', 1, 1, '{}', '2026-03-01T10:00:00');
        """,
    )
    source = Source(path)
    thread, conversation = read(source)

    assert (thread.id, conversation.id) == ("c-1", "c-2")
    assert text_of(thread.messages[0]) == "fragment and text"
    assert [usage_from(item.usage).input_tokens for item in thread.items if item.usage] == [10, 13]
    assert conversation.messages[-1]["reasoning_content"] == "because"
    assert sorted(map(str, source.skipped)) == [
        "message m1, part 1: is of the unknown type 'attachment'",
        "turn t9: is not before the last message of its thread",
    ]


def test_a_database_with_a_damaged_schema_is_refused(tmp_path: Path) -> None:
    content = SAMPLES["llm database"][1]
    path = tmp_path / "logs.db"
    path.write_bytes(content.replace(b"TABLE responses (", b"TABLE responses \xae"))

    with pytest.raises(UnreadableInput, match="cannot be read"):
        detect(path)


def test_an_answer_of_aider_may_have_quotes_and_code_with_headings() -> None:
    answer = "See:\n\n> a quote\n\n```\n#### not the user\n> not the program\n```"
    text = (
        f"# aider chat started at 2026-03-01 10:00:00\n\n> Aider v0.80.0  \n\n#### first  \n#### second  \n\n{answer}\n\n> Tokens: 10  \n"
        "\n#### next  \n\ndone\n"
    )
    conversation = read_one(text.encode(), "aider")

    assert [text_of(message) for message in conversation.messages] == ["first\nsecond", answer, "next", "done"]


def session_line(name: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    role = "assistant" if name.startswith("a") else "user"
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"type": "message", "id": f"msg_{name}", "model": "claude-opus-4-6", "stop_reason": None}
    ids = {"uuid": name, "parentUuid": parent, "sessionId": "s-1", "timestamp": TIME}
    return {"type": role, "message": message, **ids, **fields}


def test_a_prompt_that_was_typed_while_claude_code_worked_is_a_message() -> None:
    attachment = {"type": "queued_command", "prompt": "also b", "commandMode": "prompt"}
    conversation = read_one(
        lines(
            session_line("u1", None, "do a"),
            session_line("a1", "u1", [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
            session_line("u2", "a1", [{"type": "tool_result", "tool_use_id": "c1", "content": "seen"}]),
            {**session_line("u3", "u2", ""), "type": "attachment", "message": None, "attachment": attachment},
            session_line("a2", "u3", [{"type": "text", "text": "a and b"}]),
        ),
        "claude-code",
    )

    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert conversation.messages[3]["content"] == "also b"
    assert conversation.items[3].place == "line 4"


def test_sessions_of_claude_code_in_one_file_are_conversations_of_their_own() -> None:
    first = [session_line("u1", None, "do a"), session_line("a1", "u1", [{"type": "text", "text": "done a"}])]
    second = [session_line("u2", None, "do b"), session_line("a2", "u2", [{"type": "text", "text": "done b"}])]
    titles = [{"type": "summary", "summary": title, "leafUuid": leaf} for title, leaf in (("A", "a1"), ("B", "a2"))]
    source = Source(lines(*first, *({**line, "sessionId": "s-2"} for line in second), *titles))

    conversations = list(read(source))

    assert source.skipped == []
    assert [(each.id, each.branch_of, each.title) for each in conversations] == [("s-1", None, "A"), ("s-2", None, "B")]
    assert [text_of(each.messages[-1]) for each in conversations] == ["done a", "done b"]


def test_a_resumed_session_of_claude_code_continues_the_earlier_one() -> None:
    first = [session_line("u1", None, "do a"), session_line("a1", "u1", [{"type": "text", "text": "done a"}])]
    second = [session_line("u2", "a1", "do b"), session_line("a2", "u2", [{"type": "text", "text": "done b"}])]
    conversation = read_one(lines(*first, *({**line, "sessionId": "s-2"} for line in second)), "claude-code")

    assert (conversation.id, len(conversation.messages)) == ("s-1", 4)


def test_a_damaged_line_of_claude_code_does_not_split_the_session() -> None:
    session = [
        session_line(name, parent, name)
        for parent, name in zip([None, "u1", "a2", "u3"], ["u1", "a2", "u3", "a4"], strict=True)
    ]
    source = Source(lines(*session[:2]) + lines(session[2])[:50] + b"\n" + lines(session[3]))
    (conversation,) = read(source)

    assert [text_of(message) for message in conversation.messages] == ["u1", "a2", "a4"]
    assert [part.place for part in source.skipped] == ["line 3"]


def test_the_stream_of_claude_code_is_one_conversation() -> None:
    def streamed(line: dict[str, Any], **fields: Any) -> dict[str, Any]:
        other = {key: value for key, value in line.items() if key not in {"parentUuid", "sessionId", "timestamp"}}
        return {**other, "session_id": "s-1", "parent_tool_use_id": None, **fields}

    source = Source(
        lines(
            {"type": "system", "subtype": "init", "session_id": "s-1", "uuid": "i"},
            streamed(session_line("u1", None, "do a")),
            streamed(session_line("a1", None, [{"type": "tool_use", "id": "c1", "name": "Task", "input": {}}])),
            streamed(session_line("u2", None, "look"), parent_tool_use_id="c1"),
            streamed(session_line("a2", None, [{"type": "text", "text": "seen"}]), parent_tool_use_id="c1"),
            streamed(session_line("u3", None, [{"type": "tool_result", "tool_use_id": "c1", "content": "seen"}])),
            streamed(session_line("a3", None, [{"type": "text", "text": "done"}])),
            {"type": "result", "subtype": "success", "result": "done", "session_id": "s-1", "uuid": "r"},
        )
    )

    main, agent = read(source)

    assert source.skipped == []
    assert (main.id, agent.id) == ("s-1", "s-1.c1")
    assert [message["role"] for message in main.messages] == ["user", "assistant", "tool", "assistant"]
    assert [text_of(message) for message in agent.messages] == ["look", "seen"]


PDF_DATA = "JVBERi0="
PDF_URL = f"data:application/pdf;base64,{PDF_DATA}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "vercel-ui",
            [
                {
                    "role": "user",
                    "parts": [{"type": "file", "mediaType": "application/pdf", "url": PDF_URL, "filename": "a.pdf"}],
                }
            ],
        ),
        (
            "opencode",
            {
                "info": {"id": "s"},
                "messages": [
                    {
                        "info": {"role": "user"},
                        "parts": [{"type": "file", "mime": "application/pdf", "url": PDF_URL, "filename": "a.pdf"}],
                    }
                ],
            },
        ),
        (
            "pydantic-ai",
            [
                {
                    "kind": "request",
                    "parts": [
                        {
                            "part_kind": "user-prompt",
                            "content": [
                                {
                                    "kind": "binary",
                                    "data": PDF_DATA,
                                    "media_type": "application/pdf",
                                    "identifier": "a.pdf",
                                }
                            ],
                        }
                    ],
                }
            ],
        ),
        (
            "langchain",
            [
                {
                    "type": "human",
                    "data": {
                        "content": [
                            {"type": "file", "base64": PDF_DATA, "mime_type": "application/pdf", "filename": "a.pdf"}
                        ]
                    },
                }
            ],
        ),
        (
            "bedrock",
            [
                {
                    "role": "user",
                    "content": [{"document": {"format": "pdf", "name": "a.pdf", "source": {"bytes": PDF_DATA}}}],
                }
            ],
        ),
    ],
)
def test_a_document_is_a_file_of_the_message(name: str, value: Any) -> None:
    conversation = read_one(value, name)

    assert conversation.messages[0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}
    ]


def test_a_line_of_claude_code_that_is_written_twice_is_read_once() -> None:
    written = [session_line("u1", None, "do a"), session_line("a1", "u1", [{"type": "text", "text": "done a"}])]
    changed = {**written[1], "message": {**written[1]["message"], "content": [{"type": "text", "text": "other"}]}}
    source = Source(lines(*written, *written, changed))

    (conversation,) = read(source)

    assert [text_of(message) for message in conversation.messages] == ["do a", "done a"]
    assert list(map(str, source.skipped)) == ["line 5: has the id of an earlier line, but another message"]


def test_a_message_of_claude_code_without_an_id_is_reported() -> None:
    anonymous = session_line("u2", "a1", "do b")
    del anonymous["uuid"]
    source = Source(
        lines(
            session_line("u1", None, "do a"), session_line("a1", "u1", [{"type": "text", "text": "done a"}]), anonymous
        )
    )

    (conversation,) = read(source)

    assert len(conversation.messages) == 2
    assert list(map(str, source.skipped)) == ["line 3: is a message without a uuid"]
