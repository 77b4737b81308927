"""A session: everything one run of an agent knows, as typed slices that events are folded into."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import RLock
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID, uuid4

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.session.bus import InProcessEventBus, Unsubscribe
from minutebook.session.query import Mutation, Query
from minutebook.session.reducers import Append, Reducer, ReducerContext
from minutebook.session.slices import SliceKind, SliceTable
from minutebook.session.snapshot import Snapshot

T = TypeVar("T")
E = TypeVar("E")


def _now() -> datetime:
    return datetime.now(UTC)


def _entry(
    values: Sequence[ConversationEntry],  # noqa: ARG001 - a reducer's shape
    event: ConversationRecorded,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Append[ConversationEntry]:
    return Append(event.entry)


_RECORD: Final = frozenset({ConversationEntry})
"""The slices that are logs in every session."""


class Session:
    """Typed slices, the reducers that fold events into them, and a bus that brings the events.

    Every session records the entries of its own `ConversationRecorded` events in the log of `ConversationEntry`. From
    the bus it takes events that carry its `session_id`, and those that have no such field; never another session's.
    Close it (it is a context manager) when the bus outlives it. Any thread may use it.
    """

    def __init__(
        self,
        *,
        bus: InProcessEventBus | None = None,
        session_id: UUID | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._bus = InProcessEventBus() if bus is None else bus
        self._session_id = uuid4() if session_id is None else session_id
        self._clock = clock
        self._table = SliceTable(_RECORD)
        self._lock = RLock()
        self._closed = False
        self._subscriptions: dict[type, Unsubscribe] = {}
        self._table.register(ConversationRecorded, ConversationEntry, _entry, is_default=True)
        self._listen(ConversationRecorded)

    @property
    def session_id(self) -> UUID:
        """Which session this is."""
        return self._session_id

    @property
    def bus(self) -> InProcessEventBus:
        """The bus it listens to; its own if it was given none."""
        return self._bus

    def query(self, slice_type: type[T]) -> Query[T]:
        """Read a slice; one that nothing was put in is empty."""
        require_type("slice_type", slice_type)
        return Query(lambda: self._table.values(slice_type))

    def mutate(self, slice_type: type[T]) -> Mutation[T]:
        """Change a slice."""
        require_type("slice_type", slice_type)
        return Mutation(self, self._table, slice_type)

    def log(self, slice_type: type[T]) -> Mutation[T]:
        """Make a slice a log from now on: it only grows, and no rollback takes anything from it."""
        self._table.declare_log(require_type("slice_type", slice_type))
        return self.mutate(slice_type)

    def kind(self, slice_type: type) -> SliceKind:
        return SliceKind.LOG if slice_type in self._table.logs else SliceKind.STATE

    def register_reducer(self, event_type: type[E], reducer: Reducer[T, E], *, slice_type: type[T]) -> None:
        """Let a reducer fold every event of exactly this type into a slice; a second time has no effect.

        The first one that is registered for `ConversationRecorded` into `ConversationEntry` takes the place of the
        session's own.
        """
        self._table.register(require_type("event_type", event_type), require_type("slice_type", slice_type), reducer)
        self._listen(event_type)

    def dispatch(self, event: object) -> None:
        """Fold an event into every slice that has a reducer for exactly its type, or into none of them.

        From inside a reducer it waits until the event being reduced is committed.

        Raises:
            NoReducer: nothing is registered for the event's type.
            ReducerFailed: a reducer failed, and no slice was changed.
        """
        self._table.require_reducer(event, None)
        self._table.dispatch(event, ReducerContext(self, self._clock()))

    def snapshot(self) -> Snapshot:
        """All the slices as they are now; it copies none of them."""
        slices, logs = self._table.now()
        return Snapshot(self._session_id, self._clock(), slices, logs)

    def rollback(self, snapshot: Snapshot) -> None:
        """Give every STATE slice the values it had; logs keep all they have.

        Raises:
            InvalidSetting: the snapshot is another session's.
        """
        if snapshot.session_id != self._session_id:
            raise InvalidSetting(
                "snapshot.session_id", str(snapshot.session_id), f"a snapshot of this session, {self._session_id}"
            )
        self._table.roll_back(snapshot.slices)

    def restore(self, snapshot: Snapshot) -> None:
        """Take over every slice of a snapshot, logs included, in a session that has recorded nothing yet.

        To go on as the same session, give that one `session_id=snapshot.session_id`.

        Raises:
            LogIsAppendOnly: this session's logs are not empty.
        """
        self._table.restore(snapshot.slices, snapshot.logs)

    def close(self) -> None:
        """Stop listening to the bus. What the session holds can still be read, and changed directly."""
        with self._lock:
            self._closed = True
            while self._subscriptions:
                self._subscriptions.popitem()[1]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        slices, _ = self._table.now()
        counts = ", ".join(f"{into.__name__}: {len(values)}" for into, values in slices.items())
        return f"<Session {self._session_id} {{{counts}}}>"

    def _listen(self, event_type: type) -> None:
        with self._lock:
            if not self._closed and event_type not in self._subscriptions:
                self._subscriptions[event_type] = self._bus.subscribe(
                    event_type, self.dispatch, session_id=self._session_id
                )


def require_type(name: str, value: object) -> type:
    """The value, if it is a class.

    Raises:
        InvalidSetting: it is not.
    """
    if not isinstance(value, type):
        raise InvalidSetting(name, value, "a class")
    return value
