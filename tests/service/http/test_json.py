import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import RequestRefused
from minutebook.service.http import json_codec
from minutebook.service.http.json_codec import json_bytes


def parse_json(body, *, max_depth=64, max_values=200_000):
    return json_codec.parse_json(body, max_depth=max_depth, max_values=max_values)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
any_text = st.text(alphabet=st.characters(exclude_categories=()))


@given(plain)
def test_plain_json_is_parsed(value):
    assert parse_json(json.dumps(value).encode()) == value


@given(st.dictionaries(any_text, any_text))
def test_json_of_any_text_can_be_parsed(value):
    parsed = parse_json(json_bytes(value))
    assert json.dumps(parsed) == json.dumps(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(body):
    try:
        parse_json(body)
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
        parse_json(body)
    assert (refusal.value.status, refusal.value.code) == (400, code)


def test_brackets_in_strings_do_not_count_as_nesting():
    assert parse_json(b'{"a": "[[[[[[\\"[[["}', max_depth=1) == {"a": '[[[[[["[[['}


def test_an_error_does_not_quote_the_body():
    with pytest.raises(RequestRefused) as refusal:
        parse_json(b'{"sk-secret": sk-secret}')
    assert "secret" not in str(refusal.value)


@given(plain, st.integers(1, 20))
def test_the_number_of_values_is_limited(value, max_values):
    count = value_count(value)
    body = json.dumps(value).encode()
    if count > max_values:
        with pytest.raises(RequestRefused) as refusal:
            parse_json(body, max_values=max_values)
        assert (refusal.value.status, refusal.value.code) == (400, "too_many_values")
    else:
        assert parse_json(body, max_values=max_values) == value


def value_count(value):
    if not isinstance(value, list | dict):
        return 0
    members = value.values() if isinstance(value, dict) else value
    return max(1, len(value)) + sum(map(value_count, members))


@given(plain)
def test_json_is_written_as_it_is_parsed(value):
    assert parse_json(json_bytes(value)) == value


EXPENSIVE = {
    "escapes": ('{"a":"', '\\"', '"}'),
    "unfinished escapes": ("", '\\"', ""),
    "commas in escapes": ('{"a":"', '\\",', '"}'),
    "lists": ("[", "[],", "0]"),
    "objects": ("[", '{"a":{}},', "0]"),
    "numbers": ("[", "1.5e1,", "0]"),
    "strings": ("[", '"",', "0]"),
    "quotes": ("", '"', ""),
    "one number": ("1.", "1", ""),
    "depth": ("", "[", ""),
}


@pytest.mark.parametrize("kind", EXPENSIVE)
def test_an_expensive_body_is_answered(kind):
    """With a quadratic scan this takes hours."""
    start, unit, end = EXPENSIVE[kind]
    body = (start + unit * ((10 << 20) // len(unit)) + end).encode()

    with suppress(RequestRefused):
        parse_json(body)
