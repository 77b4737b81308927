import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry
from minutebook.errors import InvalidSetting, MissingSetting, UnknownName, UnreadableInput
from minutebook.record.message import FrozenDict
from minutebook.session import Session, SliceKind, Snapshot, TypeRegistry
from minutebook.wire import provider_message_to_entry
from tests.prompt.generated import Size
from tests.session.parts import MONDAY, RUN, Mood, Note, Owner, Plan, Rights, Step, Total, entry
from tests.strategies import conversations

PLAN = Plan("ship", UUID(int=7), MONDAY)

steps = st.recursive(
    st.builds(Step, st.text(max_size=5), st.sampled_from(["open", "done", 3, None])),
    lambda inner: st.builds(Step, st.text(max_size=5), children=st.lists(inner, max_size=2).map(tuple)),
    max_leaves=5,
)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
plans = st.builds(
    Plan,
    objective=st.text(max_size=10),
    id=st.uuids(),
    at=st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5.5))])),
    steps=st.lists(steps, max_size=3).map(tuple),
    mood=st.none() | st.sampled_from(Mood),
    size=st.none() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    target=steps | st.builds(Note, st.text(max_size=5)) | st.lists(st.integers(), max_size=3).map(tuple),
    pair=st.tuples(st.integers(), st.text(max_size=5)),
    weight=st.floats(allow_nan=False) | st.integers(),
    labels=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    by_id=st.dictionaries(st.uuids(), steps, max_size=2),
    tags=st.frozensets(st.text(max_size=3), max_size=3),
    anything=json_data,
    seen=st.lists(st.dates(), max_size=3) | st.lists(st.dates(), max_size=3).map(tuple),
    took=st.timedeltas(),
    raw=st.binary(max_size=9),
    rights=st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE, Rights(0)]),
    owner=st.text(max_size=5).map(Owner),
    is_urgent=st.booleans(),
)


def snapshot_of(*values, logs=()):
    session = Session(session_id=UUID(int=3), clock=lambda: MONDAY)
    for value in values:
        session.mutate(type(value)).append(value)
    for one in logs:
        session.log(one)
    return session.snapshot()


def exact(value):
    """Equal, and of the same types all the way down."""
    return repr(value)


@given(st.lists(plans, min_size=1, max_size=3))
def test_a_dataclass_comes_back_as_it_went(values):
    registry = TypeRegistry(Plan)

    back = registry.slice_from_json(Plan, registry.slice_to_json(Plan, values))

    assert back == tuple(values)
    assert [exact(one.target) for one in back] == [exact(one.target) for one in values]
    assert [exact(one.size) for one in back] == [exact(one.size) for one in values]
    assert [exact(one.anything) for one in back] == [exact(one.anything) for one in values]


@given(conversations(), st.lists(plans, max_size=2), st.booleans())
def test_a_snapshot_comes_back_as_it_went(chat, values, is_log):
    entries = [
        provider_message_to_entry(message, evaluation_id=RUN, sequence=at, created_at=MONDAY, model="m")
        for at, message in enumerate(chat)
    ]
    snapshot = snapshot_of(*entries, *values, logs=[Plan] if is_log else [])
    registry = TypeRegistry(Plan)

    for text in (snapshot.to_json(), snapshot.to_json(registry)):
        back = Snapshot.from_json(text, registry)
        assert text.isascii()
        assert back == snapshot
        assert back.to_json() == text


def test_a_session_goes_on_in_another_process():
    text = snapshot_of(entry(0), Total(2)).to_json()
    snapshot = Snapshot.from_json(text, TypeRegistry(Total))
    session = Session(session_id=snapshot.session_id)
    session.restore(snapshot)

    assert session.query(ConversationEntry).all() == (entry(0),)
    assert session.query(Total).latest() == Total(2)
    assert session.kind(ConversationEntry) is SliceKind.LOG


def test_one_slice_can_be_written_and_read_alone():
    text = snapshot_of(Note("a"), Total(1), Note("b", 2)).slice_to_json(Note)

    assert json.loads(text) == [{"text": "a", "number": 0}, {"text": "b", "number": 2}]
    assert TypeRegistry(Note).slice_from_json(Note, text) == (Note("a"), Note("b", 2))
    assert snapshot_of().slice_to_json(Note) == "[]"


