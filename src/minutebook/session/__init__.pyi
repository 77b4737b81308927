from minutebook.session.bus import (
    InProcessEventBus as InProcessEventBus,
    PublishResult as PublishResult,
)
from minutebook.session.query import (
    Query as Query,
    get_evaluation_history as get_evaluation_history,
    select_all as select_all,
    select_where as select_where,
)
from minutebook.session.reducers import (
    Append as Append,
    Reducer as Reducer,
    ReducerContext as ReducerContext,
    append as append,
    replace_latest as replace_latest,
    upsert_by as upsert_by,
)
from minutebook.session.slices import (
    SliceKind as SliceKind,
)
from minutebook.session.snapshot import (
    Snapshot as Snapshot,
    TypeRegistry as TypeRegistry,
)
from minutebook.session.state import (
    Session as Session,
)

__all__ = [
    "Append",
    "InProcessEventBus",
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
    "select_where",
    "upsert_by",
]
