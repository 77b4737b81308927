"""Reading and changing one slice of a session: `session.query(T)` and `session.mutate(T)`.

A slice is the session's values of one type. `select_all`, `select_where` and `get_evaluation_history` are functions that read a session or a snapshot.
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
    """Reads one slice. Each call returns the current values."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Values[T]]) -> None:
        self._read = read

    def all(self) -> tuple[T, ...]:
        """Every value, oldest first. The tuple is cached until the slice changes."""
        return self._read().as_tuple()

    def slice(self) -> Sequence[T]:
        """The values as an immutable sequence, without building a tuple: for a long log that is read after every append."""
        return self._read()

    def latest(self) -> T | None:
        """The newest value, or None."""
        values = self._read()
        return values[-1] if values else None

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """The values that satisfy a predicate, oldest first."""
        return tuple(filter(predicate, self._read()))


class Mutation(Generic[T]):
    """Changes one slice. Each change is atomic, and changes of several threads run one after another."""

    __slots__ = ("_session", "_slice_type", "_table")

    def __init__(self, session: "Session", table: SliceTable, slice_type: type[T]) -> None:
        self._session, self._table, self._slice_type = session, table, slice_type

    def register(self, event_type: type[E], reducer: Reducer[T, E]) -> "Mutation[T]":
        """Use a reducer for every event of exactly this type. Registering it again has no effect."""
        self._session.register_reducer(event_type, reducer, slice_type=self._slice_type)
        return self

    def dispatch(self, event: object) -> None:
        """Apply an event to this slice, and to every other slice that has a reducer for its type.

        Raises:
            NoReducer: this slice has no reducer for the event.
            ReducerFailed: a reducer failed, and no slice was changed.
        """
        self._table.require_reducer(event, self._slice_type)
        self._session.dispatch(event)

    def seed(self, values: Iterable[T] | T) -> None:
        """Replace the values of the slice with these values, or with this one.

        Raises:
            LogIsAppendOnly: the slice is a log.
        """
        items: Iterable[object] = (values,) if isinstance(values, self._slice_type) else values  # type: ignore[assignment]
        self._table.replace(self._slice_type, require_values(self._slice_type, items), "seed")

    def append(self, value: T) -> None:
        """Add a value, in amortized O(1)."""
        self._table.append(self._slice_type, require_values(self._slice_type, (value,)))

    def clear(self) -> None:
        """Remove all values of the slice.

        Raises:
            LogIsAppendOnly: the slice is a log.
        """
        self._table.replace(self._slice_type, (), "clear")


class Queryable(Protocol):
    """A session or a snapshot."""

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
    """Return all conversation entries of one evaluation, in the order of their sequence numbers."""
    entries = select_where(session, ConversationEntry, lambda entry: entry.evaluation_id == evaluation_id)
    return tuple(sorted(entries, key=attrgetter("sequence")))
