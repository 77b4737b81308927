"""Headers as rows: how a conversation is found, made, changed and listed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.store.backend import ListQuery
from minutebook.store.codec import cursor_of, microseconds, moment, place_of
from minutebook.store.rules import labelled, tombstone
from minutebook.store.sql.transaction import Again, ConversationRow, Query, SqlTransaction
from minutebook.store.types import Conversation, ConversationStatus, Origin, Page

COLUMNS: Final = (
    "number, tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, "
    "created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, indexed"
)
SELECT: Final = f"SELECT {COLUMNS} FROM conversation WHERE tenant = ?"  # noqa: S608 - a constant of ours
_NEW: Final = (
    "tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, created_at, "
    "updated_at, status_updated_at, origin, origin_id, origin_position, lineage, indexed"
)


async def find(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> ConversationRow | None:
    """The conversation of that id, or None. With `lock`, nobody else changes it until the transaction ends.

    Raises:
        ConversationErased: there was one.
    """
    rows = await tx.rows_of(by_id(tx, conversation, lock=lock))
    if rows[0]:
        return row_of(rows[0][0])
    await require_not_erased(tx, conversation)
    return None


async def get(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> ConversationRow:
    """The conversation of that id.

    Raises:
        ConversationNotFound: there is none.
    """
    known = await find(tx, conversation, lock=lock)
    if known is None:
        raise ConversationNotFound(conversation)
    return known


def by_id(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> Query:
    """The query for the conversation of that id."""
    return f"{SELECT} AND id = ?{tx.FOR_UPDATE if lock else ''}", (tx.tenant, conversation)


async def require_not_erased(tx: SqlTransaction, conversation: str) -> None:
    if (await tx.rows_of(_tombstone_query(tx, conversation)))[0]:
        raise ConversationErased(conversation)


def _tombstone_query(tx: SqlTransaction, conversation: str) -> Query:
    return "SELECT 1 FROM tombstone WHERE id = ?", (tombstone(tx.tenant, conversation),)


def row_of(row: Sequence[Any]) -> ConversationRow:
    """A row of `COLUMNS`."""
    number, tenant, name, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels = row[:13]
    created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, indexed = row[13:]
    header = Conversation(
        *(tenant, name, recipient, moment(created_at), moment(updated_at), moment(status_updated_at)),
        *(ConversationStatus(status), version, length, turns, lead, first),
        tuple(json.loads(open_calls)) if open_calls else (),
        open_at,
        json.loads(labels) if labels else {},
        None if origin_id is None else Origin(origin_id, origin_position),
    )
    stretches = tuple((source, stop) for source, stop in json.loads(lineage)) if lineage else ()
    return ConversationRow(number, header, stretches, indexed)


async def insert(
    tx: SqlTransaction,
    one: Conversation,
    *,
    origin: int | None = None,
    lineage: tuple[tuple[int, int], ...] = (),
    **more: Any,
) -> ConversationRow:
    """Add a conversation; `more` are columns that only one of the databases has.

    Whether one of that id was erased is asked last: by then nobody can come between.

    Raises:
        Again: another transaction made or erased it at the same moment.
    """
    indexed = lineage[-1][1] if lineage else 0
    values = (
        *(one.tenant, one.id, one.recipient, one.status.value, one.version, one.length, one.turns, one.lead, one.first),
        *(one.open_at, json_of(one.open_calls), json_of(one.labels), microseconds(one.created_at)),
        *(microseconds(one.updated_at), microseconds(one.status_updated_at), origin),
        *((one.origin.conversation, one.origin.position) if one.origin else (None, None)),
        *(json_of(lineage), indexed, *more.values()),
    )
    rows, erased = await tx.rows_of((_insertion(tuple(more)), values), _tombstone_query(tx, one.id))
    if erased or not rows:
        raise Again
    return ConversationRow(rows[0][0], one, lineage, indexed)


@lru_cache
def _insertion(more: tuple[str, ...]) -> str:
    columns = f"{_NEW}, {', '.join(more)}" if more else _NEW
    values = ", ".join("?" * len(columns.split(",")))
    return (
        f"INSERT INTO conversation ({columns}) VALUES ({values}) ON CONFLICT (tenant, id) DO NOTHING RETURNING number"  # noqa: S608 - names of columns
    )


async def set_status(
    tx: SqlTransaction, row: ConversationRow, status: ConversationStatus, at: datetime
) -> Conversation:
    change = "UPDATE conversation SET status = ?, status_updated_at = ? WHERE number = ?"
    await tx.put(change, status.value, microseconds(at), row.number)
    return replace(row.conversation, status=status, status_updated_at=at)


async def set_labels(tx: SqlTransaction, row: ConversationRow, labels: Mapping[str, str | None]) -> Conversation:
    changed = labelled(row.conversation, labels)
    await tx.put("UPDATE conversation SET labels = ? WHERE number = ?", json_of(dict(changed.labels)), row.number)
    return changed


_NEWEST_FIRST: Final = "ORDER BY created_at DESC, id LIMIT ?"
_OF_STATUS: Final = "status || '' = ?"
"""Written so that nobody uses the index of a status to find one recipient's."""
_ONE: Final = "LIMIT ? OFFSET 0"
"""What is one row at most is looked up, and in no order: an index that has one would be read through."""


async def page(tx: SqlTransaction, query: ListQuery) -> Page[Conversation]:
    """The conversations after a cursor, newest first; there is an index for each way to ask."""
    after, rest = place_of(query.cursor, int, str), ""
    if after is not None:
        rest, after = (
            " AND created_at <= ? AND (created_at < ? OR id > ?)",
            (after[0], *after),
        )  # an index seeks the first
    parts, values = list[str](), list[Any]()
    for where, names, end in _ways(query.recipient, query.status):
        parts.append(f"SELECT * FROM ({SELECT} AND {where}{rest} {end}) AS part")  # noqa: S608 - made of constants
        values += [tx.tenant, *names, *(after or ()), query.limit + 1]
    statement = f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS found {_NEWEST_FIRST}"  # noqa: S608 - made of constants
    *_, rows = await tx.rows_of(*tx.IN_ORDER, (statement, (*values, query.limit + 1)))
    found = tuple(row_of(row).conversation for row in rows[: query.limit])
    more = len(rows) > query.limit
    return Page(found, cursor_of(microseconds(found[-1].created_at), found[-1].id) if more else None)


def _ways(recipient: str | None, status: ConversationStatus | None) -> list[tuple[str, tuple[str, ...], str]]:
    """Conditions, their values and an order, which together find all that is meant; there is an index for each.

    What has no recipient but itself is found by its id, the others by their recipient. Those of any status are merged from
    those of each.
    """
    if recipient is None:
        wanted = [status] if status else list(ConversationStatus)
        return [("status = ?", (one.value,), _NEWEST_FIRST) for one in wanted]
    kind, names = ("", (recipient,)) if status is None else (f" AND {_OF_STATUS}", (recipient, status.value))
    return [
        (f"recipient = ? AND recipient <> id{kind}", names, _NEWEST_FIRST),
        (f"id = ? AND recipient = id{kind}", names, _ONE),
    ]


def json_of(value: Any) -> str | None:
    """JSON in ASCII, which has NUL and lone surrogates too; None for what is empty."""
    return json.dumps(value) if value else None