def test_a_type_is_known_by_the_name_the_registry_gives_it():
    registry = TypeRegistry()
    registry.register(Note, name="note/1")
    text = snapshot_of(Note("a")).to_json(registry)

    assert [one["type"] for one in json.loads(text)["slices"]] == ["ConversationEntry", "note/1"]
    assert Snapshot.from_json(text, registry).query(Note).all() == (Note("a"),)
    assert registry.names == ("ConversationEntry", "note/1")


def test_a_name_that_the_registry_has_not_is_refused_with_those_it_has():
    text = snapshot_of(Note("a")).to_json()

    with pytest.raises(
        UnknownName, match=r"unknown type 'Note'; choose one of ConversationEntry, Total, or register it"
    ):
        Snapshot.from_json(text, TypeRegistry(Total))
    with pytest.raises(UnknownName, match="unknown type 'Note'"):
        snapshot_of(Note("a")).to_json(TypeRegistry(Total))


def test_data_names_no_module():
    text = snapshot_of(replace(PLAN, target=(1,), size=2)).to_json()

    assert "tests" not in text
    assert json.loads(text)["slices"][1]["values"][0]["target"] == {"tuple": [1]}
    with pytest.raises(UnknownName):
        Snapshot.from_json(text.replace('"type":"Plan"', '"type":"os.system"'), TypeRegistry(Plan))


def test_any_type_can_be_given_its_own_two_functions():
    registry = TypeRegistry()
    registry.register(complex, to_json=lambda one: [one.real, one.imag], from_json=lambda data: complex(*data))
    text = snapshot_of(1 + 2j).to_json(registry)

    assert Snapshot.from_json(text, registry).query(complex).all() == (1 + 2j,)


def test_a_field_uses_the_functions_of_its_own_type_also_when_they_come_later():
    registry = TypeRegistry(Plan)
    assert registry.to_data(Plan, [PLAN])[0]["steps"] == {"tuple": []}
    registry.register(Step, to_json=lambda step: step.title, from_json=Step)
    plan = replace(PLAN, steps=(Step("a"),))

    data = registry.to_data(Plan, [plan])
    assert data[0]["steps"] == {"tuple": [{"Step": "a"}]}
    assert registry.from_data(Plan, data) == (plan,)


def test_a_name_belongs_to_one_type_and_functions_come_in_pairs():
    registry = TypeRegistry(Note)
    with pytest.raises(InvalidSetting, match="name='Note': expected a name that is not the name of Note"):
        registry.register(Total, name="Note")
    with pytest.raises(MissingSetting, match="from_json is missing; pass both"):
        registry.register(Total, to_json=str)

    registry.register(Note, name="other")
    assert registry.names == ("ConversationEntry", "other")


def test_a_field_that_is_missing_has_its_default():
    assert TypeRegistry().from_data(Note, [{"text": "a"}]) == (Note("a"),)


def test_a_set_is_written_in_one_order():
    tags = [f"tag {number:02}" for number in range(30)]

    assert TypeRegistry().to_data(Plan, [replace(PLAN, tags=frozenset(tags))])[0]["tags"] == {"frozenset": tags}


@pytest.mark.parametrize("weight", [float("inf"), float("-inf"), float("nan"), 0.1, 7])
def test_a_float_that_json_has_not_comes_back_too(weight):
    text = snapshot_of(replace(PLAN, weight=weight)).to_json()
    back = Snapshot.from_json(text, TypeRegistry(Plan)).query(Plan).latest().weight

    assert repr(back) == repr(weight)


class Colour(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        (2,),
        {"a": [1, (2,)]},
        FrozenDict(a=1),
        FrozenDict({1: 2, "b": 3}),
        {1, 2},
        {1: 2},
        {"a": 1},
        {"tuple": [1]},
        {"a": 1, "b": 2},
        float("nan"),
        Mood.CALM,
        MONDAY,
        Colour("red"),
    ],
    ids=repr,
)
def test_anything_comes_back_as_what_it_was(value):
    registry = TypeRegistry(Plan)
    text = registry.slice_to_json(Plan, [replace(PLAN, anything=value)])

    assert exact(registry.slice_from_json(Plan, text)[0].anything) == exact(value)
    assert registry.slice_to_json(Plan, registry.slice_from_json(Plan, text)) == text


def test_a_mapping_of_any_type_and_an_enum_that_is_text_come_back_equal():
    plan = replace(PLAN, labels=Counter("aab"), objective=Size.SMALL)
    registry = TypeRegistry(Plan)

    assert registry.slice_from_json(Plan, registry.slice_to_json(Plan, [plan])) == (plan,)


