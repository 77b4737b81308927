"""Reducers: how an event changes a slice.

A reducer is a pure function from the slice and the event to the new slice. One that only adds returns `Append`, and
then the slice is not copied.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from minutebook.session.state import Session

T = TypeVar("T")
E_contra = TypeVar("E_contra", contravariant=True)


@dataclass(slots=True, frozen=True)
class ReducerContext:
    """What a reducer may know besides the slice and the event."""

    session: "Session"
    """Queries see the state before the event; what is dispatched here waits until the event is committed."""
    now: datetime
    """When the event was dispatched; the same for all of its reducers."""


@dataclass(slots=True, frozen=True, init=False)
class Append(Generic[T]):
    """A reducer's answer: the slice as it is, and these values after it."""

    values: tuple[T, ...]

    def __init__(self, *values: T) -> None:
        object.__setattr__(self, "values", values)


class Reducer(Protocol[T, E_contra]):
    """Any function of this shape."""

    def __call__(
        self, values: Sequence[T], event: E_contra, /, *, context: ReducerContext
    ) -> "Sequence[T] | Append[T]":
        """The slice after the event."""
        ...


def append(values: Sequence[T], event: T, *, context: ReducerContext) -> Append[T]:  # noqa: ARG001 - a reducer's shape
    """Keep every event, in order; O(1)."""
    return Append(event)


def replace_latest(values: Sequence[T], event: T, *, context: ReducerContext) -> Sequence[T]:  # noqa: ARG001 - same
    """Keep the newest event alone; O(1)."""
    return (event,)


def upsert_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """Keep one event per key: a new one takes the place of the one with its key, or comes last; O(values)."""

    def upsert(values: Sequence[T], event: T, *, context: ReducerContext) -> Sequence[T] | Append[T]:  # noqa: ARG001 - same
        wanted = key(event)
        for place, value in enumerate(values):
            if key(value) == wanted:
                return (*values[:place], event, *values[place + 1 :])
        return Append(event)

    return upsert


_Comparable: TypeAlias = str | bytes | int | float | None


def is_same(one: object, other: object, depth: int = 3) -> bool:
    """Whether two reducers do the same by construction: equal, or made by the same lines over the same things.

    A lambda or inner function is a new object each time its line runs; a section that is set up twice must not double
    what it records.
    """
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return one is other or (depth > 0 and _is_made_alike(one, other, depth - 1))
    return one is other or (type(one) is type(other) and bool(one == other))


def _is_made_alike(one: FunctionType, other: FunctionType, depth: int) -> bool:
    cells, others = one.__closure__ or (), other.__closure__ or ()
    return (
        one.__code__ == other.__code__
        and one.__globals__ is other.__globals__
        and one.__defaults__ == other.__defaults__
        and one.__kwdefaults__ == other.__kwdefaults__
        and all(_holds_same(_contents(cell), _contents(twin), depth) for cell, twin in zip(cells, others, strict=True))
    )


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # what it stands for is not defined yet
        return cell


def _holds_same(one: object, other: object, depth: int) -> bool:
    """Two equal lists are still two lists, so only functions and constants are compared by what they are."""
    comparable = isinstance(one, (FunctionType, _Comparable))
    return one is other or (comparable and is_same(one, other, depth))
