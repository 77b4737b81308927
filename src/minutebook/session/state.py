"""A session: the state of one agent run, as typed slices that reducers update from events."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock, RLock
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID, uuid4

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.session.bus import InProcessEventBus, Unsubscribe
from minutebook.session.display import displayable
from minutebook.session.query import Mutation, Query
from minutebook.session.reducers import Append, Reducer, ReducerContext
from minutebook.session.slices import SliceKind, SliceTable
from minutebook.session.snapshot import Snapshot

T = TypeVar("T")
E = TypeVar("E")


def _now() -> datetime:
    return datetime.now(UTC)


def _append_entry(
    values: Sequence[ConversationEntry],  # noqa: ARG001 - a reducer's signature
    event: ConversationRecorded,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Append[ConversationEntry]:
    return Append(event.entry)


_LOGS: Final = frozenset({ConversationEntry})
"""The slices that are logs in every session."""


class Session:
    """Typed slices, the reducers that update them, and the bus that delivers the events.

    Every session has a log of `ConversationEntry` with the entries of its `ConversationRecorded` events. A session receives
    the events of the bus that have its `session_id` or no such field, never those of another session. Close the session (it
    is a context manager) if the bus lives longer. Sessions are thread-safe.
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
        self.clock = clock
        self._table = SliceTable(_LOGS)
        self._lock = RLock()
        self._is_closed = False
        self._subscriptions: dict[type, Unsubscribe] = {}
        self.evaluation_lock = Lock()
        """Held by the evaluation in progress. Another evaluation that starts before its end gets a `NestedSession`."""
        self._register_entry_log()

    def _register_entry_log(self) -> None:
        self._table.register(ConversationRecorded, ConversationEntry, _append_entry, is_default=True)
        self._subscribe(ConversationRecorded)

    @property
    def session_id(self) -> UUID:
        """The id that addresses events to this session."""
        return self._session_id

    @property
    def bus(self) -> InProcessEventBus:
        """The bus that the session subscribes to; a new one unless one was passed."""
        return self._bus

    @property
    def outermost(self) -> "Session":
        """The session itself, or that of the outermost evaluation if this one belongs to a nested evaluation."""
        return self

    @property
    def scope(self) -> UUID | None:
        """The id of the nested evaluation that the session belongs to; None if it belongs to none."""
        return None

    def query(self, slice_type: type[T]) -> Query[T]:
        """Read a slice. A slice without values is empty, even if it was never used."""
        require_class("slice_type", slice_type)
        return Query(lambda: self._table.values(slice_type))

    def mutate(self, slice_type: type[T]) -> Mutation[T]:
        """Change a slice."""
        require_class("slice_type", slice_type)
        return Mutation(self, self._table, slice_type)

    def log(self, slice_type: type[T]) -> Mutation[T]:
        """Make a slice an append-only log from now on. A rollback keeps all its values."""
        self._table.declare_log(require_class("slice_type", slice_type))
        return self.mutate(slice_type)

    def kind(self, slice_type: type) -> SliceKind:
        return SliceKind.LOG if slice_type in self._table.logs else SliceKind.STATE

    def register_reducer(self, event_type: type[E], reducer: Reducer[T, E], *, slice_type: type[T]) -> None:
        """Use a reducer for every event of exactly this type. Registering it again has no effect.

        The first reducer of `ConversationRecorded` for the slice `ConversationEntry` replaces the session's default.
        """
        self._table.register(require_class("event_type", event_type), require_class("slice_type", slice_type), reducer)
        self._subscribe(event_type)

    def dispatch(self, event: object) -> None:
        """Apply an event atomically to every slice that has a reducer for exactly its type.

        An event dispatched by a reducer is applied after the current event.

        Raises:
            NoReducer: no reducer is registered for the event's type.
            ReducerFailed: a reducer failed, and no slice was changed.
        """
        self._table.require_reducer(event, None)
        self._table.dispatch(event, ReducerContext(self, self.clock()))

    def snapshot(self) -> Snapshot:
        """The current values of all slices, without a copy."""
        slices, logs = self._table.current()
        return Snapshot(self._session_id, self.clock(), slices, logs)

    def rollback(self, snapshot: Snapshot) -> None:
        """Restore every STATE slice to its values in the snapshot; logs are unchanged.

        Raises:
            InvalidSetting: the snapshot is of another session.
        """
        if snapshot.session_id != self._session_id:
            expected = f"the id of this session, {self._session_id}"
            raise InvalidSetting("snapshot.session_id", str(snapshot.session_id), expected)
        self._table.roll_back(snapshot.slices)

    def restore(self, snapshot: Snapshot) -> None:
        """Load every slice of a snapshot, logs included, into a session whose logs are empty.

        To continue the same session, create this one with `session_id=snapshot.session_id`.

        Raises:
            LogIsAppendOnly: a log of this session is not empty.
        """
        self._table.restore(snapshot.slices, snapshot.logs)

    def close(self) -> None:
        """Unsubscribe from the bus. The slices can still be read and changed."""
        with self._lock:
            self._is_closed = True
            while self._subscriptions:
                self._subscriptions.popitem()[1]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        slices, _ = self._table.current()
        counts = ", ".join(f"{slice_type.__name__}: {len(values)}" for slice_type, values in slices.items())
        return f"<Session {self._session_id} {{{counts}}}>"

    def _subscribe(self, event_type: type) -> None:
        with self._lock:
            if not self._is_closed and event_type not in self._subscriptions:
                self._subscriptions[event_type] = self._bus.subscribe(
                    event_type, self.dispatch, session_id=self._session_id
                )


def require_class(name: str, value: object) -> type:
    """The value, if it is a class.

    Raises:
        InvalidSetting: it is not a class.
    """
    if not isinstance(value, type):
        raise InvalidSetting(name, displayable(value), "a class")
    return value
