"""The event-sourced session: typed slices, reducers, snapshots, and the bus that brings the events."""

from minutebook.session.bus import EventFailed, HandlerFailure, InProcessEventBus, PublishResult
from minutebook.session.fluent import Mutation, Query
from minutebook.session.reducer import Append, Reducer, ReducerContext, append, replace_latest, upsert_by
from minutebook.session.registry import NotStorable, TypeRegistry, UnknownType
from minutebook.session.select import get_evaluation_history, select_all, select_latest, select_where
from minutebook.session.session import Session
from minutebook.session.slices import NoReducer
from minutebook.session.snapshot import Snapshot
from minutebook.session.staging import LogIsAppendOnly, ReducerFailed, SliceKind

__all__ = [
    "Append",
    "EventFailed",
    "HandlerFailure",
    "InProcessEventBus",
    "LogIsAppendOnly",
    "Mutation",
    "NoReducer",
    "NotStorable",
    "PublishResult",
    "Query",
    "Reducer",
    "ReducerContext",
    "ReducerFailed",
    "Session",
    "SliceKind",
    "Snapshot",
    "TypeRegistry",
    "UnknownType",
    "append",
    "get_evaluation_history",
    "replace_latest",
    "select_all",
    "select_latest",
    "select_where",
    "upsert_by",
]
