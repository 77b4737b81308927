"""What holds of every dataclass that has a JSON form: it is described, written and read as one and the same thing."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from minutebook.errors import OutputParseError, UnsupportedType
from minutebook.prompt.parse import parse
from minutebook.prompt.schema import json_data, json_schema, json_text
from tests.prompt.generated import values_of_classes
from tests.prompt.schemacheck import accepts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "a", "", "red", "2024-01-01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdefx"), inner, max_size=3),
    max_leaves=4,
)


@given(values_of_classes())
def test_what_was_written_is_read_back_equal(value):
    assert parse(type(value), json_data(value)) == value
    assert parse(type(value), f"Here it is:\n```json\n{json_text(value, indent=2)}\n```\nAnything else?") == value


@given(values_of_classes())
def test_the_schema_accepts_what_is_written(value):
    written = json.loads(json_text(value))

    assert accepts(json_schema(type(value)), written)


@given(values_of_classes())
def test_the_strict_schema_accepts_what_is_written_and_requires_all_of_it(value):
    try:
        schema = json_schema(type(value), strict=True)
    except UnsupportedType:
        assume(False)  # an open mapping has no strict form

    assert accepts(schema, json.loads(json_text(value)))
    assert schema["required"] == list(schema["properties"])


@given(values_of_classes(), st.data())
def test_the_reader_takes_what_the_schema_accepts_and_nothing_else(value, data):
    written = damaged(json.loads(json_text(value)), data)

    assert takes(type(value), written) == accepts(null_for_default(json_schema(type(value))), written)


@given(values_of_classes())
def test_coercing_changes_nothing_that_fits(value):
    assert parse(type(value), json_data(value), coerce=True) == value


def damaged(value, data):
    """The value with something else in one place, or a key lost or added."""
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], damaged(value[at], data), *value[at + 1 :]]
    if isinstance(value, dict):
        how = data.draw(st.sampled_from(["change", "change", "lose", "add"]))
        if how == "add":
            return {**value, data.draw(st.sampled_from("abcdefx")): data.draw(json_values)}
        if value:
            key = data.draw(st.sampled_from(sorted(value)))
            rest = {name: part for name, part in value.items() if name != key}
            return rest if how == "lose" else {**value, key: damaged(value[key], data)}
    return data.draw(json_values)


def takes(cls, written):
    try:
        parse(cls, written)
    except OutputParseError:
        return False
    return True


def null_for_default(schema):
    """The schema that also allows null for a field with a default, as the reader does for strict mode's sake."""
    if isinstance(schema, list):
        return [null_for_default(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: null_for_default(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict):
        for name, part in parts["properties"].items():
            if name not in schema["required"]:
                parts["properties"][name] = {"anyOf": [part, {"type": "null"}]}
    return parts
