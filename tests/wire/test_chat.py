import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry, ToolCall
from minutebook.errors import InvalidMessage
from minutebook.record import MessageRole
from minutebook.wire import entry_from_json, entry_to_json, entry_to_provider_message, provider_message_to_entry
from tests.strategies import conversations
from tests.transcripts import FILES, needs_corpus, real

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUN = UUID(int=7)


def entry_of(message, sequence=0):
    return provider_message_to_entry(message, evaluation_id=RUN, sequence=sequence, created_at=NOW)


def same_bytes(first, second):
    return json.dumps(first) == json.dumps(second)


@given(conversations())
def test_any_message_comes_back_byte_for_byte(chat):
    for message in chat:
        assert same_bytes(entry_to_provider_message(entry_of(message)), message)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@given(
    st.sampled_from(["system", "developer", "user", "assistant"]),
    st.dictionaries(st.text(max_size=12), json_values, max_size=4),
    st.permutations(["role", "content", "rest"]),
)
def test_unknown_keys_come_back_in_their_order(role, unknown, order):
    unknown = {key: value for key, value in unknown.items() if key not in {"role", "content", "tool_calls"}}
    parts = {"role": {"role": role}, "content": {"content": "hello"}, "rest": unknown}
    message = {key: value for part in order for key, value in parts[part].items()}

    assert same_bytes(entry_to_provider_message(entry_of(message)), message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "refusal": "no", "audio": None},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": []},
        {"role": "assistant"},
        {"role": "user"},
        {"role": "user", "content": None, "name": "ann"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "x"}},
            ],
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1.0}}}],
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": None}}],
        },
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}, "index": 0}]},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"arguments": "{oops", "name": "f"}, "id": "a"}],
            "content": "x",
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "free text"}}],
        },
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "\ud800 half \x00"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "function", "name": "f", "content": "1"},
        {"content": "order of keys", "role": "developer"},
    ],
)
def test_unusual_messages_come_back_byte_for_byte(message):
    entry = entry_of(message)

    assert same_bytes(entry_to_provider_message(entry), message)
    assert entry_from_json(entry_to_json(entry)) == entry


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_real_messages_come_back_byte_for_byte(name):
    for conversation in real(name):
        for message in conversation["messages"]:
            if message["role"] == "tool" and not message.get("tool_call_id"):
                continue
            if any(not call.get("id") for call in message.get("tool_calls") or ()):
                continue
            assert same_bytes(entry_to_provider_message(entry_of(message)), message), conversation["id"]


def entries():
    text = st.text(max_size=20)
    calls = st.lists(st.builds(ToolCall, st.text(min_size=1), text, text), min_size=1, max_size=3).map(tuple)
    common = {
        "evaluation_id": st.uuids(),
        "sequence": st.integers(0, 99),
        "created_at": st.datetimes(timezones=st.just(UTC)),
    }
    return st.one_of(
        st.builds(
            ConversationEntry, role=st.sampled_from([MessageRole.SYSTEM, MessageRole.USER]), content=text, **common
        ),
        st.builds(ConversationEntry, role=st.just(MessageRole.ASSISTANT), content=text, **common),
        st.builds(
            ConversationEntry,
            role=st.just(MessageRole.ASSISTANT),
            content=st.one_of(st.none(), text),
            tool_calls=calls,
            **common,
        ),
        st.builds(
            ConversationEntry,
            role=st.just(MessageRole.TOOL),
            content=text,
            tool_call_id=st.text(min_size=1),
            tool_name=st.one_of(st.none(), text),
            **common,
        ),
    )


@given(entries())
def test_an_entry_survives_conversion_to_a_message_and_back(entry):
    message = entry_to_provider_message(entry)
    converted_back = provider_message_to_entry(
        message, evaluation_id=entry.evaluation_id, sequence=entry.sequence, created_at=entry.created_at
    )

    assert converted_back == entry


@given(entries())
def test_an_entry_survives_conversion_to_json_and_back(entry):
    assert entry_from_json(entry_to_json(entry)) == entry


def test_a_changed_field_takes_precedence_over_the_original_message():
    parts = entry_of({"role": "user", "content": [{"type": "text", "text": "a"}]})
    calls = entry_of(
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    )

    assert entry_to_provider_message(replace(parts, content="b")) == {"role": "user", "content": "b"}
    other = replace(calls, tool_calls=(replace(calls.tool_calls[0], arguments='{"x":2}'),))
    assert entry_to_provider_message(other)["tool_calls"][0]["function"]["arguments"] == '{"x":2}'


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "tool", "content": "x"}, "message 3: tool_call_id is missing"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, r"tool_calls\[0\].id is missing"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, r"tool_calls\[0\].function.name is missing"),
        ({"role": "user", "content": 3}, "content is an int"),
        ({"content": "x"}, "role is None"),
        ({"role": "narrator", "content": "x"}, "role is 'narrator'"),
        ("hello", "is a str"),
    ],
)
def test_the_error_for_an_invalid_message_names_field_and_problem(message, problem):
    with pytest.raises(InvalidMessage, match=problem):
        entry_of(message, sequence=3)


def test_the_error_for_an_unknown_role_lists_the_valid_ones():
    with pytest.raises(InvalidMessage) as caught:
        entry_of({"role": "narrator", "content": "x"}, sequence=5)
    assert str(caught.value) == "message 5: role is 'narrator'; use system, developer, user, assistant or tool"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"role": "user", "content": None}, "content is None"),
        ({"role": "user", "tool_calls": (ToolCall("a", "f", ""),)}, "only the assistant calls tools"),
        ({"role": "tool"}, "names the call it answers"),
        ({"role": "user", "tool_call_id": "a"}, "only results have one"),
        ({"role": "user", "sequence": -1}, "counted from 0"),
        ({"role": "user", "created_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - tested here
    ],
)
def test_inconsistent_fields_are_refused(fields, problem):
    with pytest.raises(InvalidMessage, match=problem):
        ConversationEntry(**{"content": "x", "evaluation_id": RUN, "sequence": 0, "created_at": NOW, **fields})


def test_entries_are_immutable_and_in_utc():
    local = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    entry = ConversationEntry("user", "x", uuid4(), 0, local)

    assert entry.created_at.isoformat() == "2026-01-01T10:00:00+00:00"
    assert entry.role is MessageRole.USER
    with pytest.raises(AttributeError):
        entry.content = "y"
    with pytest.raises(InvalidMessage, match="cannot be read"):
        entry_from_json("{}")
