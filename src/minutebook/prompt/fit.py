"""Whether JSON data is of a certain shape at first sight, and what to say where it is not."""

from collections.abc import Mapping
from enum import IntEnum
from types import NoneType
from typing import Any, Final

from minutebook.prompt.answer import said
from minutebook.prompt.coerce import coerced
from minutebook.prompt.hints import members
from minutebook.prompt.shape import FORMATS, Member, Shape
from minutebook.record.form import is_a, same

_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


class Lenience(IntEnum):
    """How much a value may differ from what was asked for."""

    EXACT = 0
    NUMBERS = 1
    """A whole number may stand for any number."""
    COERCE = 2
    """And whatever plainly means the same: see `coerce`."""


def fits(shape: Shape, data: Any, lenience: Lenience = Lenience.EXACT) -> bool:
    """Whether the data is of this shape at first sight, without looking into its parts.

    A dataclass must know all the keys and find its literals, which is what tells the members of a union apart
    without trying them all at every level.
    """
    if lenience is Lenience.COERCE:
        data = coerced(shape, data)
    match shape.kind:
        case "scalar" if shape.type in FORMATS:
            return isinstance(data, str | shape.type)
        case "scalar":
            widened = shape.type is float and type(data) is int and lenience >= Lenience.NUMBERS
            return widened or is_a(shape.type, data)
        case "literal":
            return any(same(value, data) for value, _ in shape.choices)
        case "many":
            return isinstance(data, list | tuple)
        case "row":
            return isinstance(data, list | tuple) and len(data) == len(shape.parts)
        case "mapping":
            return isinstance(data, Mapping)
        case "dataclass":
            return isinstance(data, Mapping) and _keys_fit(members(shape.type), data)
        case "union":
            return any(fits(option, data, lenience) for option in shape.parts)
    return True


def expected(shape: Shape) -> str:
    """What to give, in the words of a message."""
    match shape.kind:
        case "scalar" if shape.type in FORMATS:
            return f"text in the format {FORMATS[shape.type][0]}"
        case "scalar":
            return _NAMES[shape.type]
        case "literal":
            return " or ".join(said(value) for value, _ in shape.choices)
        case "many":
            return "a list"
        case "row":
            return f"a list of {len(shape.parts)}"
        case "mapping":
            return "an object"
        case "dataclass":
            return f"an object ({shape.type.__name__})"
        case "union":
            return " or ".join(map(expected, shape.parts))
    return "JSON"


def _keys_fit(own: tuple[Member, ...], data: Mapping[Any, Any]) -> bool:
    known = {member.name: member for member in own}
    return (
        all(key in known for key in data)
        and all(member.name in data for member in own if member.required)
        and all(fits(known[key].shape, part) for key, part in data.items() if known[key].shape.kind == "literal")
    )


def nearest(shape: Shape, data: Any) -> Shape | None:
    """The dataclass that an object was most likely meant to be: what is wrong with it is told in its terms."""
    records = [option for option in shape.options if option.kind == "dataclass"]
    if not isinstance(data, Mapping) or not records:
        return None
    return max(records, key=lambda record: _likeness(members(record.type), data))


def _likeness(own: tuple[Member, ...], data: Mapping[Any, Any]) -> tuple[int, int]:
    """How many of its literals an object has, and how many of its keys."""
    there = [member for member in own if member.name in data]
    literals = sum(member.shape.kind == "literal" and fits(member.shape, data[member.name]) for member in there)
    return literals, len(there)
