"""One event, folded into the slices: all of its reducers succeed, or nothing has happened."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from minutebook.errors import InvalidSetting, LogIsAppendOnly, ReducerFailed
from minutebook.session.reducer import Append, Reducer, ReducerContext
from minutebook.session.values import Values

Slices: TypeAlias = Mapping[type, Values[Any]]


class SliceKind(StrEnum):
    """What may happen to a slice."""

    STATE = "state"
    """It says how things are now: reducers replace it, a rollback takes it back."""
    LOG = "log"
    """It says what has happened: it only grows."""


@dataclass(slots=True, frozen=True)
class Registration:
    """A reducer in its place."""

    slice_type: type
    reducer: Reducer[Any, Any]
    is_default: bool = False
    """Whether it gives way to the first that a user registers for the same event and slice."""


def reduced(
    slices: Slices,
    logs: frozenset[type],
    registrations: Iterable[Registration],
    event: object,
    context: ReducerContext,
) -> Slices:
    """The slices after an event.

    Raises:
        ReducerFailed: one of the reducers did.
    """
    staged: dict[type, _Staged] = {}
    for registration in registrations:
        into = registration.slice_type
        if into not in staged:
            staged[into] = _Staged(into, slices.get(into) or Values(), is_log=into in logs)
        try:
            before = staged[into].values()
            staged[into].take(registration.reducer(before, event, context=context), before)
        except Exception as problem:
            name = getattr(registration.reducer, "__qualname__", repr(registration.reducer))
            raise ReducerFailed(name, into.__name__, event, f"{type(problem).__name__}: {problem}") from problem
    return {**slices, **{into: stage.values() for into, stage in staged.items()}}


def require_values(slice_type: type, values: Iterable[object]) -> tuple[Any, ...]:
    """The values, if each is of the slice's type.

    Raises:
        InvalidSetting: one is not.
    """
    found = tuple(values)
    for value in found:
        if not isinstance(value, slice_type):
            raise InvalidSetting(f"a value of the slice {slice_type.__name__}", value, f"a {slice_type.__name__}")
    return found


class _Staged:
    """A slice on its way. What is appended waits until it is needed, so a failed event leaves no trace in the list."""

    __slots__ = ("_added", "_base", "_is_log", "_slice_type")

    def __init__(self, slice_type: type, base: Values[Any], *, is_log: bool) -> None:
        self._slice_type, self._base, self._is_log = slice_type, base, is_log
        self._added: tuple[Any, ...] = ()

    def values(self) -> Values[Any]:
        if self._added:
            self._base, self._added = self._base.plus(self._added), ()
        return self._base

    def take(self, result: object, before: Values[Any]) -> None:
        if result is before:
            return
        if isinstance(result, Append):
            self._added = require_values(self._slice_type, result.values)
        elif isinstance(result, Sequence) and not isinstance(result, (str, bytes)):
            self._replace(require_values(self._slice_type, result))
        else:
            raise InvalidSetting("its result", result, "the whole new slice as a sequence, or Append(value)")

    def _replace(self, values: tuple[Any, ...]) -> None:
        if not self._is_log:
            self._base = Values(values)
        elif values[: len(self._base)] == self._base:
            self._added = values[len(self._base) :]
        else:
            raise LogIsAppendOnly(self._slice_type.__name__, "its result")
