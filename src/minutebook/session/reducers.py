"""Reducers: how an event changes a slice.

A reducer is a pure function from the slice and the event to the new slice. A reducer that only adds values returns
`Append`; the slice is then not copied.
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
    """The session and the time, for reducers that need them."""

    session: "Session"
    """Its queries return the state before the event. Events dispatched by a reducer are applied after this event."""
    now: datetime
    """When the event was dispatched; the same for all of its reducers."""


@dataclass(slots=True, frozen=True, init=False)
class Append(Generic[T]):
    """A reducer's result that adds these values to the slice and changes nothing else."""

    values: tuple[T, ...]

    def __init__(self, *values: T) -> None:
        object.__setattr__(self, "values", values)


class Reducer(Protocol[T, E_contra]):
    """A function that takes the values of a slice and an event, and returns the new values."""

    def __call__(
        self, values: Sequence[T], event: E_contra, /, *, context: ReducerContext
    ) -> "Sequence[T] | Append[T]":
        """The slice after the event."""
        ...


def append(values: Sequence[T], event: T, *, context: ReducerContext) -> Append[T]:  # noqa: ARG001 - a reducer's signature
    """Append the event to the slice; O(1)."""
    return Append(event)


def replace_latest(values: Sequence[T], event: T, *, context: ReducerContext) -> Sequence[T]:  # noqa: ARG001 - same
    """Keep only the newest event; O(1)."""
    return (event,)


def upsert_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """Keep one event per key: a new event replaces the one with the same key, or is appended; O(values)."""

    def upsert(values: Sequence[T], event: T, *, context: ReducerContext) -> Sequence[T] | Append[T]:  # noqa: ARG001 - same
        event_key = key(event)
        for index, value in enumerate(values):
            if key(value) == event_key:
                return (*values[:index], event, *values[index + 1 :])
        return Append(event)

    return upsert


_Constant: TypeAlias = str | bytes | int | float | None


def is_same_reducer(first: object, second: object, depth: int = 3) -> bool:
    """Whether two reducers are equal, or are functions with the same code and the same closure.

    A lambda or an inner function is a new object each time its line runs. Without this check, code that registers such a
    function twice would have every event applied twice. `depth` limits how far functions inside closures are compared.
    """
    if isinstance(first, FunctionType) and isinstance(second, FunctionType):
        return first is second or (depth > 0 and _is_same_function(first, second, depth - 1))
    return first is second or (type(first) is type(second) and bool(first == second))


def _is_same_function(first: FunctionType, second: FunctionType, depth: int) -> bool:
    cells = zip(first.__closure__ or (), second.__closure__ or (), strict=False)
    return (
        first.__code__ == second.__code__
        and first.__globals__ is second.__globals__
        and first.__defaults__ == second.__defaults__
        and first.__kwdefaults__ == second.__kwdefaults__
        and all(_is_same_content(_content_of(cell), _content_of(other_cell), depth) for cell, other_cell in cells)
    )


def _content_of(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not assigned yet
        return cell


def _is_same_content(first: object, second: object, depth: int) -> bool:
    """Compare functions and constants by value, everything else by identity: two equal lists may differ later."""
    is_compared_by_value = isinstance(first, (FunctionType, _Constant))
    return first is second or (is_compared_by_value and is_same_reducer(first, second, depth))
