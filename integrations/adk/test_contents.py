"""google-adk's contents as messages, and back."""

import json
import uuid
from datetime import UTC, datetime

from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from integrations.adk.conftest import without_extension
from minutebook.integrations.adk.contents import contents_of, messages_of
from minutebook.wire import entry_to_provider_message, provider_message_to_entry

texts = st.text(max_size=12)
values = st.dictionaries(
    texts, st.one_of(texts, st.integers(-9, 9), st.none(), st.lists(texts, max_size=2)), max_size=3
)
names = st.sampled_from(["read_log", "sail"])
ids = st.sampled_from(["call_1", "call_2", "adk-7"])
calls = st.builds(types.FunctionCall, id=ids, name=names, args=values)
results = st.builds(types.FunctionResponse, id=ids, name=names, response=values)
blobs = st.builds(types.Blob, data=st.binary(max_size=9), mime_type=st.sampled_from(["image/png", "audio/wav"]))
files = st.builds(
    types.FileData, file_uri=st.just("gs://ship/log.png"), mime_type=st.sampled_from(["image/png", "a/b"])
)
signatures = st.one_of(st.none(), st.binary(min_size=1, max_size=9))
message_parts = st.one_of(
    st.builds(types.Part, text=texts, thought=st.sampled_from([None, True]), thought_signature=signatures),
    st.builds(types.Part, inline_data=blobs),
    st.builds(types.Part, file_data=files),
    st.builds(types.Part, function_call=calls, thought_signature=signatures),
    st.builds(
        types.Part, executable_code=st.builds(types.ExecutableCode, code=texts, language=st.just(types.Language.PYTHON))
    ),
)
result_parts = st.builds(types.Part, function_response=results)


def content(role, parts):
    return types.Content(role=role, parts=parts)


contents = st.one_of(
    st.lists(message_parts, min_size=1, max_size=4).map(lambda parts: content("model", parts)),
    st.lists(message_parts.filter(lambda part: part.function_call is None), min_size=1, max_size=4).map(
        lambda parts: content("user", parts)
    ),
    st.lists(result_parts, min_size=1, max_size=3).map(lambda parts: content("user", parts)),
)


@given(contents)
@settings(max_examples=300, deadline=None)
def test_conversion_to_messages_and_back_loses_nothing(original):
    messages = json.loads(json.dumps(messages_of(original, event="e-1")))

    assert contents_of(messages) == [original]


@given(contents)
@settings(max_examples=100, deadline=None)
def test_conversion_to_entries_and_back_loses_nothing(original):
    entries = [
        provider_message_to_entry(message, evaluation_id=uuid.uuid4(), sequence=sequence, created_at=datetime.now(UTC))
        for sequence, message in enumerate(messages_of(original))
    ]

    assert contents_of(map(entry_to_provider_message, entries)) == [original]


@given(st.builds(types.Part, function_response=results, thought_signature=st.binary(min_size=1, max_size=9)))
def test_a_cleared_result_stays_cleared(part):
    (message,) = messages_of(content("user", [part]))

    (restored,) = contents_of([{**message, "content": "[cleared]"}])

    assert restored.parts[0].function_response.response == {"result": "[cleared]"}
    assert restored.parts[0].function_response.id == part.function_response.id


def test_parallel_calls_are_one_message_and_each_result_is_one():
    calls = [types.FunctionCall(id=f"c{n}", name="read_log", args={"number": n}) for n in range(2)]
    results = [types.FunctionResponse(id=f"c{n}", name="read_log", response={"page": n}) for n in range(2)]

    (assistant,) = messages_of(content("model", [types.Part(function_call=call) for call in calls]))
    result_messages = messages_of(content("user", [types.Part(function_response=result) for result in results]))

    assert [call["id"] for call in assistant["tool_calls"]] == ["c0", "c1"]
    assert [without_extension(answer) for answer in result_messages] == [
        {"role": "tool", "tool_call_id": f"c{n}", "name": "read_log", "content": f'{{"page": {n}}}'} for n in range(2)
    ]
