"""Documents as rows, found by a hash of kind and id. Whoever writes one has the lock of its conversation."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import cursor_of, microseconds, place_of, squeezed, unsqueezed
from minutebook.store.sql.transaction import Again, ConversationRow, SqlTransaction
from minutebook.store.types import (
    Document,
    PackedDocument,
    Page,
    Verdict,
    document_key,
    document_of,
    has_expired,
    kind_key,
)

Name: TypeAlias = tuple[str, str]
"""A kind and an id."""

SWEPT: Final = 100
"""How many expired documents a write removes at most."""
SWEEP_INTERVAL: Final = timedelta(seconds=1)
"""How long expired documents of a kind are not looked for again: nobody is shown them meanwhile."""
_COLUMNS: Final = "document.kind, document.id, {}, document.number, document.created_at, expires_at"
_FIND: Final = (
    f"SELECT conversation.id, {_COLUMNS} FROM document JOIN conversation"  # noqa: S608 - a constant of ours
    " ON conversation.tenant = document.tenant AND conversation.number = document.conversation"
    " WHERE document.tenant = ? AND document.hash = ?"
)
_INSERT: Final = (
    "INSERT INTO document (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, hash) DO NOTHING"
)
_REPLACE: Final = "UPDATE document SET body = ?, expires_at = ? WHERE tenant = ? AND hash = ? AND conversation = ?"
_DELETE: Final = "DELETE FROM document WHERE tenant = ? AND hash = ?"


async def find(tx: SqlTransaction, names: Iterable[Name], *, bodies: bool = True) -> dict[Name, Document]:
    """The documents of some kinds and ids that exist, expired or not; without `bodies`, theirs are empty."""
    query = _FIND.format("body" if bodies else "NULL")
    answers = await tx.rows_of(*((query, (tx.tenant, document_key(*name))) for name in names))
    found = [_document(row) for rows in answers for row in rows]
    return {(one.kind, one.id): one for one in found}


async def get(tx: SqlTransaction, kind: str, name: str, at: datetime) -> Document:
    """The document of that kind and id.

    Raises:
        DocumentNotFound: there is none.
    """
    known = (await find(tx, [(kind, name)])).get((kind, name))
    if known is None or has_expired(known, at):
        raise DocumentNotFound(kind, name)
    return known


def verdicts(
    conversation: str, wanted: Iterable[PackedDocument], known: Mapping[Name, Document], at: datetime
) -> list[Verdict]:
    """What is to be done with each of some documents that are written together.

    Raises:
        DocumentExists: one of them may not be written.
    """
    return [one.verdict(known.get((one.kind, one.id)), conversation, at) for one in wanted]


async def put(tx: SqlTransaction, row: ConversationRow, wanted: PackedDocument, at: datetime) -> Document:
    """Write a document, if it may be written, and remove what has expired of its kind."""
    name = (wanted.kind, wanted.id)
    known = await find(tx, [name], bodies=not wanted.replace)
    (verdict,) = verdicts(row.conversation.id, [wanted], known, at)
    number, created_at = await write(tx, row.number, wanted, verdict, known.get(name), at)
    await sweep_kinds(tx, [wanted.kind], at)
    return known[name] if verdict is Verdict.SAME else wanted.stored(row.conversation.id, number, created_at)


async def write(
    tx: SqlTransaction,
    owner: int,
    wanted: PackedDocument,
    verdict: Verdict,
    known: Document | None,
    at: datetime,
) -> tuple[int, datetime]:
    """Write a document as its verdict says, in the conversation of that number; `known` has its name now.

    Returns its number and when it was created.

    Raises:
        Again: another transaction wrote or removed one of that name at the same moment.
    """
    if known is not None and verdict is Verdict.SAME:
        return known.number, known.created_at
    key, body = document_key(wanted.kind, wanted.id), squeezed(wanted.body)
    if known is not None and verdict is Verdict.REPLACE:
        if not await tx.put(_REPLACE, body, wanted.expires_at, tx.tenant, key, owner):
            raise Again
        return known.number, known.created_at
    if known is not None:  # it has expired; one that another transaction has written since has not
        await tx.put(f"{_DELETE} AND expires_at <= ?", tx.tenant, key, microseconds(at))
    count = "UPDATE conversation SET documents = documents + 1 WHERE number = ? RETURNING documents"
    ((number,),) = await tx.rows(count, owner)
    names = (wanted.kind, wanted.id, kind_key(wanted.kind), key)
    if not await tx.put(_INSERT, tx.tenant, owner, *names, number, microseconds(at), wanted.expires_at, body):
        raise Again
    return number, at


async def sweep_kinds(tx: SqlTransaction, kinds: Iterable[str], at: datetime) -> None:
    """Remove some of what has expired of some kinds; not after every write, and not what others have locked."""
    for kind in set(kinds):
        last = tx.swept.get((tx.tenant, kind))
        if last is None or not timedelta() <= at - last < SWEEP_INTERVAL:
            tx.swept[tx.tenant, kind] = at
            expired = "SELECT hash FROM document WHERE tenant = ? AND kind_hash = ? AND expires_at <= ? LIMIT ?"
            sweep = f"DELETE FROM document WHERE tenant = ? AND hash IN ({expired}{tx.SKIP_LOCKED})"  # noqa: S608 - constants of ours
            await tx.put(sweep, tx.tenant, tx.tenant, kind_key(kind), microseconds(at), SWEPT)


async def page(tx: SqlTransaction, row: ConversationRow, query: DocumentQuery, at: datetime) -> Page[Document]:
    """The documents of a kind after a cursor, by their number."""
    after = place_of(query.cursor, int)
    beyond, order = ("<", "DESC") if query.newest_first else (">", "ASC")
    where = "conversation = ? AND kind_hash = ? AND (expires_at IS NULL OR expires_at > ?)"
    values: list[Any] = [row.number, kind_key(query.kind), microseconds(at)]
    if after is not None:
        where += f" AND number {beyond} ?"
        values.append(after[0])
    statement = f"SELECT {_COLUMNS.format('body')} FROM document WHERE {where} ORDER BY number {order} LIMIT ?"  # noqa: S608 - made of constants
    rows = await tx.rows(statement, *values, query.limit + 1)
    found = [_document((row.conversation.id, *one)) for one in rows]
    more = len(found) > query.limit
    return Page(tuple(found[: query.limit]), cursor_of(found[query.limit - 1].number) if more else None)


async def delete(tx: SqlTransaction, kind: str, name: str, at: datetime) -> bool:
    """Remove a document; return whether there was one that had not expired."""
    rows = await tx.rows(f"{_DELETE} RETURNING expires_at", tx.tenant, document_key(kind, name))
    return any(until is None or until > microseconds(at) for (until,) in rows)


async def sweep(tx: SqlTransaction, at: datetime) -> None:
    """Remove everything of the tenant's that has expired."""
    await tx.put("DELETE FROM document WHERE tenant = ? AND expires_at <= ?", tx.tenant, microseconds(at))


def _document(row: Sequence[Any]) -> Document:
    conversation, kind, name, body, number, created_at, expires_at = row
    data = b"{}" if body is None else unsqueezed(body)
    return document_of(conversation, kind, name, data, number, created_at, expires_at)
