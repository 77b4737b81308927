"""Any JSON value as messages gives a view or a typed error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Transcript, check, repair, view_of
from minutebook.errors import InvalidMessage, MinutebookError
from minutebook.wire.chat import new_entries

ROLES = ["system", "developer", "user", "assistant", "tool", "function", "nobody"]
TYPES = [
    *("text", "image_url", "file", "input_audio", "refusal", "thinking", "tool_use", "tool_result", "input_text"),
    *("output_text", "message", "function_call", "function_call_output", "reasoning", "document", "image", "function"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3) | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def mappings(**fields):
    """Mappings with any subset of these fields, each with a usual or an arbitrary value."""
    return st.fixed_dictionaries({}, optional={key: value | JSON for key, value in fields.items()})


FUNCTIONS = mappings(name=st.just("f"), arguments=st.just("{}"), input=st.just("x"))
CALLS = mappings(id=st.just("a"), type=st.sampled_from(TYPES), function=FUNCTIONS, custom=FUNCTIONS)
PARTS = mappings(
    type=st.sampled_from(TYPES),
    text=st.just("x"),
    image_url=mappings(url=st.just("data:image/png;base64,aaaa")),
    file=mappings(file_data=st.just("data:text/plain;base64,aaaa"), filename=st.just("f")),
    source=mappings(type=st.just("base64"), data=st.just("aaaa"), media_type=st.just("image/png")),
    input_audio=mappings(data=st.just("aaaa"), format=st.just("wav")),
    id=st.just("a"),
    tool_use_id=st.just("a"),
    name=st.just("f"),
    input=JSON,
    content=JSON,
    signature=JSON,
    thinking=JSON,
    citations=JSON,
    cache_control=JSON,
)
MESSAGES = mappings(
    role=st.sampled_from(ROLES),
    content=st.text(max_size=3) | st.lists(PARTS, max_size=3),
    tool_calls=st.lists(CALLS, max_size=2),
    tool_call_id=st.just("a"),
    function_call=FUNCTIONS,
    name=st.just("f"),
    type=st.sampled_from(TYPES),
    call_id=st.just("a"),
    arguments=st.just("{}"),
    output=JSON,
    summary=JSON,
    parts=st.lists(mappings(text=st.just("x"), functionCall=FUNCTIONS, functionResponse=FUNCTIONS), max_size=2),
    refusal=JSON,
    reasoning_content=JSON,
    choices=JSON,
    message=JSON,
    finish_reason=JSON,
    stop_reason=JSON,
)
ANY_INPUT = st.lists(MESSAGES, min_size=1, max_size=4) | JSON | st.lists(JSON, max_size=2)
FUNCTIONS_OF_MESSAGES = {
    "view_of": lambda messages, provider: view_of(messages, 100, provider=provider).messages,
    "check": lambda messages, provider: check(messages, provider=provider),
    "repair": lambda messages, provider: repair(messages, provider=provider),
    "Transcript": lambda messages, _: Transcript(messages),
    "new_entries": lambda messages, _: new_entries(messages) if isinstance(messages, list) else None,
}


@pytest.mark.parametrize("function", FUNCTIONS_OF_MESSAGES.values(), ids=FUNCTIONS_OF_MESSAGES)
@pytest.mark.parametrize(
    ("message", "path"),
    [({"role": [], "content": "x"}, "role"), ({"role": "user", "content": [{"type": []}]}, "content")],
)
def test_unhashable_values_are_refused_by_name_or_found(function, message, path):
    try:
        result = function([message], "openai")
    except InvalidMessage as error:
        assert error.path.startswith(path)
    else:
        assert result


@pytest.mark.parametrize("function", FUNCTIONS_OF_MESSAGES.values(), ids=FUNCTIONS_OF_MESSAGES)
@pytest.mark.parametrize("depth", [None, 5_000])
def test_a_value_that_is_nested_too_deep_or_contains_itself_is_refused(function, depth):
    value = []
    if depth is None:
        value.append(value)
    for _ in range(depth or 0):
        value = [value]

    with pytest.raises(MinutebookError):
        function([{"role": "user", "content": "x", "metadata": value}], "openai")


@pytest.mark.fuzz
@pytest.mark.parametrize("function", FUNCTIONS_OF_MESSAGES.values(), ids=FUNCTIONS_OF_MESSAGES)
@given(messages=ANY_INPUT, provider=st.sampled_from(["openai", "anthropic", "gemini"]))
def test_any_json_value_gives_a_result_or_a_typed_error(function, messages, provider):
    with suppress(MinutebookError):
        function(messages, provider)
