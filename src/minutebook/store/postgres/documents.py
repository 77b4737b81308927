"""Documents as rows. Whoever writes one holds the lock of its conversation."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import cursor_of, microseconds, place_of, squeezed, unsqueezed
from minutebook.store.postgres.connection import Again, Work
from minutebook.store.postgres.headers import Filed
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

Name = tuple[str, str]
"""A kind and an id."""

SWEPT: Final = 100
"""How many documents that have expired a write takes away at most."""
_COLUMNS: Final = "kind, document.id, body, document.number, document.created_at, expires_at"
_FIND: Final = (
    f"SELECT header.id, {_COLUMNS} FROM minutebook.document JOIN minutebook.conversation AS header"  # noqa: S608 - a constant
    " ON header.tenant = document.tenant AND header.number = document.conversation"
    " WHERE document.tenant = %s AND document.hash = ANY(%s::bytea[])"
)
_INSERT: Final = (
    "INSERT INTO minutebook.document (tenant, conversation, kind, id, kind_hash, hash, number, created_at, expires_at, body)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (tenant, hash) DO NOTHING"
)
_COUNT: Final = (
    "UPDATE minutebook.conversation SET documents = documents + 1 WHERE tenant = %s AND number = %s RETURNING documents"
)
_SWEEP: Final = (
    "DELETE FROM minutebook.document WHERE tenant = %s AND hash IN (SELECT hash FROM minutebook.document"
    " WHERE tenant = %s AND kind_hash = %s AND expires_at <= %s LIMIT %s FOR UPDATE SKIP LOCKED)"
)
_DELETE: Final = "DELETE FROM minutebook.document WHERE tenant = %s AND hash = %s"


async def find(work: Work, names: Sequence[Name]) -> dict[Name, Document]:
    """The documents of some kinds and ids that are there, expired or not."""
    keys = [document_key(*name) for name in names]
    rows = await work.rows(_FIND, work.tenant, keys) if keys else []
    found = [_document(row) for row in rows]
    return {(one.kind, one.id): one for one in found}


async def found(work: Work, kind: str, name: str, at: datetime) -> Document:
    """The document of that kind and id.

    Raises:
        DocumentNotFound: there is none.
    """
    known = (await find(work, [(kind, name)])).get((kind, name))
    if known is None or has_expired(known, at):
        raise DocumentNotFound(kind, name)
    return known


async def put(work: Work, filed: Filed, wanted: PackedDocument, known: Document | None, at: datetime) -> Document:
    """Put a document where `known` is, if it may stand there, and remove what has expired of its kind.

    Raises:
        DocumentExists: it may not.
        Again: somebody else put one there at the same moment.
    """
    verdict = wanted.verdict(known, filed.conversation.id, at)
    made = await write(work, (filed.conversation.id, filed.number), wanted, verdict, known, at)
    await sweep_kind(work, wanted.kind, at)
    return made


async def write(
    work: Work, place: tuple[str, int], wanted: PackedDocument, verdict: Verdict, known: Document | None, at: datetime
) -> Document:
    """Do what was found to be right, in the conversation of that id and number."""
    conversation, owner = place
    key = document_key(wanted.kind, wanted.id)
    if known is not None and verdict is Verdict.SAME:
        return known
    body = squeezed(wanted.body)
    if known is not None and verdict is Verdict.REPLACE:
        change = "UPDATE minutebook.document SET body = %b, expires_at = %s WHERE tenant = %s AND hash = %s"
        if not await work.put(change, body, wanted.expires_at, work.tenant, key):
            raise Again
        return wanted.stored(conversation, known.number, known.created_at)
    if known is not None:
        await work.put(_DELETE, work.tenant, key)
    number = (await work.row(_COUNT, work.tenant, owner))[0]
    names = (wanted.kind, wanted.id, kind_key(wanted.kind), key)
    facts = (number, microseconds(at), wanted.expires_at, body)
    if not await work.put(_INSERT, work.tenant, owner, *names, *facts):
        raise Again
    return wanted.stored(conversation, number, at)


async def sweep_kind(work: Work, kind: str, at: datetime) -> None:
    """Remove some of what has expired of a kind. What others hold is for another time."""
    await work.put(_SWEEP, work.tenant, work.tenant, kind_key(kind), microseconds(at), SWEPT)


async def listed(work: Work, filed: Filed, query: DocumentQuery, at: datetime) -> Page[Document]:
    """The documents of a kind after a cursor, by their number."""
    after = place_of(query.cursor, int)
    beyond, order = ("<", "DESC") if query.newest_first else (">", "ASC")
    where = "tenant = %s AND conversation = %s AND kind_hash = %s AND (expires_at IS NULL OR expires_at > %s)"
    values: list[Any] = [work.tenant, filed.number, kind_key(query.kind), microseconds(at)]
    if after is not None:
        where += f" AND number {beyond} %s"
        values.append(after[0])
    statement = f"SELECT {_COLUMNS} FROM minutebook.document WHERE {where} ORDER BY number {order} LIMIT %s"  # noqa: S608 - made of constants
    found = [_document((filed.conversation.id, *row)) for row in await work.rows(statement, *values, query.limit + 1)]
    return Page(
        tuple(found[: query.limit]), cursor_of(found[query.limit - 1].number) if len(found) > query.limit else None
    )


async def delete(work: Work, kind: str, name: str, at: datetime) -> bool:
    """Remove a document; return whether there was one that had not expired."""
    rows = await work.rows(f"{_DELETE} RETURNING expires_at", work.tenant, document_key(kind, name))
    return any(until is None or until > microseconds(at) for (until,) in rows)


async def sweep(work: Work, at: datetime) -> None:
    """Remove all that has expired of this tenant's."""
    await work.put(
        "DELETE FROM minutebook.document WHERE tenant = %s AND expires_at <= %s", work.tenant, microseconds(at)
    )


def decided(
    conversation: str, wanted: Sequence[PackedDocument], known: Mapping[Name, Document], at: datetime
) -> list[Verdict]:
    """What is to be done with each of some documents that are written together.

    Raises:
        DocumentExists: one of them may not stand where it would.
    """
    return [one.verdict(known.get((one.kind, one.id)), conversation, at) for one in wanted]


def _document(row: Any) -> Document:
    conversation, kind, name, body, number, created_at, expires_at = row
    return document_of(conversation, kind, name, unsqueezed(body), number, created_at, expires_at)
