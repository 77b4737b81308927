"""What a field's metadata asks of its value: how long, how large, of what form.

    title: str = field(metadata={"description": "A short name", "min_length": 1, "max_length": 80})

A limit is said in the schema and checked when an answer is read. Keys of the metadata that are not named here are
somebody else's.
"""

import re
from collections.abc import Mapping, Sized
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, TypeAlias

Limits: TypeAlias = tuple[tuple[str, Any], ...]


class Kind(StrEnum):
    """What a limit can apply to, as a person says it."""

    TEXT = "text"
    NUMBER = "a number"
    LIST = "a list"
    MAP = "an object"


KEYWORDS: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.TEXT: {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    Kind.NUMBER: {
        "ge": "minimum",
        "gt": "exclusiveMinimum",
        "le": "maximum",
        "lt": "exclusiveMaximum",
        "multiple_of": "multipleOf",
    },
    Kind.LIST: {"min_length": "minItems", "max_length": "maxItems"},
    Kind.MAP: {"min_length": "minProperties", "max_length": "maxProperties"},
}
NAMES: Final = frozenset(name for keywords in KEYWORDS.values() for name in keywords)

_SAID: Final = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "multiple_of": "a multiple of",
    "min_length": "at least",
    "max_length": "at most",
}
_UNITS: Final = {Kind.TEXT: "characters", Kind.LIST: "items", Kind.MAP: "keys"}


def limits_in(metadata: Mapping[Any, Any]) -> Limits:
    """The limits among a field's metadata."""
    return tuple((name, metadata[name]) for name in metadata if name in NAMES)


def keywords(limits: Limits, kind: Kind) -> dict[str, Any]:
    """The limits as JSON Schema says them."""
    return {KEYWORDS[kind][name]: bound for name, bound in limits}


def breaches(limits: Limits, kind: Kind, value: Any) -> list[str]:
    """What is wrong with a value that is of the right kind."""
    return [_said(name, bound, kind, value) for name, bound in limits if not _holds(name, bound, value)]


def _holds(name: str, bound: Any, value: Any) -> bool:
    match name:
        case "min_length":
            return len(value) >= int(bound)
        case "max_length":
            return len(value) <= int(bound)
        case "pattern":
            return re.search(bound, value) is not None
        case "ge":
            return bool(value >= bound)
        case "gt":
            return bool(value > bound)
        case "le":
            return bool(value <= bound)
        case "lt":
            return bool(value < bound)
    return Fraction(str(value)) % Fraction(str(bound)) == 0  # as decimals: 0.3 is a multiple of 0.1


def _said(name: str, bound: Any, kind: Kind, value: Any) -> str:
    if name == "pattern":
        return f"does not match the pattern {bound}"
    if isinstance(value, Sized):
        return f"has {len(value)} {_UNITS[kind]}; give {_SAID[name]} {bound}"
    return f"is {value}; give {_SAID[name]} {bound}"
