"""Documents as rows, found by a hash of kind and id. A transaction that writes one has locked its conversation."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import compress_document, cursor_of, cursor_values, decompress, microseconds
from minutebook.store.sql.transaction import ConversationRow, Query, SqlTransaction, TransactionConflict
from minutebook.store.types import (
    REQUEST_KIND,
    Document,
    PackedDocument,
    Page,
    WriteAction,
    document_key,
    document_of,
    has_expired,
    kind_key,
)

DocumentName: TypeAlias = tuple[str, str]
"""(kind, id)."""

MAX_SWEEP_DOCUMENTS: Final = 100
"""Maximum number of expired documents that one write deletes."""
SWEEP_INTERVAL: Final = timedelta(seconds=1)
"""Minimum time between two sweeps of a kind. Reads ignore expired documents in any case."""
_COLUMNS: Final = "document.kind, document.id, {}, document.number, document.created_at, expires_at"
_FIND: Final = (
    f"SELECT conversation.id, {_COLUMNS} FROM document JOIN conversation"  # noqa: S608 - a constant of ours
    " ON conversation.tenant = document.tenant AND conversation.number = document.conversation"
    " WHERE document.tenant = ? AND document.hash = ?"
)
_REQUESTS_BEFORE: Final = (  # the kind is in the statement, so that the index of this kind is used
    f"SELECT conversation.id, {_COLUMNS.format('body')} FROM document JOIN conversation"  # noqa: S608 - a constant of ours
    " ON conversation.tenant = document.tenant AND conversation.number = document.conversation"
    f" WHERE document.tenant = ? AND document.kind = '{REQUEST_KIND}' AND document.created_at < ?{{}}"
    " ORDER BY document.created_at, document.hash LIMIT ?"
)
_INSERT: Final = (
    "INSERT INTO document (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, hash) DO NOTHING"
)
_TAKE_NUMBER: Final = (
    "UPDATE conversation SET documents = documents + 1, requests = CASE WHEN requests < ? THEN ? ELSE requests END"
    " WHERE number = ? RETURNING documents"
)
_REPLACE: Final = "UPDATE document SET body = ?, expires_at = ? WHERE tenant = ? AND hash = ? AND conversation = ?"
_DELETE: Final = "DELETE FROM document WHERE tenant = ? AND hash = ?"


async def find(
    tx: SqlTransaction, names: Iterable[DocumentName], *, with_bodies: bool = True
) -> dict[DocumentName, Document]:
    """The documents with these names that exist, expired or not. Without `with_bodies`, their bodies are empty."""
    return documents_of(await tx.query(*(find_query(tx.tenant, name, with_bodies=with_bodies) for name in names)))


def find_query(tenant: str, name: DocumentName, *, with_bodies: bool = True) -> Query:
    """The query for the document with a name."""
    return _FIND.format("body" if with_bodies else "NULL"), (tenant, document_key(*name))


def documents_of(results: Iterable[Iterable[Sequence[Any]]]) -> dict[DocumentName, Document]:
    """The documents in the results of `find_query`, by name."""
    documents = [_document(row) for rows in results for row in rows]
    return {(document.kind, document.id): document for document in documents}


async def get(tx: SqlTransaction, kind: str, document_id: str, at: datetime) -> Document:
    """The document with this kind and id.

    Raises:
        DocumentNotFound: it does not exist, or has expired.
    """
    document = (await find(tx, [(kind, document_id)])).get((kind, document_id))
    if document is None or has_expired(document, at):
        raise DocumentNotFound(kind, document_id)
    return document


def write_actions(
    conversation: str, documents: Iterable[PackedDocument], stored: Mapping[DocumentName, Document], at: datetime
) -> list[WriteAction]:
    """How to write each of some documents, given the stored ones with the same names.

    Raises:
        DocumentExists: one of them must not be written.
    """
    return [document.write_action(stored.get((document.kind, document.id)), conversation, at) for document in documents]


async def put(tx: SqlTransaction, row: ConversationRow, document: PackedDocument, at: datetime) -> Document:
    """Write a document if that is allowed, and remove expired documents of its kind."""
    name = (document.kind, document.id)
    stored = await find(tx, [name], with_bodies=not document.replace)
    (action,) = write_actions(row.conversation.id, [document], stored, at)
    number, created_at = await write(tx, row.number, document, action, stored.get(name), at)
    await sweep_kinds(tx, [document.kind], at)
    return stored[name] if action is WriteAction.SAME else document.stored(row.conversation.id, number, created_at)


async def write(
    tx: SqlTransaction,
    owner: int,
    document: PackedDocument,
    action: WriteAction,
    stored: Document | None,
    at: datetime,
) -> tuple[int, datetime]:
    """Write a document with this action; return its number and when it was created.

    `owner` is the number of the conversation, `stored` the document that has the name now.

    Raises:
        TransactionConflict: a concurrent transaction wrote or removed a document with this name.
    """
    if stored is not None and action is WriteAction.SAME:
        return stored.number, stored.created_at
    key, body = document_key(document.kind, document.id), compress_document(document.body)
    if stored is not None and action is WriteAction.REPLACE:
        if not await tx.execute(_REPLACE, body, document.expires_at, tx.tenant, key, owner):
            raise TransactionConflict
        return stored.number, stored.created_at
    if stored is not None:
        # The stored one has expired. The condition keeps one that a concurrent transaction has written since.
        await tx.execute(f"{_DELETE} AND expires_at <= ?", tx.tenant, key, microseconds(at))
    ((number,),) = await tx.rows(_TAKE_NUMBER, document.request, document.request, owner)
    names = (document.kind, document.id, kind_key(document.kind), key)
    if not await tx.execute(_INSERT, tx.tenant, owner, *names, number, microseconds(at), document.expires_at, body):
        raise TransactionConflict
    return number, at


async def sweep_kinds(tx: SqlTransaction, kinds: Iterable[str], at: datetime) -> None:
    """Remove some expired documents of these kinds, at most once per `SWEEP_INTERVAL`. Locked ones are left out."""
    for kind in set(kinds):
        last_sweep = tx.last_document_sweep.get((tx.tenant, kind))
        if last_sweep is None or not timedelta() <= at - last_sweep < SWEEP_INTERVAL:
            tx.last_document_sweep[tx.tenant, kind] = at
            expired = "SELECT hash FROM document WHERE tenant = ? AND kind_hash = ? AND expires_at <= ? LIMIT ?"
            sweep = f"DELETE FROM document WHERE tenant = ? AND hash IN ({expired}{tx.SKIP_LOCKED})"  # noqa: S608 - constants of ours
            await tx.execute(sweep, tx.tenant, tx.tenant, kind_key(kind), microseconds(at), MAX_SWEEP_DOCUMENTS)


async def list_page(tx: SqlTransaction, row: ConversationRow, query: DocumentQuery, at: datetime) -> Page[Document]:
    """The documents of a kind after a cursor, ordered by number."""
    after = cursor_values(query.cursor, int)
    comparison, order = ("<", "DESC") if query.newest_first else (">", "ASC")
    where = "conversation = ? AND kind_hash = ? AND (expires_at IS NULL OR expires_at > ?)"
    values: list[Any] = [row.number, kind_key(query.kind), microseconds(at)]
    if after is not None:
        where += f" AND number {comparison} ?"
        values.append(after[0])
    statement = f"SELECT {_COLUMNS.format('body')} FROM document WHERE {where} ORDER BY number {order} LIMIT ?"  # noqa: S608 - made of constants
    rows = await tx.rows(statement, *values, query.limit + 1)
    documents = tuple(_document((row.conversation.id, *columns)) for columns in rows[: query.limit])
    has_more = len(rows) > query.limit
    return Page(documents, cursor_of(documents[-1].number) if has_more else None)


async def requests_before(tx: SqlTransaction, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
    """Minutes of requests that were created before a time, of all conversations, oldest first."""
    after = cursor_values(cursor, int, str)
    where, values = "", [tx.tenant, microseconds(before)]
    if after is not None:
        where = " AND (document.created_at, document.hash) > (?, ?)"
        values += [after[0], bytes.fromhex(after[1])]
    rows = await tx.rows(_REQUESTS_BEFORE.format(where), *values, limit + 1)
    documents = tuple(map(_document, rows[:limit]))
    if len(rows) <= limit:
        return Page(documents, None)
    last = documents[-1]
    return Page(documents, cursor_of(microseconds(last.created_at), document_key(last.kind, last.id).hex()))


async def delete(tx: SqlTransaction, kind: str, document_ids: Sequence[str], at: datetime) -> int:
    """Delete documents; return how many existed and had not expired."""
    keys = [document_key(kind, document_id) for document_id in document_ids]
    placeholders = ", ".join("?" * len(keys))
    statement = f"DELETE FROM document WHERE tenant = ? AND hash IN ({placeholders}) RETURNING expires_at"  # noqa: S608 - placeholders
    rows = await tx.rows(statement, tx.tenant, *keys)
    return sum(expires_at is None or expires_at > microseconds(at) for (expires_at,) in rows)


async def sweep(tx: SqlTransaction, at: datetime) -> None:
    """Remove all expired documents of the tenant."""
    await tx.execute("DELETE FROM document WHERE tenant = ? AND expires_at <= ?", tx.tenant, microseconds(at))


def _document(row: Sequence[Any]) -> Document:
    conversation, kind, document_id, body, number, created_at, expires_at = row
    data = b"{}" if body is None else decompress(body)
    return document_of(conversation, kind, document_id, data, number, created_at, expires_at)
