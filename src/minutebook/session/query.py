"""`session.query(T)` and `session.mutate(T)`: one slice, to read and to change.

Reading a session or a snapshot with plain functions.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from uuid import UUID

from minutebook.record.entry import ConversationEntry
from minutebook.session.reducers import Reducer
from minutebook.session.slices import SliceTable, Values, require_values

if TYPE_CHECKING:
    from minutebook.session.state import Session


T = TypeVar("T")
E = TypeVar("E")


class Query(Generic[T]):
    """Reads one slice, each time as it is then."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Values[T]]) -> None:
        self._read = read

    def all(self) -> tuple[T, ...]:
        """Every value, oldest first. The tuple is made once per change; `slice` makes none."""
        return self._read().as_tuple()

    def slice(self) -> Sequence[T]:
        """The values as an immutable sequence, without a copy: for a long log that is read after every append."""
        return self._read()

    def latest(self) -> T | None:
        """The newest value, or None."""
        values = self._read()
        return values[-1] if values else None

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """The values that satisfy a predicate, oldest first."""
        return tuple(filter(predicate, self._read()))


class Mutation(Generic[T]):
    """Changes one slice. Each change is made whole, and by one thread at a time."""

    __slots__ = ("_session", "_slice_type", "_table")

    def __init__(self, session: "Session", table: SliceTable, slice_type: type[T]) -> None:
        self._session, self._table, self._slice_type = session, table, slice_type

    def register(self, event_type: type[E], reducer: Reducer[T, E]) -> "Mutation[T]":
        """Let a reducer fold every event of exactly this type into the slice; a second time has no effect."""
        self._session.register_reducer(event_type, reducer, slice_type=self._slice_type)
        return self

    def dispatch(self, event: object) -> None:
        """Fold an event into this slice, and into every other that has a reducer for its type.

        Raises:
            NoReducer: this slice has none for it.
            ReducerFailed: a reducer failed, and no slice was changed.
        """
        self._table.require_reducer(event, self._slice_type)
        self._session.dispatch(event)

    def seed(self, values: Iterable[T] | T) -> None:
        """Start the slice over with these values, or this one.

        Raises:
            LogIsAppendOnly: the slice is a log.
        """
        given: Iterable[object] = (values,) if isinstance(values, self._slice_type) else values  # type: ignore[assignment]
        self._table.replace(self._slice_type, require_values(self._slice_type, given), "seed")

    def append(self, value: T) -> None:
        """Add a value, in amortised O(1)."""
        self._table.append(self._slice_type, require_values(self._slice_type, (value,)))

    def clear(self) -> None:
        """Empty the slice.

        Raises:
            LogIsAppendOnly: the slice is a log.
        """
        self._table.replace(self._slice_type, (), "clear")


class Queryable(Protocol):
    """What has slices to read: a session, or a snapshot of one."""

    def query(self, slice_type: type[T], /) -> Query[T]:
        """Read a slice."""
        ...


def select_all(session: Queryable, slice_type: type[T]) -> tuple[T, ...]:
    """Every value of a slice, oldest first."""
    return session.query(slice_type).all()


def select_where(session: Queryable, slice_type: type[T], predicate: Callable[[T], bool]) -> tuple[T, ...]:
    """The values of a slice that satisfy a predicate, oldest first."""
    return session.query(slice_type).where(predicate)


def get_evaluation_history(session: Queryable, evaluation_id: UUID) -> tuple[ConversationEntry, ...]:
    """Return all conversation entries for a specific evaluation, by their sequence."""
    entries = select_where(session, ConversationEntry, lambda entry: entry.evaluation_id == evaluation_id)
    return tuple(sorted(entries, key=attrgetter("sequence")))
