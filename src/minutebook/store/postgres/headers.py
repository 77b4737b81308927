"""What a group of appends asks of the headers: all of them in one statement."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from minutebook.store.codec import microseconds
from minutebook.store.postgres.connection import Work
from minutebook.store.rules import tombstone
from minutebook.store.sql.headers import COLUMNS, json_of
from minutebook.store.sql.transaction import Query
from minutebook.store.types import Conversation

_FIND: Final = f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s"  # noqa: S608 - a constant of ours
_BURIED: Final = "SELECT id FROM minutebook.tombstone WHERE tenant = %s AND id = ANY(%s::bytea[])"
_GROW: Final = (
    "UPDATE minutebook.conversation AS header SET version = new.version, length = new.length, turns = new.turns,"
    " lead = new.lead, open_at = new.open_at, open_calls = new.open_calls, updated_at = new.updated_at, behind = true"
    " FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::text[],"
    " %s::bigint[]) AS new (number, version, length, turns, lead, open_at, open_calls, updated_at)"
    " WHERE header.tenant = %s AND header.number = new.number"
)


def lock(tenant: str, conversations: Sequence[str]) -> Query:
    """Asks for those that are there, and locks them in the order of their ids, in which everybody locks them."""
    return f"{_FIND} AND id = ANY(%s::text[]) ORDER BY id FOR UPDATE", (tenant, list(conversations))


async def buried(work: Work, conversations: Iterable[str]) -> set[str]:
    """Those of the ids that were erased."""
    marks = {tombstone(work.tenant, name): name for name in conversations}
    rows = await work.rows(_BURIED, work.tenant, list(marks)) if marks else []
    return {marks[mark] for (mark,) in rows}


def grow(tenant: str, grown: Mapping[int, Conversation]) -> Query:
    """Writes what appends change, by number; no index is touched but the first time that one's index falls behind."""
    ones = list(grown.values())
    values = (
        list(grown),
        [one.version for one in ones],
        [one.length for one in ones],
        [one.turns for one in ones],
        [one.lead for one in ones],
        [one.open_at for one in ones],
        [json_of(one.open_calls) for one in ones],
        [microseconds(one.updated_at) for one in ones],
        tenant,
    )
    return _GROW, values
