"""The session of an evaluation that runs inside another evaluation of the same session."""

from collections.abc import Set as AbstractSet
from typing import TypeVar
from uuid import UUID

from minutebook.record.entry import ConversationRecorded
from minutebook.session.query import Mutation, Query
from minutebook.session.reducers import Reducer
from minutebook.session.slices import SliceKind
from minutebook.session.snapshot import Snapshot
from minutebook.session.state import Session

T = TypeVar("T")
E = TypeVar("E")


class NestedSession(Session):
    """A session with its own values of some slices, which no other session sees. All other slices are the outer session's.

    An event for which its own slices have a reducer changes only these. Snapshots are of the outer session.
    """

    def __init__(self, outer: Session, own_slices: AbstractSet[type], scope: UUID) -> None:
        super().__init__(bus=outer.bus, session_id=outer.session_id, clock=outer.clock)
        self._outer, self._own_slices, self._scope = outer.outermost, own_slices, scope

    @property
    def outermost(self) -> Session:
        return self._outer

    @property
    def scope(self) -> UUID:
        return self._scope

    def query(self, slice_type: type[T]) -> Query[T]:
        return super().query(slice_type) if slice_type in self._own_slices else self._outer.query(slice_type)

    def mutate(self, slice_type: type[T]) -> Mutation[T]:
        return super().mutate(slice_type) if slice_type in self._own_slices else self._outer.mutate(slice_type)

    def log(self, slice_type: type[T]) -> Mutation[T]:
        return self._outer.log(slice_type)

    def kind(self, slice_type: type) -> SliceKind:
        return self._outer.kind(slice_type)

    def register_reducer(self, event_type: type[E], reducer: Reducer[T, E], *, slice_type: type[T]) -> None:
        if slice_type in self._own_slices:
            super().register_reducer(event_type, reducer, slice_type=slice_type)
        else:
            self._outer.register_reducer(event_type, reducer, slice_type=slice_type)

    def dispatch(self, event: object) -> None:
        if self._table.has_reducer(type(event)):
            super().dispatch(event)
        else:
            self._outer.dispatch(event)

    def snapshot(self) -> Snapshot:
        return self._outer.snapshot()

    def rollback(self, snapshot: Snapshot) -> None:
        self._outer.rollback(snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        self._outer.restore(snapshot)

    def _register_entry_log(self) -> None:
        """Do nothing: the outer session records the entries."""

    def _subscribe(self, event_type: type) -> None:
        if event_type is ConversationRecorded:  # other events on the bus are for the outer session
            super()._subscribe(event_type)
