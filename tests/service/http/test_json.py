import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import RequestRefused
from minutebook.service.http.requests import parse_json
from minutebook.wire.chat import json_bytes

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
any_text = st.text(alphabet=st.characters(exclude_categories=()))


@given(plain)
def test_plain_json_is_parsed(value):
    assert parse_json(json.dumps(value).encode(), max_depth=64) == value


@given(st.dictionaries(any_text, any_text))
def test_json_of_any_text_can_be_parsed(value):
    parsed = parse_json(json_bytes(value), max_depth=64)
    assert json.dumps(parsed) == json.dumps(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(body):
    try:
        parse_json(body, max_depth=64)
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
    ids=lambda value: str(value[:20]) if isinstance(value, bytes) else value,
)
def test_ambiguous_or_invalid_json_is_rejected(body, code):
    with pytest.raises(RequestRefused) as refusal:
        parse_json(body, max_depth=64)
    assert (refusal.value.status, refusal.value.code) == (400, code)


def test_brackets_in_strings_do_not_count_as_nesting():
    assert parse_json(b'{"a": "[[[[[[\\"[[["}', max_depth=1) == {"a": '[[[[[["[[['}


def test_an_error_does_not_quote_the_body():
    with pytest.raises(RequestRefused) as refusal:
        parse_json(b'{"sk-secret": sk-secret}', max_depth=64)
    assert "secret" not in str(refusal.value)
