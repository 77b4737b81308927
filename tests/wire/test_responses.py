import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import SlidingWindowManager, check, view_of
from minutebook.errors import InvalidMessage
from minutebook.history import ToolStripper
from minutebook.record.finding import FindingKind, errors
from minutebook.testing.provider.responses import responses_problem
from minutebook.wire import entry_from_json, entry_to_json, entry_to_provider_message, provider_message_to_entry
from minutebook.wire.responses import ITEMS_KEY, items_to_messages, message_to_items
from minutebook.wire.write import without_own_keys
from tests.strategies import conversations
from tests.transcripts import FILES, needs_corpus, real
from tests.wire.test_chat import NOW, RUN, json_values

TEXT = st.text(max_size=12)
EXTRAS = st.dictionaries(
    st.sampled_from(["id", "status", "phase", "encrypted_content", "namespace", "späti", "annotations"]),
    json_values,
    max_size=3,
)
USER_PARTS = st.one_of(
    st.builds(lambda text, more: {"type": "input_text", "text": text, **more}, TEXT, EXTRAS),
    st.builds(
        lambda url, detail: {"type": "input_image", "image_url": url, "detail": detail},
        st.text(min_size=1, max_size=12),
        st.sampled_from(["auto", "low", None]),
    ),
    st.builds(lambda name: {"type": "input_image", "file_id": name, "image_url": None}, TEXT),
    st.builds(lambda name, data: {"filename": name, "type": "input_file", "file_data": data}, TEXT, TEXT),
    st.builds(lambda more: {"type": "computer_screenshot", **more}, EXTRAS),
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
)
ASSISTANT_PARTS = st.one_of(
    st.builds(lambda text, notes: {"type": "output_text", "text": text, **notes}, TEXT, EXTRAS),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, TEXT),
    st.builds(lambda text: {"annotations": [], "text": text, "type": "output_text"}, TEXT),
)


def shuffled(draw, item):
    return {key: item[key] for key in draw(st.permutations(list(item)))} if draw(st.booleans()) else item


@st.composite
def other_items(draw):
    kind = draw(st.sampled_from(["reasoning", "web_search_call", "mcp_call", "compaction", "späti"]))
    return shuffled(draw, {"type": kind, "id": draw(TEXT), "summary": draw(json_values), **draw(EXTRAS)})


@st.composite
def messages(draw):
    role = draw(st.sampled_from(["user", "user", "system", "developer", "assistant"]))
    parts = ASSISTANT_PARTS if role == "assistant" else USER_PARTS
    content = draw(st.one_of(TEXT, st.lists(parts, max_size=3)))
    item = {"type": "message", "role": role, "content": content, **draw(EXTRAS)}
    if draw(st.booleans()):
        del item["type"]
    return shuffled(draw, item)


@st.composite
def exchanges(draw, number):
    """Calls made together, with other items between them, and their results."""
    calls = [f"call_{number}_{index}" for index in range(draw(st.integers(1, 3)))]
    call_items, output_items = [], []
    for call_id in calls:
        custom = draw(st.booleans())
        kind, argument_key = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
        call = {"type": kind, "call_id": call_id, "name": "find", argument_key: draw(TEXT), **draw(EXTRAS)}
        call_items.append(shuffled(draw, call))
        output = draw(st.one_of(TEXT, st.lists(USER_PARTS, max_size=2)))
        output_items.append(
            shuffled(draw, {"type": f"{kind}_output", "call_id": call_id, "output": output, **draw(EXTRAS)})
        )
    between = st.one_of(
        other_items(),
        st.builds(lambda parts: {"type": "message", "role": "assistant", "content": parts}, st.lists(ASSISTANT_PARTS)),
    )
    for item in draw(st.lists(between, max_size=2)):
        call_items.insert(draw(st.integers(0, len(call_items))), item)
    for item in draw(st.lists(other_items(), max_size=1)):
        output_items.insert(draw(st.integers(0, len(output_items))), item)
    return call_items + output_items


@st.composite
def item_lists(draw):
    items = []
    for number in range(draw(st.integers(0, 5))):
        items += draw(
            st.one_of(messages().map(lambda item: [item]), other_items().map(lambda item: [item]), exchanges(number))
        )
    return items


def items_of(chat):
    return [item for message in chat for item in message_to_items(message)]


@given(item_lists())
def test_any_items_come_back_byte_for_byte(items):
    original = deepcopy(items)

    chat = items_to_messages(items)

    assert json.dumps(items_of(chat)) == json.dumps(original)
    assert items == original


