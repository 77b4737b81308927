"""Whether JSON data is of a certain shape at first sight, and what to say where it is not."""

import types
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from minutebook.prompt.coerce import coerced
from minutebook.prompt.hints import members
from minutebook.prompt.problem import said
from minutebook.prompt.shape import (
    Choice,
    Either,
    Formatted,
    Listing,
    Mapped,
    Member,
    Plain,
    Record,
    Row,
    Shape,
)

_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}


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
    match shape:
        case Plain():
            widened = shape.type is float and type(data) is int and lenience >= Lenience.NUMBERS
            return widened or is_a(shape.type, data)
        case Formatted():
            return isinstance(data, str | shape.type)
        case Choice():
            return any(same(value, data) for value, _ in shape.options)
        case Listing():
            return isinstance(data, list | tuple)
        case Row():
            return isinstance(data, list | tuple) and len(data) == len(shape.items)
        case Mapped():
            return isinstance(data, Mapping)
        case Record():
            return isinstance(data, Mapping) and _keys_fit(members(shape.type), data)
        case Either():
            return any(fits(option, data, lenience) for option in shape.options)
    return True


def expected(shape: Shape) -> str:
    """What to give, in the words of a message."""
    match shape:
        case Plain():
            return _NAMES[shape.type]
        case Formatted():
            return f"text in the format {shape.format}"
        case Choice():
            return " or ".join(said(value) for value, _ in shape.options)
        case Listing():
            return "a list"
        case Row():
            return f"a list of {len(shape.items)}"
        case Mapped():
            return "an object"
        case Record():
            return f"an object ({shape.type.__name__})"
        case Either():
            return " or ".join(map(expected, shape.options))
    return "JSON"


def _keys_fit(own: tuple[Member, ...], data: Mapping[Any, Any]) -> bool:
    known = {member.name: member for member in own}
    return (
        all(key in known for key in data)
        and all(member.name in data for member in own if member.required)
        and all(fits(known[key].shape, part) for key, part in data.items() if isinstance(known[key].shape, Choice))
    )


def nearest(shape: Either, data: Any) -> Record | None:
    """The dataclass that an object was most likely meant to be: what is wrong with it is told in its terms."""
    records = [option for option in shape.options if isinstance(option, Record)]
    if not isinstance(data, Mapping) or not records:
        return None
    return max(records, key=lambda record: _likeness(members(record.type), data))


def _likeness(own: tuple[Member, ...], data: Mapping[Any, Any]) -> tuple[int, int]:
    """How many of its literals an object has, and how many of its keys."""
    there = [member for member in own if member.name in data]
    literals = sum(isinstance(member.shape, Choice) and fits(member.shape, data[member.name]) for member in there)
    return literals, len(there)


def is_a(cls: type, data: Any) -> bool:
    """Whether it is of that type; a truth value is no number."""
    return isinstance(data, cls) and (cls is not int or not isinstance(data, bool))


def same(value: Any, data: Any) -> bool:
    """Whether they are equal, and of one type: `1` is not `true`."""
    return type(value) is type(data) and bool(value == data)
