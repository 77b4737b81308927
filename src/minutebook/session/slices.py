"""The typed slices of one session: who reduces what, and one change at a time.

Reading needs no lock: a change builds the new slices aside and puts them in place at once. A change that is asked for
while another is being made (by a reducer) waits until that one is in place; if that one fails, it is dropped with it.

The values of a slice: nobody can change them, and appending to them is cheap.

Values that grow out of one another share one list, and each knows how much of it is its own. The newest appends in
place; an older one that is appended to (after a rollback) copies its part first. So a million appends copy nothing,
and a snapshot costs nothing.

One event, folded into the slices: all of its reducers succeed, or nothing has happened.
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
from minutebook.session.reducers import Append, Reducer, ReducerContext, is_same

T = TypeVar("T")


class _Shared(Generic[T]):
    __slots__ = ("items", "lock")

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.lock = Lock()


class Values(Sequence[T]):
    """An immutable sequence that is equal to the tuple of its values."""

    __slots__ = ("_count", "_shared", "_tuple")
    _shared: _Shared[T]
    _count: int
    _tuple: tuple[T, ...] | None

    def __init__(self, values: Iterable[T] = ()) -> None:
        items = list(values)
        self._shared, self._count, self._tuple = _Shared(items), len(items), None

    def plus(self, more: tuple[T, ...]) -> "Values[T]":
        """These values and then more; amortised O(more)."""
        shared = self._shared
        with shared.lock:
            if len(shared.items) != self._count:  # another has gone on from here, the tail is taken
                shared = _Shared(shared.items[: self._count])
            shared.items.extend(more)
        longer: Values[T] = Values.__new__(Values)
        longer._shared, longer._count, longer._tuple = shared, self._count + len(more), None
        return longer

    def as_tuple(self) -> tuple[T, ...]:
        """The tuple of the values, made when first asked for."""
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
        places = range(self._count)[index]
        items = self._shared.items
        return items[places] if isinstance(places, int) else tuple(items[place] for place in places)

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


Change: TypeAlias = Callable[[], Slices]


class SliceTable:
    """The slices, their kinds and their reducers."""

    def __init__(self, logs: frozenset[type] = frozenset()) -> None:
        self._lock = RLock()
        self._slices: Slices = {log: Values() for log in logs}
        self._logs = logs
        self._registrations: dict[type, tuple[Registration, ...]] = {}
        self._waiting: list[Change] | None = None

    def values(self, slice_type: type[T]) -> Values[T]:
        return self._slices.get(slice_type) or Values()

    @property
    def logs(self) -> frozenset[type]:
        return self._logs

    def now(self) -> tuple[Mapping[type, Values[Any]], frozenset[type]]:
        """All the slices as one event left them, and which of them are logs."""
        with self._lock:
            return FrozenDict(self._slices), self._logs

    def declare_log(self, slice_type: type) -> None:
        def change() -> Slices:
            self._logs |= {slice_type}
            return {**self._slices, slice_type: self.values(slice_type)}

        self._make(change, "log")

    def register(
        self, event_type: type, slice_type: type, reducer: Reducer[Any, Any], *, is_default: bool = False
    ) -> None:
        """Add a reducer, unless it is already there."""
        with self._lock:
            others = self._registrations.get(event_type, ())
            kept = tuple(one for one in others if not (one.is_default and one.slice_type is slice_type))
            if not any(one.slice_type is slice_type and is_same(one.reducer, reducer) for one in kept):
                kept = (*kept, Registration(slice_type, reducer, is_default))
            self._registrations[event_type] = kept

    def require_reducer(self, event: object, slice_type: type | None) -> None:
        """Do nothing if the event would be reduced, into the slice if one is named.

        Raises:
            NoReducer: it would not.
        """

        def is_reduced(event_type: type) -> bool:
            found = self._registrations.get(event_type, ())
            return any(slice_type is None or one.slice_type is slice_type for one in found)

        if not is_reduced(type(event)):
            known = tuple(event_type.__name__ for event_type in tuple(self._registrations) if is_reduced(event_type))
            raise NoReducer(type(event).__name__, None if slice_type is None else slice_type.__name__, known)

    def dispatch(self, event: object, context: ReducerContext) -> None:
        """Fold an event into every slice that has a reducer for exactly its type.

        Raises:
            ReducerFailed: nothing was changed.
            EventFailed: the event, or what its reducers dispatched in turn, failed more than once.
        """

        def change() -> Slices:
            return reduced(self._slices, self._logs, self._registrations.get(type(event), ()), event, context)

        self._make(change, type(event).__name__)

    def append(self, slice_type: type, values: tuple[Any, ...]) -> None:
        self._make(lambda: {**self._slices, slice_type: self.values(slice_type).plus(values)}, "append")

    def replace(self, slice_type: type, values: tuple[Any, ...], attempt: str) -> None:
        """Put other values in place of a slice's.

        Raises:
            LogIsAppendOnly: it is a log.
        """

        def change() -> Slices:
            if slice_type in self._logs:
                raise LogIsAppendOnly(slice_type.__name__, attempt)
            return {**self._slices, slice_type: Values(values)}

        self._make(change, attempt)

    def roll_back(self, earlier: Slices) -> None:
        """Give the STATE slices the values they had; the logs stay."""

        def change() -> Slices:
            logs = {into: values for into, values in self._slices.items() if into in self._logs}
            return {**{into: values for into, values in earlier.items() if into not in self._logs}, **logs}

        self._make(change, "rollback")

    def restore(self, slices: Slices, logs: frozenset[type]) -> None:
        """Take over all the slices of another table.

        Raises:
            LogIsAppendOnly: something has been recorded here already.
        """

        def change() -> Slices:
            for into in self._logs | logs:
                if self.values(into):
                    raise LogIsAppendOnly(into.__name__, "restoring into a session that has recorded something")
            self._logs |= logs
            return dict(slices)

        self._make(change, "restore")

    def _make(self, change: Change, name: str) -> None:
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(change)
                return
            failures = self._make_all(change)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise EventFailed(name, failures)

    def _make_all(self, change: Change) -> list[MinutebookError]:
        line, failures = deque([change]), []
        while line:
            following: list[Change] = []
            self._waiting = following
            try:
                self._slices = line.popleft()()
                line.extend(following)
            except MinutebookError as failure:
                failures.append(failure)
            finally:
                self._waiting = None
        return failures
