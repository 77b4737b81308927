"""Documents as rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import apsw

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import cursor_of, microseconds, place_of, squeezed, unsqueezed
from minutebook.store.sqlite.connection import Unit
from minutebook.store.sqlite.headers import Filed, rows
from minutebook.store.types import Document, PackedDocument, Page, Verdict, document_of

SWEPT: Final = 100
"""How many documents that have expired a write takes away at most."""
SWEEPING: Final = timedelta(seconds=1)
"""How long after it was looked for what has expired it is not looked for again: nobody is shown it meanwhile."""
_COLUMNS: Final = "document.kind, document.id, body, document.number, document.created_at, expires_at"
_FIND: Final = (
    f"SELECT conversation.id, {_COLUMNS} FROM document JOIN conversation ON conversation.number = document.conversation"  # noqa: S608 - a constant
    " WHERE document.tenant = ? AND document.kind = ? AND document.id = ?"
)
_KNOWN: Final = "SELECT conversation, expires_at FROM document WHERE tenant = ? AND kind = ? AND id = ?"
_COUNT: Final = "UPDATE conversation SET documents = documents + ? WHERE number = ? RETURNING documents"
_REPLACE: Final = "UPDATE document SET body = ?, expires_at = ? WHERE tenant = ? AND kind = ? AND id = ?"
_INSERT: Final = (
    "INSERT OR REPLACE INTO document (conversation, tenant, kind, id, number, created_at, expires_at, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_SWEEP: Final = (
    "DELETE FROM document WHERE rowid IN"
    " (SELECT rowid FROM document WHERE tenant = ? AND kind = ? AND expires_at <= ? LIMIT ?)"
)


def find(db: apsw.Connection, tenant: str, kind: str, name: str) -> Document | None:
    """The document of that kind and id, expired or not."""
    row = db.execute(_FIND, (tenant, kind, name)).fetchone()
    return None if row is None else _document(row)


def found(db: apsw.Connection, tenant: str, kind: str, name: str, at: datetime) -> Document:
    """The document of that kind and id.

    Raises:
        DocumentNotFound: there is none.
    """
    known = find(db, tenant, kind, name)
    if known is None or (known.expires_at is not None and known.expires_at <= at):
        raise DocumentNotFound(kind, name)
    return known


def verdict(
    db: apsw.Connection, tenant: str, conversation: str, number: int | None, wanted: PackedDocument, at: datetime
) -> Verdict:
    """What is to be done with a new document of a conversation, which has this number if it is there already.

    It is asked before anything is written.
    """
    row = db.execute(_KNOWN, (tenant, wanted.kind, wanted.id)).fetchone()
    if row is None:
        return Verdict.NEW
    home, expires_at = row
    if wanted.replace and home == number and (expires_at is None or expires_at > microseconds(at)):
        return Verdict.REPLACE
    return wanted.verdict(find(db, tenant, wanted.kind, wanted.id), conversation, at)


def put(
    db: apsw.Connection,
    filed: Filed,
    documents: Sequence[PackedDocument],
    verdicts: Sequence[Verdict],
    at: datetime,
    *,
    counted: bool = False,
) -> None:
    """Do what was found to be right. Those of a new conversation are `counted` already."""
    tenant, now = filed.conversation.tenant, microseconds(at)
    new = [one for one, verdict in zip(documents, verdicts, strict=True) if verdict is Verdict.NEW]
    if new:  # one that has expired may stand in its place
        last: int = len(new) if counted else db.execute(_COUNT, (len(new), filed.number)).get
        numbers = range(last - len(new) + 1, last + 1)
        rows_made = [
            (filed.number, tenant, one.kind, one.id, number, now, one.expires_at, squeezed(one.body))
            for number, one in zip(numbers, new, strict=True)
        ]
        db.executemany(_INSERT, rows_made)
    for one, verdict in zip(documents, verdicts, strict=True):
        if verdict is Verdict.REPLACE:
            db.execute(_REPLACE, (squeezed(one.body), one.expires_at, tenant, one.kind, one.id))


def tidy(unit: Unit, tenant: str, documents: Sequence[PackedDocument], at: datetime) -> None:
    """Remove some of what has expired, of the kinds of some documents; not after every one of them."""
    for kind in {one.kind for one in documents}:
        last = unit.swept.get((tenant, kind))
        if last is None or not timedelta() <= at - last < SWEEPING:
            unit.swept[tenant, kind] = at
            unit.connection.execute(_SWEEP, (tenant, kind, microseconds(at), SWEPT))


def listed(db: apsw.Connection, filed: Filed, query: DocumentQuery, at: datetime) -> Page[Document]:
    """The documents of a kind after a cursor, by their number."""
    after = place_of(query.cursor, int)
    beyond, order = ("<", "DESC") if query.newest_first else (">", "ASC")
    where = "conversation = ? AND kind = ? AND (expires_at IS NULL OR expires_at > ?)"
    values: list[Any] = [filed.number, query.kind, microseconds(at)]
    if after is not None:
        where += f" AND number {beyond} ?"
        values.append(after[0])
    statement = f"SELECT {_COLUMNS} FROM document WHERE {where} ORDER BY number {order} LIMIT ?"  # noqa: S608 - made of constants
    found = [_document((filed.conversation.id, *row)) for row in rows(db, statement, (*values, query.limit + 1))]
    return Page(
        tuple(found[: query.limit]), cursor_of(found[query.limit - 1].number) if len(found) > query.limit else None
    )


def delete(db: apsw.Connection, tenant: str, kind: str, name: str, at: datetime) -> bool:
    """Remove a document; return whether there was one that had not expired."""
    known = find(db, tenant, kind, name)
    if known is None:
        return False
    db.execute("DELETE FROM document WHERE tenant = ? AND kind = ? AND id = ?", (tenant, kind, name))
    return known.expires_at is None or known.expires_at > at


def sweep(db: apsw.Connection, tenant: str, at: datetime) -> None:
    """Remove all that has expired of a tenant's."""
    db.execute("DELETE FROM document WHERE tenant = ? AND expires_at <= ?", (tenant, microseconds(at)))


def _document(row: Any) -> Document:
    conversation, kind, name, body, number, created_at, expires_at = row
    return document_of(conversation, kind, name, unsqueezed(body), number, created_at, expires_at)
