"""The typed slices of one session, their reducers, and atomic changes.

`Values` is the immutable sequence of the values of a slice. Appending gives a new `Values` that shares one list with the
old one; each has its own length. An append to the longest `Values` extends the list in place; an append to an older one
(after a rollback) copies its items first. So appends are amortized O(1), and a snapshot copies nothing.

`SliceTable` applies one change at a time: all reducers of an event succeed, or no slice changes. Readers need no lock,
since a change builds new slices and then replaces the table in one assignment. A change requested by a reducer is queued
until the current change is applied, and is dropped if that one fails.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from threading import Lock, RLock
from typing import Any, Generic, TypeAlias, TypeVar, overload

from minutebook.errors import EventFailed, InvalidSetting, LogIsAppendOnly, MinutebookError, NoReducer, ReducerFailed
from minutebook.record.message import FrozenDict
from minutebook.session.display import display_text, displayable
from minutebook.session.reducers import Append, Reducer, ReducerContext, is_same_reducer

T = TypeVar("T")


class _SharedItems(Generic[T]):
    """The list that several `Values` share, and the lock for appending to it."""

    __slots__ = ("items", "lock")

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.lock = Lock()


class Values(Sequence[T]):
    """An immutable sequence that is equal to the tuple of its values."""

    __slots__ = ("_count", "_shared", "_tuple")
    _shared: _SharedItems[T]
    _count: int
    _tuple: tuple[T, ...] | None

    def __init__(self, values: Iterable[T] = ()) -> None:
        items = list(values)
        self._shared, self._count, self._tuple = _SharedItems(items), len(items), None

    def plus(self, appended: tuple[T, ...]) -> "Values[T]":
        """These values followed by the appended ones, in amortized O(len(appended))."""
        shared = self._shared
        with shared.lock:
            if len(shared.items) != self._count:  # other values were already appended to this list
                shared = _SharedItems(shared.items[: self._count])
            shared.items.extend(appended)
        longer: Values[T] = Values.__new__(Values)
        longer._shared, longer._count, longer._tuple = shared, self._count + len(appended), None
        return longer

    def as_tuple(self) -> tuple[T, ...]:
        """The values as a tuple, which is built on the first call."""
        if self._tuple is None:
            self._tuple = tuple(self)
        return self._tuple

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared.items, self._count)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        selected = range(self._count)[index]
        items = self._shared.items
        return items[selected] if isinstance(selected, int) else tuple(items[item_index] for item_index in selected)

    def __add__(self, other: Sequence[T]) -> tuple[T, ...]:
        return (*self, *other)

    def __radd__(self, other: Sequence[T]) -> tuple[T, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Values, tuple)):
            return NotImplemented
        return len(self) == len(other) and self.as_tuple() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.as_tuple())

    def __repr__(self) -> str:
        return repr(self.as_tuple())

    def __reduce__(self) -> tuple[Any, ...]:
        return Values, (self.as_tuple(),)


Slices: TypeAlias = Mapping[type, Values[Any]]
"""Slice type → the values of the slice."""


class SliceKind(StrEnum):
    """How a slice may change."""

    STATE = "state"
    """The current state: reducers may replace it, and a rollback restores it."""
    LOG = "log"
    """A record of what happened: values are only appended, and a rollback keeps them."""


@dataclass(slots=True, frozen=True)
class Registration:
    """A reducer and the slice that it changes."""

    slice_type: type
    reducer: Reducer[Any, Any]
    is_default: bool = False
    """Whether the first reducer that a user registers for the same event and slice replaces this one."""


def slices_after(
    slices: Slices,
    logs: frozenset[type],
    registrations: Iterable[Registration],
    event: object,
    context: ReducerContext,
) -> Slices:
    """The slices after an event.

    Raises:
        ReducerFailed: one of the reducers failed.
    """
    staged_slices: dict[type, _StagedSlice] = {}
    for registration in registrations:
        slice_type = registration.slice_type
        if slice_type not in staged_slices:
            values = slices.get(slice_type) or Values()
            staged_slices[slice_type] = _StagedSlice(slice_type, values, is_log=slice_type in logs)
        try:
            values_before = staged_slices[slice_type].values()
            result = registration.reducer(values_before, event, context=context)
            staged_slices[slice_type].apply(result, values_before)
        except Exception as error:
            name = getattr(registration.reducer, "__qualname__", display_text(registration.reducer))
            problem = str(error) if isinstance(error, MinutebookError) else f"{type(error).__name__}: {error}"
            raise ReducerFailed(name, slice_type.__name__, event, problem) from error
    return {**slices, **{slice_type: stage.values() for slice_type, stage in staged_slices.items()}}


def require_values(slice_type: type, values: Iterable[object]) -> tuple[Any, ...]:
    """The values, if each is an instance of the slice's type.

    Raises:
        InvalidSetting: a value is of another type.
    """
    items = tuple(values)
    for item in items:
        if not isinstance(item, slice_type):
            name = slice_type.__name__
            raise InvalidSetting(f"value for slice {name}", displayable(item), f"an instance of {name}")
    return items


class _StagedSlice:
    """A slice while an event is applied. Appended values are written to the list only when `values` is called."""

    __slots__ = ("_appended", "_base", "_is_log", "_slice_type")

    def __init__(self, slice_type: type, base: Values[Any], *, is_log: bool) -> None:
        self._slice_type, self._base, self._is_log = slice_type, base, is_log
        self._appended: tuple[Any, ...] = ()

    def values(self) -> Values[Any]:
        """The values after the reducers so far. Writes the appended values to the list."""
        if self._appended:
            self._base, self._appended = self._base.plus(self._appended), ()
        return self._base

    def apply(self, result: object, values_before: Values[Any]) -> None:
        """Apply the result of a reducer that was called with `values_before`."""
        if result is values_before:
            return
        if isinstance(result, Append):
            self._appended = require_values(self._slice_type, result.values)
        elif isinstance(result, Sequence) and not isinstance(result, (str, bytes)):
            self._replace(require_values(self._slice_type, result))
        else:
            expected = "a sequence with all values of the slice, or Append(value)"
            raise InvalidSetting("return value", displayable(result), expected)

    def _replace(self, values: tuple[Any, ...]) -> None:
        if not self._is_log:
            self._base = Values(values)
        elif values[: len(self._base)] == self._base:
            self._appended = values[len(self._base) :]
        else:
            raise LogIsAppendOnly(self._slice_type.__name__, "the return value")


Change: TypeAlias = Callable[[], Slices]
"""Returns the new slices."""


class SliceTable:
    """The slices of a session, which of them are logs, and their reducers."""

    def __init__(self, logs: frozenset[type] = frozenset()) -> None:
        self._lock = RLock()
        self._slices: Slices = {log: Values() for log in logs}
        self._logs = logs
        self._registrations: dict[type, tuple[Registration, ...]] = {}
        """Event type → the reducers of its events."""
        self._requested_changes: list[Change] | None = None
        """Changes requested by the change that is being applied; None while no change is applied."""

    def values(self, slice_type: type[T]) -> Values[T]:
        return self._slices.get(slice_type) or Values()

    @property
    def logs(self) -> frozenset[type]:
        return self._logs

    def current(self) -> tuple[Slices, frozenset[type]]:
        """All slices after the last complete change, and which of them are logs."""
        with self._lock:
            return FrozenDict(self._slices), self._logs

    def declare_log(self, slice_type: type) -> None:
        def change() -> Slices:
            self._logs |= {slice_type}
            return {**self._slices, slice_type: self.values(slice_type)}

        self._apply(change, "log")

    def register(
        self, event_type: type, slice_type: type, reducer: Reducer[Any, Any], *, is_default: bool = False
    ) -> None:
        """Add a reducer, unless the slice already has it for this event."""
        with self._lock:
            registrations = tuple(
                registration
                for registration in self._registrations.get(event_type, ())
                if not (registration.is_default and registration.slice_type is slice_type)
            )
            slice_reducers = (
                registration.reducer for registration in registrations if registration.slice_type is slice_type
            )
            if not any(is_same_reducer(registered, reducer) for registered in slice_reducers):
                registrations = (*registrations, Registration(slice_type, reducer, is_default))
            self._registrations[event_type] = registrations

    def has_reducer(self, event_type: type, slice_type: type | None = None) -> bool:
        """Whether this slice, or any slice, has a reducer for events of the type."""
        registrations = self._registrations.get(event_type, ())
        return any(slice_type is None or registration.slice_type is slice_type for registration in registrations)

    def require_reducer(self, event: object, slice_type: type | None) -> None:
        """Raise if no reducer is registered for the event, in this slice or (with None) in any slice.

        Raises:
            NoReducer: none is registered.
        """
        if not self.has_reducer(type(event), slice_type):
            event_types = tuple(self._registrations)  # a copy: another thread may register
            names = tuple(event_type.__name__ for event_type in event_types if self.has_reducer(event_type, slice_type))
            raise NoReducer(type(event).__name__, None if slice_type is None else slice_type.__name__, names)

    def dispatch(self, event: object, context: ReducerContext) -> None:
        """Apply an event to every slice that has a reducer for exactly its type.

        Raises:
            ReducerFailed: a reducer failed; nothing was changed.
            EventFailed: several changes failed, of this event and of those that its reducers dispatched.
        """

        def change() -> Slices:
            return slices_after(self._slices, self._logs, self._registrations.get(type(event), ()), event, context)

        self._apply(change, type(event).__name__)

    def append(self, slice_type: type, values: tuple[Any, ...]) -> None:
        self._apply(lambda: {**self._slices, slice_type: self.values(slice_type).plus(values)}, "append")

    def replace(self, slice_type: type, values: tuple[Any, ...], operation: str) -> None:
        """Replace the values of a slice; `operation` names the caller in the error.

        Raises:
            LogIsAppendOnly: the slice is a log.
        """

        def change() -> Slices:
            if slice_type in self._logs:
                raise LogIsAppendOnly(slice_type.__name__, operation)
            return {**self._slices, slice_type: Values(values)}

        self._apply(change, operation)

    def roll_back(self, earlier: Slices) -> None:
        """Restore the STATE slices to earlier values; logs are unchanged."""

        def change() -> Slices:
            state = {slice_type: values for slice_type, values in earlier.items() if slice_type not in self._logs}
            logs = {slice_type: values for slice_type, values in self._slices.items() if slice_type in self._logs}
            return {**state, **logs}

        self._apply(change, "rollback")

    def restore(self, slices: Slices, logs: frozenset[type]) -> None:
        """Replace all slices, logs included.

        Raises:
            LogIsAppendOnly: a log of this table is not empty.
        """

        def change() -> Slices:
            for slice_type in self._logs | logs:
                if self.values(slice_type):
                    raise LogIsAppendOnly(slice_type.__name__, "restore into a session with recorded values")
            self._logs |= logs
            return dict(slices)

        self._apply(change, "restore")

    def _apply(self, change: Change, name: str) -> None:
        """Apply a change and then the changes that its reducers request. A change that a reducer requests is only queued."""
        with self._lock:
            if self._requested_changes is not None:
                self._requested_changes.append(change)
                return
            failures = self._apply_all(change)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise EventFailed(name, failures)

    def _apply_all(self, change: Change) -> list[MinutebookError]:
        queue, failures = deque([change]), []
        while queue:
            requested: list[Change] = []
            self._requested_changes = requested
            try:
                self._slices = queue.popleft()()
                queue.extend(requested)
            except MinutebookError as failure:
                failures.append(failure)
            finally:
                self._requested_changes = None
        return failures
