"""Headers as rows: find, insert, change and list conversations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from minutebook.errors import ConversationErased, ConversationNotFound, RecipientBlocked
from minutebook.store.backend import ListQuery
from minutebook.store.codec import cursor_of, cursor_values, microseconds, moment
from minutebook.store.rules import id_hash, recipient_hash, with_labels
from minutebook.store.sql.transaction import ConversationRow, Query, SqlTransaction, TransactionConflict
from minutebook.store.types import ConversationHeader, ConversationStatus, ForkOrigin, Page

COLUMNS: Final = (
    "number, tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, "
    "created_at, updated_at, status_updated_at, origin_id, origin_position, lineage, revision, requests"
)
SELECT: Final = f"SELECT {COLUMNS} FROM conversation WHERE tenant = ?"  # noqa: S608 - a constant of ours
_INSERT_COLUMNS: Final = (
    "tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, created_at, "
    "updated_at, status_updated_at, origin, origin_id, origin_position, lineage"
)


async def find(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> ConversationRow | None:
    """The conversation with this id, or None. With `lock`, its row is locked until the transaction ends.

    Raises:
        ConversationErased: it was erased.
    """
    (rows,) = await tx.query(header_query(tx, conversation, lock=lock))
    if rows:
        return row_of(rows[0])
    await require_not_erased(tx, conversation)
    return None


async def get(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> ConversationRow:
    """The conversation with this id.

    Raises:
        ConversationNotFound: it does not exist.
    """
    row = await find(tx, conversation, lock=lock)
    if row is None:
        raise ConversationNotFound(conversation)
    return row


def header_query(tx: SqlTransaction, conversation: str, *, lock: bool = False) -> Query:
    """The query for the row of a conversation."""
    return f"{SELECT} AND id = ?{tx.FOR_UPDATE if lock else ''}", (tx.tenant, conversation)


async def require_not_erased(tx: SqlTransaction, conversation: str) -> None:
    if (await tx.query(_tombstone_query(tx, conversation)))[0]:
        raise ConversationErased(conversation)


def _tombstone_query(tx: SqlTransaction, conversation: str) -> Query:
    return "SELECT 1 FROM tombstone WHERE id = ?", (id_hash(tx.tenant, conversation),)


def row_of(columns: Sequence[Any]) -> ConversationRow:
    """The conversation of a result row with `COLUMNS`."""
    number, tenant, header_id, recipient, status, version, length, turns, lead, first = columns[:10]
    open_at, open_calls, labels, created_at, updated_at, status_updated_at = columns[10:16]
    origin_id, origin_position, lineage, revision, requests = columns[16:]
    header = ConversationHeader(
        *(tenant, header_id, recipient, moment(created_at), moment(updated_at), moment(status_updated_at)),
        *(ConversationStatus(status), version, length, turns, lead, first),
        tuple(json.loads(open_calls)) if open_calls else (),
        open_at,
        json.loads(labels) if labels else {},
        None if origin_id is None else ForkOrigin(origin_id, origin_position),
        revision,
        requests,
    )
    return ConversationRow(number, header, tuple((source, stop) for source, stop in json.loads(lineage or "[]")))


async def insert(
    tx: SqlTransaction,
    header: ConversationHeader,
    *,
    origin_number: int | None = None,
    lineage: tuple[tuple[int, int], ...] = (),
    **extra_columns: Any,
) -> ConversationRow:
    """Insert a conversation; `extra_columns` are those that only one of the databases has.

    `origin_number` is the `number` of the conversation that it is a fork of.

    Checks for a tombstone after the insert: from then on no other transaction can erase a conversation with this id.

    Raises:
        TransactionConflict: a concurrent transaction created or erased a conversation with this id.
        RecipientBlocked: its recipient was erased and is blocked.
    """
    values = (
        *(header.tenant, header.id, header.recipient, header.status.value, header.version, header.length),
        *(header.turns, header.lead, header.first, header.open_at, json_of(header.open_calls), json_of(header.labels)),
        *(microseconds(header.created_at), microseconds(header.updated_at), microseconds(header.status_updated_at)),
        *(origin_number, *((header.origin.conversation, header.origin.position) if header.origin else (None, None))),
        *(json_of(lineage), *extra_columns.values()),
    )
    statement = _insert_statement(tuple(extra_columns))
    blocked_query = ("SELECT 1 FROM blocked_recipient WHERE id = ?", (recipient_hash(tx.tenant, header.recipient),))
    blocked, inserted_rows, tombstones = await tx.query(
        blocked_query, (statement, values), _tombstone_query(tx, header.id)
    )
    if blocked:
        raise RecipientBlocked(header.recipient)
    if tombstones or not inserted_rows:
        raise TransactionConflict
    return ConversationRow(inserted_rows[0][0], header, lineage)


@lru_cache
def _insert_statement(extra_columns: tuple[str, ...]) -> str:
    columns = ", ".join((_INSERT_COLUMNS, *extra_columns))
    values = ", ".join("?" * len(columns.split(",")))
    return (
        f"INSERT INTO conversation ({columns}) VALUES ({values}) ON CONFLICT (tenant, id) DO NOTHING RETURNING number"  # noqa: S608 - names of columns
    )


async def block(tx: SqlTransaction, recipient: str, at: datetime) -> None:
    """Block a recipient. Concurrent transactions that create a conversation with it end before, or see that it is blocked."""
    await tx.lock_recipient(recipient)
    statement = "INSERT INTO blocked_recipient (id, blocked_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
    await tx.execute(statement, recipient_hash(tx.tenant, recipient), microseconds(at))


async def readmit(tx: SqlTransaction, recipient: str) -> bool:
    return bool(await tx.execute("DELETE FROM blocked_recipient WHERE id = ?", recipient_hash(tx.tenant, recipient)))


async def set_status(
    tx: SqlTransaction, row: ConversationRow, status: ConversationStatus, at: datetime
) -> ConversationHeader:
    update = "UPDATE conversation SET status = ?, status_updated_at = ? WHERE number = ?"
    await tx.execute(update, status.value, microseconds(at), row.number)
    return replace(row.conversation, status=status, status_updated_at=at)


async def set_labels(tx: SqlTransaction, row: ConversationRow, labels: Mapping[str, str | None]) -> ConversationHeader:
    header = with_labels(row.conversation, labels)
    await tx.execute("UPDATE conversation SET labels = ? WHERE number = ?", json_of(dict(header.labels)), row.number)
    return header


_NEWEST_FIRST: Final = "ORDER BY created_at DESC, id LIMIT ?"
_HAS_STATUS: Final = "status || '' = ?"
"""An expression instead of the column, so that the database does not use the status index to find a recipient's rows."""
_SINGLE_ROW: Final = "LIMIT ?"
"""For a condition that at most one row satisfies. With ORDER BY, the database would scan the index of that order."""


