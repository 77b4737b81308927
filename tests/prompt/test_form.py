"""How type hints are understood, and that snapshots understand whatever prompts do."""

import collections
import typing
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from types import NoneType
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union
from uuid import UUID

import pytest
from hypothesis import given

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.form import Unresolved, fields_of, form_of, is_a, is_required, label, same
from minutebook.prompt.parse import parse
from minutebook.prompt.schema import dump, json_schema
from minutebook.session import TypeRegistry
from tests.prompt.generated import values_of_classes
from tests.session.parts import Mood, Note, Owner, Step

T = TypeVar("T")
Title = NewType("Title", Step)


@dataclass
class Box(Generic[T]):
    it: T


@pytest.mark.parametrize(
    ("hint", "form"),
    [
        (Any, ("any", None, ())),
        (object, ("any", None, ())),
        *[(one, ("scalar", one, ())) for one in (str, bool, int, float, UUID, datetime, date)],
        (None, ("scalar", NoneType, ())),
        (NoneType, ("scalar", NoneType, ())),
        (Literal["a", 1, True], ("literal", None, ("a", 1, True))),
        (Mood, ("enum", Mood, ())),
        (Step, ("dataclass", Step, ())),
        (int | None, ("union", None, (int, NoneType))),
        (Optional[int], ("union", None, (int, NoneType))),  # noqa: UP045 - the old way of writing it
        (Union[str, int], ("union", None, (str, int))),  # noqa: UP007 - likewise
        (tuple, ("many", tuple, (Any,))),
        (typing.Tuple, ("many", tuple, (Any,))),  # noqa: UP006 - likewise
        (tuple[int, ...], ("many", tuple, (int,))),
        (tuple[int, str], ("row", tuple, (int, str))),
        (tuple[()], ("row", tuple, ())),
        (list, ("many", list, (Any,))),
        (typing.List[int], ("many", list, (int,))),  # noqa: UP006 - likewise
        (MutableSequence[int], ("many", list, (int,))),
        (set[int], ("many", set, (int,))),
        (MutableSet[int], ("many", set, (int,))),
        (frozenset[int], ("many", frozenset, (int,))),
        (Sequence[int], ("many", tuple, (int,))),
        (Collection, ("many", tuple, (Any,))),
        (Iterable[int], ("many", tuple, (int,))),
        (AbstractSet[int], ("many", frozenset, (int,))),
        (dict, ("mapping", dict, (str, Any))),
        (MutableMapping[int, str], ("mapping", dict, (int, str))),
        (Mapping[str, int], ("mapping", dict, (str, int))),
        (Owner, ("alias", None, (str,))),
        (Annotated[int, "how many", {"ge": 1}], ("alias", None, (int, "how many", {"ge": 1}))),
        *[(one, ("other", None, ())) for one in (complex, bytes, timedelta)],
        (T, ("other", None, ())),
        (Box[int], ("other", None, ())),
        (type[int], ("other", None, ())),
        (Callable[[int], str], ("other", None, ())),
        (collections.OrderedDict[str, int], ("other", None, ())),
        ([], ("other", None, ())),
    ],
    ids=repr,
)
def test_a_hint_has_one_form_however_it_is_written(hint, form):
    assert form_of(hint) == form


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (int, "int"),
        (Step, "Step"),
        (Owner, "Owner"),
        (tuple[int, ...], "tuple[int, ...]"),
        (int | list[Step], "int | list[Step]"),
        (Literal["a", 3], "Literal['a', 3]"),
        (Mapping[str, Any], "Mapping[str, Any]"),
        (Callable[[int, Step], str], "Callable[[int, Step], str]"),
        (Box[T], "Box[T]"),
    ],
    ids=repr,
)
def test_a_type_is_named_as_people_write_it_and_without_its_module(hint, name):
    assert label(hint) == name


