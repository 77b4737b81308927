"""The event-sourced session: typed slices, reducers, snapshots, and the bus that brings the events."""

from minutebook.session.bus import HandlerFailure, InProcessEventBus, PublishResult
from minutebook.session.fluent import Mutation, Query
from minutebook.session.reducer import Append, Reducer, ReducerContext, append, replace_latest, upsert_by
from minutebook.session.registry import TypeRegistry
from minutebook.session.select import get_evaluation_history, select_all, select_latest, select_where
from minutebook.session.session import Session
from minutebook.session.snapshot import Snapshot
from minutebook.session.staging import SliceKind

__all__ = [
    "Append",
    "HandlerFailure",
    "InProcessEventBus",
    "Mutation",
    "PublishResult",
    "Query",
    "Reducer",
    "ReducerContext",
    "Session",
    "SliceKind",
    "Snapshot",
    "TypeRegistry",
    "append",
    "get_evaluation_history",
    "replace_latest",
    "select_all",
    "select_latest",
    "select_where",
    "upsert_by",
]