@given(item_lists())
def test_items_come_back_byte_for_byte_from_the_record(items):
    stored = [
        entry_to_json(provider_message_to_entry(message, evaluation_id=RUN, sequence=index, created_at=NOW))
        for index, message in enumerate(items_to_messages(items))
    ]
    chat = [entry_to_provider_message(entry_from_json(line)) for line in stored]

    assert json.dumps(items_of(chat)) == json.dumps(items)


@given(item_lists())
def test_the_messages_are_valid_for_a_provider(items):
    chat = items_to_messages(items)

    assert [finding for finding in errors(check(chat)) if finding.kind is not FindingKind.EMPTY_VIEW] == []
    assert not any(ITEMS_KEY in without_own_keys(message) for message in chat)


@given(conversations())
def test_a_chat_survives_conversion_to_items_and_back(chat):
    again = items_to_messages(items_of(chat))

    def calls(messages):
        return [[call["id"] for call in message["tool_calls"]] for message in messages if message.get("tool_calls")]

    assert calls(again) == calls(chat)
    assert json.dumps(items_of(again)) == json.dumps(items_of(chat))


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_real_conversations_survive_conversion_to_items_and_back(name):
    item_count = 0
    for conversation in real(name):
        items = items_of(conversation["messages"])
        if any(item.get("call_id") == "" for item in items):  # refused: a result names the call it answers
            continue
        item_count += len(items)
        assert json.dumps(items_of(items_to_messages(items))) == json.dumps(items), conversation["id"]

    assert item_count > 400


def test_plain_items_store_nothing_extra_in_the_messages():
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "function_call_output", "call_id": "c2", "output": "rain"},
    ]

    assert items_to_messages(items) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    ]


def test_a_change_of_the_message_takes_precedence_over_its_items():
    output = [{"type": "input_text", "text": "a long result", "späti": 1}]
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}", "id": "fc_1"}
    chat = items_to_messages([call, {"type": "function_call_output", "call_id": "c", "output": output, "id": "fco_1"}])

    trimmed = {**chat[1], "content": "[trimmed]"}

    assert message_to_items(trimmed) == [
        {"type": "function_call_output", "call_id": "c", "output": "[trimmed]", "id": "fco_1"}
    ]


@given(json_values)
def test_an_invalid_value_under_the_items_key_does_not_raise(value):
    message_to_items({"role": "assistant", "content": "hello", ITEMS_KEY: value})
    message_to_items({"role": "user", "content": [{"type": "text", "text": "x"}], ITEMS_KEY: {"marks": value}})
    message_to_items({"role": "user", "content": "x", ITEMS_KEY: {"cuts": value, "marks": [{"of": 0, "patch": value}]}})


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"role": "critic", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": [3]}, "content[0]"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "arguments"),
        ({"type": "function_call_output", "call_id": "c"}, "output"),
        ({}, "type"),
        ("words", ""),
    ],
)
def test_the_error_for_an_invalid_item_names_field_and_index(item, path):
    with pytest.raises(InvalidMessage) as caught:
        items_to_messages([{"role": "user", "content": "x"}, item])

    assert (caught.value.path, caught.value.index) == (path, 1)


def test_the_result_of_a_custom_call_is_found_by_the_newest_call_with_its_id():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    function = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    messages = [{"role": "user", "content": "Go."}]
    for call in (function, custom, function):
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}, result]

    items = view_of(messages).responses()["input"]

    outputs = [item["type"] for item in items if item.get("type", "").endswith("_output")]
    assert outputs == ["function_call_output", "custom_tool_call_output", "function_call_output"]


def client_calls(number):
    """An exchange with a function call and a call that chat completions do not have. Its output is in the next message."""
    return [
        {"type": "function_call", "call_id": f"f{number}", "name": "read", "arguments": "{}"},
        {"type": "shell_call", "id": f"s{number}", "call_id": f"s{number}", "action": {"commands": ["ls"]}},
        {"type": "function_call_output", "call_id": f"f{number}", "output": "read"},
        {"type": "shell_call_output", "call_id": f"s{number}", "output": [{"stdout": "a", "stderr": ""}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Done {number}."}]},
    ]


@pytest.mark.parametrize("manager", [SlidingWindowManager(4), SlidingWindowManager(6), ToolStripper(preserve_turns=0)])
def test_a_client_call_and_its_output_are_sent_together_or_not_at_all(manager):
    items = [{"role": "user", "content": "Go."}, *(item for number in range(4) for item in client_calls(number))]

    assert view_of(items).responses()["input"] == items
    assert responses_problem({"model": "m", "input": view_of(items, manager).responses()["input"]}) is None


def test_the_loopback_provider_rejects_a_client_call_without_its_output():
    items = client_calls(0)

    assert responses_problem({"model": "m", "input": items}) is None
    for missing in (1, 3):
        assert responses_problem({"model": "m", "input": [*items[:missing], *items[missing + 1 :]]}) is not None
