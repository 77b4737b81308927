import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import RequestRefused
from minutebook.service.http.requests import parsed
from minutebook.wire.chat import json_bytes

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
any_text = st.text(alphabet=st.characters(exclude_categories=()))


@given(plain)
def test_plain_json_is_read_as_it_is(value):
    assert parsed(json.dumps(value).encode(), max_depth=64) == value


@given(st.dictionaries(any_text, any_text))
def test_what_is_written_can_be_read_whatever_is_in_it(value):
    again = parsed(json_bytes(value), max_depth=64)
    assert json.dumps(again) == json.dumps(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body):
    try:
        parsed(body, max_depth=64)
    except RequestRefused as refusal:
        assert refusal.status == 400


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b'{"a": {"b": 1, "b": 1}}', "duplicate_key"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": -Infinity}', "invalid_json"),
        (b'{"a": 1e999}', "invalid_json"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "invalid_json"),
        (b'{"a": "\xff"}', "invalid_json"),
        (b"{", "invalid_json"),
        (b"", "invalid_json"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b"[" * 100_000, "too_deep"),
        (b'{"a":' * 100_000, "too_deep"),
    ],
    ids=lambda given: str(given[:20]) if isinstance(given, bytes) else given,
)
def test_what_two_readers_could_understand_differently_is_refused(body, code):
    with pytest.raises(RequestRefused) as refusal:
        parsed(body, max_depth=64)
    assert (refusal.value.status, refusal.value.code) == (400, code)


def test_brackets_within_text_are_not_depth():
    assert parsed(b'{"a": "[[[[[[\\"[[["}', max_depth=1) == {"a": '[[[[[["[[['}


def test_nothing_that_came_in_is_quoted():
    with pytest.raises(RequestRefused) as refusal:
        parsed(b'{"sk-secret": sk-secret}', max_depth=64)
    assert "secret" not in str(refusal.value)