@dataclass
class Outer:
    @dataclass
    class Inner:
        number: int

    inner: "Inner"
    many: "list[Inner]" = field(default_factory=list)
    date: "date | None" = None
    worked_out: int = field(init=False, default=0)


def test_the_fields_that_make_a_dataclass_are_found_with_the_types_it_holds_itself():
    found = fields_of(Outer)

    assert [(each.name, hint) for each, hint in found] == [
        ("inner", Outer.Inner),
        ("many", list[Outer.Inner]),
        ("date", date | None),
    ]
    assert [is_required(each) for each, _ in found] == [True, False, False]


def test_a_derived_dataclass_has_the_types_of_its_base():
    @dataclass
    class Derived(Outer):
        other: "Derived | Inner | None" = None  # noqa: F821 - a type of the base

    assert [hint for _, hint in fields_of(Derived)][-1] == Derived | Outer.Inner | None


def test_what_is_said_about_a_type_is_kept():
    @dataclass
    class Noted:
        size: list[Annotated[int, {"ge": 1}]]

    assert [hint for _, hint in fields_of(Noted)] == [list[Annotated[int, {"ge": 1}]]]


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Nowhere", "name 'Nowhere' is not defined"),
        ("typing.Nothing", "module 'typing' has no attribute 'Nothing'"),
        ("list[", "must be an expression"),
        ("3 | None", "unsupported operand"),
    ],
)
def test_a_hint_that_leads_nowhere_is_told_by_both_readers_in_the_same_words(hint, said):
    @dataclass
    class Lost:
        it: hint

    with pytest.raises(Unresolved, match=said):
        fields_of(Lost)
    with pytest.raises(UnsupportedType, match=rf"Lost is a dataclass with hints that cannot be resolved \(.*{said}"):
        json_schema(Lost)
    with pytest.raises(InvalidSetting, match=rf"Lost: has hints that cannot be resolved: .*{said}"):
        TypeRegistry(Lost).to_data(Lost, [Lost(None)])


def test_a_dataclass_defined_in_a_function_may_hold_itself_for_both_readers():
    @dataclass
    class Node:
        number: int
        next: "Node | None" = None

    nodes = Node(1, Node(2))
    registry = TypeRegistry(Node)

    assert parse(Node, dump(nodes)) == nodes
    assert registry.from_data(Node, registry.to_data(Node, [nodes])) == (nodes,)


@given(values_of_classes())
def test_what_a_model_can_be_told_a_snapshot_can_keep(value):
    registry = TypeRegistry(type(value))

    assert registry.slice_from_json(type(value), registry.slice_to_json(type(value), [value])) == (value,)


def test_a_new_name_for_a_registered_type_keeps_its_own_functions():
    @dataclass(frozen=True)
    class Page:
        title: Title

    registry = TypeRegistry(Page)
    registry.register(Step, to_json=lambda step: step.title, from_json=Step)

    assert registry.to_data(Page, [Page(Title(Step("a")))]) == [{"title": {"Step": "a"}}]


def test_null_is_no_member_of_a_union_that_does_not_name_it():
    def named_alike(hint):
        @dataclass
        class Part:
            it: hint

        return Part

    @dataclass
    class Whole:
        part: named_alike(int) | named_alike(str)

    with pytest.raises(InvalidSetting, match=r"\.part is None; it should be an instance of Part"):
        TypeRegistry(Whole).to_data(Whole, [Whole(None)])


@pytest.mark.parametrize(
    ("kind", "value", "is_one"),
    [
        (int, 1, True),
        (int, True, False),
        (bool, True, True),
        (bool, 1, False),
        (float, 1, False),
        ((int, float), 1, True),
        ((int, float), True, False),
        (NoneType, None, True),
    ],
)
def test_a_truth_value_is_no_number(kind, value, is_one):
    assert is_a(kind, value) is is_one


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ("a", "b"), (Note("a"), Note("b"))])
def test_values_are_the_same_only_if_their_types_are(one, other):
    assert same(one, one)
    assert not same(one, other)
    assert not same(other, one)
