"""The session: typed slices of state, reducers, snapshots, and the event bus.

A session is the state of one agent run in one process. Conversations that must outlive the process are kept in a
`minutebook.store`. Start with `state`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "bus": ("InProcessEventBus", "PublishResult"),
    "query": ("Query", "get_evaluation_history", "select_all", "select_where"),
    "reducers": ("Append", "Reducer", "ReducerContext", "append", "replace_latest", "upsert_by"),
    "slices": ("SliceKind",),
    "snapshot": ("Snapshot", "TypeRegistry"),
    "state": ("Session",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
