"""Headers as rows: how a conversation is found, made and changed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.store.codec import microseconds, moment
from minutebook.store.postgres.connection import Again, Query, Work
from minutebook.store.rules import tombstone
from minutebook.store.types import Conversation, ConversationStatus, Origin

COLUMNS: Final = (
    "number, tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, "
    "created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, indexed"
)
FOR_RECIPIENT: Final = "((recipient = %s AND recipient <> id) OR (id = %s AND recipient = id))"
"""Takes a recipient twice. What has none but itself is found by its id; the index of recipients has the others."""
_FIND: Final = f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s"  # noqa: S608 - a constant of ours
_BURIED: Final = "SELECT id FROM minutebook.tombstone WHERE tenant = %s AND id = ANY(%s::bytea[])"
_INSERT: Final = (
    "INSERT INTO minutebook.conversation (tenant, id, recipient, status, version, length, turns, lead, first, indexed,"
    " behind, open_at, open_calls, labels, created_at, updated_at, status_updated_at, origin, origin_id,"
    " origin_position, lineage)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    " ON CONFLICT (tenant, id) DO NOTHING RETURNING number"
)
_GROW: Final = (
    "UPDATE minutebook.conversation AS header SET version = new.version, length = new.length, turns = new.turns,"
    " lead = new.lead, open_at = new.open_at, open_calls = new.open_calls, updated_at = new.updated_at, behind = true"
    " FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::integer[], %s::text[],"
    " %s::bigint[]) AS new (number, version, length, turns, lead, open_at, open_calls, updated_at)"
    " WHERE header.tenant = %s AND header.number = new.number"
)
Span = tuple[int, int, int]
"""The number of a conversation, and the positions from and up to which its entries are meant."""


@dataclass(frozen=True, slots=True)
class Filed:
    """A conversation with its place in the database."""

    number: int
    conversation: Conversation
    lineage: tuple[tuple[int, int], ...] = ()
    """For a fork: the number of the conversation that a stretch is read from, and where that stretch ends."""
    indexed: int = 0
    """The words of its entries before this position can be searched."""

    def spans(self, start: int, stop: int) -> list[Span]:
        """Where the entries of a range stand."""
        found: list[Span] = []
        for number, end in (*self.lineage, (self.number, self.conversation.length)):
            until = min(end, stop)
            if start < until:
                found.append((number, start, until))
                start = until
        return found

    def holder(self, position: int) -> int:
        """The number under which the entry of one position stands."""
        return next((number for number, end in self.lineage if position < end), self.number)

    @property
    def own(self) -> int:
        """The position of the first entry that is not read from another."""
        return self.lineage[-1][1] if self.lineage else 0


async def find(work: Work, conversation: str, *, lock: bool = False) -> Filed | None:
    """The conversation of that id, or None. With `lock`, nobody else changes it until the transaction ends.

    Raises:
        ConversationErased: there was one.
    """
    row = await work.row(f"{_FIND} AND id = %s{' FOR UPDATE' if lock else ''}", work.tenant, conversation)
    if row is not None:
        return filed(row)
    if await buried(work, [conversation]):
        raise ConversationErased(conversation)
    return None


async def found(work: Work, conversation: str, *, lock: bool = False) -> Filed:
    """The conversation of that id.

    Raises:
        ConversationNotFound: there is none.
    """
    known = await find(work, conversation, lock=lock)
    if known is None:
        raise ConversationNotFound(conversation)
    return known


def lookup(tenant: str, conversation: str) -> Query:
    """Asks for the conversation of that id."""
    return f"{_FIND} AND id = %s", (tenant, conversation)


def lock(tenant: str, conversations: Sequence[str]) -> Query:
    """Asks for those that are there, and locks them in the order of their ids, in which everybody locks them."""
    return f"{_FIND} AND id = ANY(%s::text[]) ORDER BY id FOR UPDATE", (tenant, list(conversations))


async def buried(work: Work, conversations: Iterable[str]) -> set[str]:
    """Those of the ids that were erased."""
    marks = {tombstone(work.tenant, name): name for name in conversations}
    rows = await work.rows(_BURIED, work.tenant, list(marks)) if marks else []
    return {marks[mark] for (mark,) in rows}


def filed(row: tuple[Any, ...]) -> Filed:
    """A row of `COLUMNS`."""
    (number, tenant, name, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels) = row[
        :13
    ]
    created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, indexed = row[13:]
    return Filed(
        number,
        Conversation(
            tenant,
            name,
            recipient,
            moment(created_at),
            moment(updated_at),
            moment(status_updated_at),
            ConversationStatus(status),
            version,
            length,
            turns,
            lead,
            first,
            tuple(json.loads(open_calls)) if open_calls else (),
            open_at,
            json.loads(labels) if labels else {},
            None if origin_id is None else Origin(origin_id, origin_position),
        ),
        tuple((source, stop) for source, stop in json.loads(lineage)) if lineage else (),
        indexed,
    )


async def insert(
    work: Work, one: Conversation, *, origin: int | None = None, lineage: tuple[tuple[int, int], ...] = ()
) -> Filed:
    """File a new conversation. Whoever erased one of that id meanwhile is asked last: nobody can come between any more.

    Raises:
        Again: somebody else made or erased it at the same moment.
    """
    indexed = lineage[-1][1] if lineage else 0
    row = await work.row(
        _INSERT,
        *(one.tenant, one.id, one.recipient, one.status.value, one.version, one.length, one.turns, one.lead),
        *(one.first, indexed, indexed < one.length, one.open_at, json_of(one.open_calls), json_of(one.labels)),
        *(microseconds(one.created_at), microseconds(one.updated_at), microseconds(one.status_updated_at), origin),
        *((one.origin.conversation, one.origin.position) if one.origin else (None, None)),
        json_of(lineage),
    )
    if row is None or await buried(work, [one.id]):
        raise Again
    return Filed(row[0], one, lineage, indexed)


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


def json_of(value: Any) -> str | None:
    """JSON in ASCII, which says NUL and lone surrogates too; None for what is empty."""
    return json.dumps(value) if value else None