def test_a_value_of_a_derived_type_is_refused_though_both_are_registered():
    with pytest.raises(InvalidSetting, match=r"Step\[0\]=SubStep\(.*\): expected exactly a Step"):
        TypeRegistry(Step, SubStep).to_data(Step, [SubStep("a")])


def test_members_of_a_union_that_look_alike_are_told_apart():
    @dataclass(frozen=True)
    class Celsius:
        degrees: int

    @dataclass(frozen=True)
    class Kelvin:
        degrees: int

    @dataclass(frozen=True)
    class Reading:
        value: Celsius | Kelvin | str | datetime

    registry = TypeRegistry(Reading)
    readings = tuple(map(Reading, (Celsius(1), Kelvin(1), "2025-01-06", MONDAY)))

    assert registry.from_data(Reading, registry.to_data(Reading, readings)) == readings


def test_what_a_dataclass_works_out_by_itself_is_not_written():
    @dataclass
    class Square:
        side: int
        area: int = field(init=False)

        def __post_init__(self):
            self.area = self.side**2

    registry = TypeRegistry(Square)

    assert registry.to_data(Square, [Square(3)]) == [{"side": 3}]
    assert registry.from_data(Square, [{"side": 3}]) == (Square(3),)


def test_a_mapping_comes_back_read_only():
    plan = replace(PLAN, labels=MappingProxyType({"a": 1}))
    registry = TypeRegistry()
    (back,) = registry.from_data(Plan, registry.to_data(Plan, [plan]))

    assert back == plan
    with pytest.raises(TypeError):
        back.labels["b"] = 2


class SubStep(Step):
    pass


@dataclass(frozen=True)
class Odd:
    value: Any = None
    number: complex = 0j
    unknown: "Nowhere" = None  # noqa: F821 - that is the point


@dataclass(frozen=True)
class Loose:
    value: Any


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            replace(PLAN, objective=3),
            r"^Plan\[0\]\.objective=3: expected a str$",
        ),
        (
            replace(PLAN, steps=(Step("a"), Step("b", "wrong"))),
            r"\.steps\[1\]\.status='wrong': expected 'open', 'done' or 3",
        ),
        (replace(PLAN, steps=[Step("a")]), r"\.steps=\[.*\]: expected a tuple"),
        (
            replace(PLAN, steps=(SubStep("a"),)),
            r"\.steps\[0\]=SubStep.*: expected a type that can be stored; declare it as the type of a field",
        ),
        (replace(PLAN, size=b"x"), r"\.size=b'x': expected an int or a str or a number"),
        (replace(PLAN, pair=(1, "a", "b")), r"\.pair=\(1, 'a', 'b'\): expected at most 2 items"),
        (replace(PLAN, weight=True), r"\.weight=True: expected a number"),
        (replace(PLAN, labels={1: 1}), r"\.labels\[1\]=1: expected a str"),
        (
            replace(PLAN, anything={"a": [1, 2j]}),
            r"\.anything\.a\[1\]=2j: expected a type that can be stored; declare it",
        ),
        (replace(PLAN, target=Step(3)), r"\.target\.title=3: expected a str"),
        (replace(PLAN, seen=(datetime(2025, 1, 1),)), r"\.seen\[0\]=.*: expected a date"),  # noqa: DTZ001 - no date
        (Odd(), "type='Odd': expected a class whose type hints can be resolved .name 'Nowhere' is not defined"),
        (3j, r"complex\[0\]=3j: .*register it in the TypeRegistry with to_json and from_json"),
    ],
    ids=str,
)
def test_what_would_not_come_back_the_same_is_refused_and_the_place_named(value, said):
    with pytest.raises(InvalidSetting, match=said):
        snapshot_of(value).to_json()


def test_functions_that_give_no_json_or_fail_are_named():
    registry = TypeRegistry()
    registry.register(complex, to_json=lambda one: {one}, from_json=complex)
    with pytest.raises(InvalidSetting, match="result of to_json in snapshot=…: expected JSON data"):
        snapshot_of(1j).to_json(registry)
    registry.register(complex, to_json=lambda one: one.missing, from_json=lambda data: complex(data["x"]))
    with pytest.raises(
        InvalidSetting,
        match=r"complex\[0\]=1j: expected a value that the to_json function of complex accepts .AttributeError",
    ):
        snapshot_of(1j).to_json(registry)
    with pytest.raises(UnreadableInput, match=r"complex: \[0\]: from_json of complex failed: KeyError: 'x'"):
        registry.from_data(complex, [{}])


