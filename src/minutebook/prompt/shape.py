"""What a value looks like as JSON: the few shapes that everything is made of."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any, TypeAlias

from minutebook.prompt.limits import Kind, Limits


@dataclass(frozen=True, slots=True)
class Plain:
    """Text, a number, a truth value or null."""

    type: type
    limits: Limits = ()


@dataclass(frozen=True, slots=True)
class Formatted:
    """Text of a certain format."""

    type: type
    format: str
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few scalars; each is paired with what it stands for."""

    options: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Any number of one thing."""

    item: "Shape"
    make: Callable[[list[Any]], Any]
    unique: bool = False
    limits: Limits = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A tuple of fixed length."""

    items: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """An object with keys that are not known beforehand."""

    key: "Shape"
    value: "Shape"
    limits: Limits = ()


@dataclass(frozen=True, slots=True)
class Either:
    """The first of these that fits."""

    options: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass. Its fields are looked up when needed, because it may hold itself."""

    type: type


Shape: TypeAlias = Plain | Formatted | Anything | Choice | Listing | Row | Mapped | Either | Record


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a dataclass."""

    name: str
    shape: Shape
    required: bool
    default: Any = MISSING
    """What it is without being given; MISSING also where a factory makes it."""
    description: str | None = None


def option_shapes(shape: Shape) -> tuple[Shape, ...]:
    """The shapes it may be: those of a union, or itself."""
    return shape.options if isinstance(shape, Either) else (shape,)


def kind_of(shape: Shape) -> Kind | None:
    """What limits can apply to it."""
    match shape:
        case Plain():
            return {str: Kind.TEXT, int: Kind.NUMBER, float: Kind.NUMBER}.get(shape.type)
        case Listing():
            return Kind.LIST
        case Mapped():
            return Kind.MAP
    return None
