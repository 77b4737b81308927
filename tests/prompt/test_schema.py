import collections
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, MutableSet
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union

import pytest

from minutebook.errors import UnsupportedType
from minutebook.prompt.parse import parse
from minutebook.prompt.schema import json_data, json_schema
from tests.prompt.generated import Tree

Id = NewType("Id", int)
T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    it: T


class Status(StrEnum):
    PENDING = "pending"
    DONE = "done"


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    This paragraph is for people.
    """

    title: str = field(metadata={"description": "What is to be done.", "min_length": 1, "max_length": 80})
    status: Status = Status.PENDING
    notes: list[str] = field(default_factory=list)


@dataclass
class Plan:
    objective: str
    steps: tuple[Step, ...] = field(metadata={"min_length": 1})
    priority: int = field(default=3, metadata={"ge": 1, "le": 5, "owner": "somebody else's key"})
    deadline: datetime | None = None


def test_describes_a_plan_as_a_person_would():
    assert json_schema(Plan) == {
        "type": "object",
        "properties": {
            "objective": {"type": "string"},
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "One step of a plan.",
                    "properties": {
                        "title": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 80,
                            "description": "What is to be done.",
                        },
                        "status": {"type": "string", "enum": ["pending", "done"], "default": "pending"},
                        "notes": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": ["title"],
                    "additionalProperties": False,
                },
                "minItems": 1,
            },
            "priority": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
            "deadline": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
        },
        "required": ["objective", "steps"],
        "additionalProperties": False,
    }


def test_a_schema_is_the_callers_to_change():
    schema = json_schema(Plan)
    schema["properties"]["steps"]["items"]["required"].append("notes")
    del schema["type"]

    assert json_schema(Plan)["properties"]["steps"]["items"]["required"] == ["title"]
    assert json_schema(Plan)["type"] == "object"


def test_strict_mode_requires_everything_and_says_null_for_the_default():
    step = json_schema(Step, strict=True)

    assert step["required"] == ["title", "status", "notes"]
    assert step["properties"] == {
        "title": {"type": "string", "description": "What is to be done."},
        "status": {"anyOf": [{"type": "string", "enum": ["pending", "done"]}, {"type": "null"}]},
        "notes": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    }


def test_a_dataclass_that_holds_itself_refers_to_itself():
    assert json_schema(Tree)["properties"]["kids"]["items"] == {"$ref": "#"}


@dataclass
class Forest:
    first: Tree
    rest: list[Tree]
    oldest: Tree | None = field(default=None, metadata={"description": "The oldest."})


def test_a_dataclass_used_in_several_places_stands_once():
    schema = json_schema(Forest)

    assert schema["properties"]["first"] == {"$ref": "#/$defs/Tree"}
    assert list(schema["$defs"]) == ["Tree"]
    assert schema["$defs"]["Tree"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Tree"}


def test_two_dataclasses_of_one_name_do_not_meet():
    def made(hint):
        @dataclass
        class Part:
            value: hint

        return Part

    one, two = made(int), made(str)

    @dataclass
    class Whole:
        a: one
        b: one
        c: two
        d: two

    assert json_schema(Whole)["properties"]["c"] == {"$ref": "#/$defs/Part_2"}
    assert json_schema(Whole)["$defs"]["Part_2"]["properties"]["value"] == {"type": "string"}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int | None, {"type": ["integer", "null"]}),
        (Id, {"type": "integer"}),
        (Any, {}),
        (object, {}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old way of writing it
        (Union[str, int], {"type": ["string", "integer"]}),  # noqa: UP007 - likewise
        (typing.List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006 - likewise
        (typing.Tuple, {"type": "array", "items": {}}),  # noqa: UP006 - likewise
        (list[None], {"type": "array", "items": {"type": "null"}}),
        (MutableSequence[int], {"type": "array", "items": {"type": "integer"}}),
        (AbstractSet[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (MutableMapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (tuple, {"type": "array", "items": {}}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (
            tuple[str, int],
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (MutableSet[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (Iterable[str], {"type": "array", "items": {"type": "string"}}),
        (
            Mapping[Literal["a", "b"], float],
            {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "propertyNames": {"enum": ["a", "b"]},
            },
        ),
        (Literal["a", 1, None], {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),  # noqa: PYI061
        (
            Annotated[str, "A name.", {"pattern": "^[a-z]+$"}],
            {"type": "string", "pattern": "^[a-z]+$", "description": "A name."},
        ),
        (list[Annotated[int, {"gt": 0}]], {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}}),
    ],
)
def test_every_kind_of_type_has_its_schema(hint, schema):
    @dataclass
    class One:
        it: hint

    assert json_schema(One)["properties"]["it"] == schema


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (bytes, "One.it has type bytes, which has no JSON schema; use str, int"),
        (list[complex], "One.it has type complex"),
        (dict[int, str], "One.it has type dict with keys of type int"),
        (Literal[b"a"], "One.it has type Literal[b'a'] with the value b'a'"),
        (T, "One.it has type T, which"),
        ([], "One.it has type [], which"),
        (type[int], "One.it has type type[int], which"),
        (Callable[[int], str], "One.it has type Callable[[int], str], which"),
        (collections.OrderedDict[str, int], "One.it has type OrderedDict[str, int], which"),
        (timedelta, "One.it has type timedelta, which"),
        (Box[int], "One.it has type Box[int], a generic dataclass"),
        (Annotated[Tree, {"min_length": 1}], "One.it has type Tree with the limit 'min_length'"),
        (Annotated[bool, {"ge": 1}], "One.it has type bool with the limit 'ge'"),
        ("Nowhere", "dataclass One has type hints that cannot be resolved (name 'Nowhere' is not defined)"),
    ],
)
def test_a_type_without_a_json_form_is_named_with_its_field(hint, said):
    @dataclass
    class One:
        it: hint

    with pytest.raises(UnsupportedType) as caught:
        json_schema(One)

    assert str(caught.value).startswith(said)


def test_strict_mode_has_no_open_mappings():
    @dataclass
    class One:
        it: dict[str, int]

    with pytest.raises(UnsupportedType, match=r"One\.it has type dict, which has no JSON schema; in strict mode"):
        json_schema(One, strict=True)


def test_a_dataclass_defined_in_a_function_may_hold_itself():
    @dataclass
    class Node:
        next: "Node | None" = None

    assert json_schema(Node)["properties"]["next"] == {"anyOf": [{"$ref": "#"}, {"type": "null"}], "default": None}


def test_strict_mode_wants_a_reference_alone():
    @dataclass
    class Pair:
        left: Tree = field(metadata={"description": "The left one."})
        right: Tree

    assert json_schema(Pair)["properties"]["left"] == {"$ref": "#/$defs/Tree", "description": "The left one."}
    assert json_schema(Pair, strict=True)["properties"]["left"] == {"$ref": "#/$defs/Tree"}


def test_what_a_dataclass_works_out_by_itself_is_neither_asked_for_nor_written():
    @dataclass
    class Square:
        side: int
        area: int = field(init=False)

        def __post_init__(self):
            self.area = self.side**2

    assert list(json_schema(Square)["properties"]) == ["side"]
    assert json_data(Square(3)) == {"side": 3}
    assert parse(Square, {"side": 3}).area == 9