def test_what_is_nested_too_deeply_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidSetting, match="not nested too deeply"):
        TypeRegistry().to_data(Loose, [Loose(deep)])
    with pytest.raises(UnreadableInput):
        TypeRegistry().slice_from_json(Loose, '[{"value":' + "[" * 100_000 + "]" * 100_000 + "}]")


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Note, {}, "Note: is not a list of values"),
        (Note, [{"number": 1}], r"^Note: \[0\]\.text is missing$"),
        (
            Note,
            [{"text": "a", "extra": 1}],
            r"^Note: \[0\] has the unknown field 'extra'; fields of Note: text, number$",
        ),
        (Note, [{"text": "a", "number": True}], r"\[0\]\.number is True; expected an int"),
        (Step, [{"title": "a", "children": "none"}], r"\.children is 'none'; expected a tuple"),
        (
            Step,
            [{"title": "a", "children": {"tuple": "none"}}],
            r"\.children is 'none', which is not the content of a tuple",
        ),
        (
            Step,
            [{"title": "a", "children": {"Plan": {}}}],
            r"\.children has the unknown type 'Plan'; known types: float",
        ),
        (Step, [{"title": "a", "status": 4}], r"\.status is 4; expected 'open', 'done' or 3"),
        (Step, [7], r"\[0\] is 7, not an object with the fields of Step"),
        (
            ConversationEntry,
            [{"message": {"role": "narrator"}}],
            r"\[0\]: from_json of ConversationEntry failed: message",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_and_the_place_named(kind, data, said):
    with pytest.raises(UnreadableInput, match=said):
        TypeRegistry(Note, Step).from_data(kind, data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "7"),
        ("id", {"UUID": "7"}),
        ("id", {"UUID": 7}),
        ("at", {"datetime": "yesterday"}),
        ("mood", {"Mood": "ANGRY"}),
        ("size", {"bytes": "eA=="}),
        ("size", {"complex": "x"}),
        ("by_id", {"dict": [["x", {}]]}),
        ("by_id", {"dict": [3]}),
        ("raw", {"bytes": "###"}),
        ("took", {"timedelta": "1,x,3"}),
        ("took", {"timedelta": 3}),
        ("rights", {"Rights": 99}),
        ("weight", {"float": "many"}),
        ("tags", {"frozenset": [[1]]}),
    ],
)
def test_a_damaged_field_is_refused(field, value):
    registry = TypeRegistry(Plan)
    (data,) = registry.to_data(Plan, [PLAN])

    with pytest.raises(UnreadableInput, match=rf"\[0\]\.{field}"):
        registry.from_data(Plan, [{**data, field: value}])


@given(st.data())
def test_a_damaged_snapshot_is_refused_or_read_and_nothing_else(data):
    tree = json.loads(
        snapshot_of(replace(PLAN, steps=(Step("a"),), size=1, seen=[date(2025, 1, 1)]), entry(0)).to_json()
    )
    where = tree
    while isinstance(where, (dict, list)) and where:
        keys = list(where) if isinstance(where, dict) else range(len(where))
        key = data.draw(st.sampled_from(list(keys)))
        if data.draw(st.booleans()) or not isinstance(where[key], (dict, list)):
            where[key] = data.draw(json_data)
            break
        where = where[key]
    text = json.dumps(tree)

    try:
        back = Snapshot.from_json(text, TypeRegistry(Plan))
    except (UnreadableInput, UnknownName) as refused:
        assert str(refused)
    else:
        assert Snapshot.from_json(back.to_json(), TypeRegistry(Plan)) == back


@given(st.text() | json_data.map(json.dumps))
def test_what_is_no_snapshot_is_refused(text):
    with pytest.raises(UnreadableInput):
        Snapshot.from_json(text, TypeRegistry())


def test_a_type_that_stands_twice_is_refused():
    tree = json.loads(snapshot_of(Note("a")).to_json())
    tree["slices"] *= 2
    with pytest.raises(UnreadableInput, match="two slices have the same type"):
        Snapshot.from_json(json.dumps(tree), TypeRegistry(Note))


def test_a_snapshot_of_an_old_format_is_refused_with_the_supported_format():
    text = snapshot_of(Note("a")).to_json().replace("minutebook.snapshot/2", "minutebook.snapshot/1")

    with pytest.raises(UnreadableInput) as caught:
        Snapshot.from_json(text, TypeRegistry(Note))

    assert str(caught.value) == (
        "snapshot: the format 'minutebook.snapshot/1' is not supported; the supported format is 'minutebook.snapshot/2'"
    )