class _ListPart(NamedTuple):
    """A part of a listing that one index can serve."""

    where: str
    values: tuple[str, ...]
    order: str


async def list_page(tx: SqlTransaction, query: ListQuery) -> Page[ConversationHeader]:
    """The conversations after a cursor, newest first."""
    after, cursor_condition = cursor_values(query.cursor, int, str), ""
    after_values: tuple[int | str, ...] = ()
    if after is not None:
        created_at, conversation_id = after
        # The first condition repeats a part of the second: an index can seek it.
        cursor_condition = " AND created_at <= ? AND (created_at < ? OR id > ?)"
        after_values = (created_at, created_at, conversation_id)
    selects, values = list[str](), list[Any]()
    for part in _list_parts(query.recipient, query.status):
        selects.append(f"SELECT * FROM ({SELECT} AND {part.where}{cursor_condition} {part.order}) AS part")  # noqa: S608 - made of constants
        values += [tx.tenant, *part.values, *after_values, query.limit + 1]
    statement = f"SELECT * FROM ({' UNION ALL '.join(selects)}) AS found {_NEWEST_FIRST}"  # noqa: S608 - made of constants
    *_, rows = await tx.query(*tx.BEFORE_ORDERED_QUERY, (statement, (*values, query.limit + 1)))
    headers = tuple(row_of(row).conversation for row in rows[: query.limit])
    has_more = len(rows) > query.limit
    return Page(headers, cursor_of(microseconds(headers[-1].created_at), headers[-1].id) if has_more else None)


def _list_parts(recipient: str | None, status: ConversationStatus | None) -> list[_ListPart]:
    """The parts whose union is the listing.

    Without a recipient there is a part for each status. A conversation that is its own recipient is not in the index of
    recipients, so a recipient's conversations have two parts.
    """
    if recipient is None:
        statuses = [status] if status else list(ConversationStatus)
        return [_ListPart("status = ?", (status.value,), _NEWEST_FIRST) for status in statuses]
    has_status, values = ("", (recipient,)) if status is None else (f" AND {_HAS_STATUS}", (recipient, status.value))
    return [
        _ListPart(f"recipient = ? AND recipient <> id{has_status}", values, _NEWEST_FIRST),
        _ListPart(f"id = ? AND recipient = id{has_status}", values, _SINGLE_ROW),
    ]


def json_of(value: Any) -> str | None:
    """JSON in ASCII, so that NUL and lone surrogates can be stored; None for an empty value."""
    return json.dumps(value) if value else None
