"""The typed slices of one session: who reduces what, and one change at a time.

Reading needs no lock: a change builds the new slices aside and puts them in place at once. A change that is asked for
while another is being made (by a reducer) waits until that one is in place; if that one fails, it is dropped with it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, TypeAlias, TypeVar

from minutebook.errors import EventFailed, LogIsAppendOnly, MinutebookError, NoReducer
from minutebook.record.frozen import FrozenDict
from minutebook.session.reducer import Reducer, ReducerContext, is_same
from minutebook.session.staging import Registration, Slices, reduced
from minutebook.session.values import Values

T = TypeVar("T")
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
