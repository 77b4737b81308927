"""How type hints are understood, and that snapshots understand whatever prompts do."""

from collections.abc import (
    Callable,
    Mapping,
)
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pytest
from hypothesis import given

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.parse import parse
from minutebook.prompt.schema import json_data, json_schema
from minutebook.prompt.validation import fields_of, hint_text, is_required
from minutebook.session import TypeRegistry
from tests.prompt.generated import values_of_classes
from tests.session.parts import Owner, Step

T = TypeVar("T")
Title = NewType("Title", Step)


@dataclass
class Box(Generic[T]):
    it: T


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
    assert hint_text(hint) == name


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
        ("pytest.Nothing", "module 'pytest' has no attribute 'Nothing'"),
        ("list[", "must be an expression"),
        ("3 | None", "unsupported operand"),
    ],
)
def test_an_unresolvable_hint_is_rejected_by_both_parsers(hint, said):
    @dataclass
    class Lost:
        it: hint

    with pytest.raises(UnsupportedType, match=rf"dataclass Lost has type hints that cannot be resolved \(.*{said}"):
        json_schema(Lost)
    with pytest.raises(
        InvalidSetting, match=rf"type='Lost': expected a class whose type hints can be resolved .*{said}"
    ):
        TypeRegistry(Lost).to_data(Lost, [Lost(None)])


def test_a_dataclass_defined_in_a_function_may_hold_itself_for_both_readers():
    @dataclass
    class Node:
        number: int
        next: "Node | None" = None

    nodes = Node(1, Node(2))
    registry = TypeRegistry(Node)

    assert parse(Node, json_data(nodes)) == nodes
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

    with pytest.raises(InvalidSetting, match=r"\.part=None: expected an instance of Part"):
        TypeRegistry(Whole).to_data(Whole, [Whole(None)])
