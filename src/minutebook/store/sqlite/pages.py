"""Lists and searches, a page at a time."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import apsw

from minutebook.store.backend import ListQuery, SearchQuery
from minutebook.store.codec import cursor_of, microseconds, place_of
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite.headers import COLUMNS, SHIFT, Filed, filed, found, position_of
from minutebook.store.sqlite.search import matches
from minutebook.store.types import Conversation, Hit, Page


def listed(db: apsw.Connection, tenant: str, query: ListQuery) -> Page[Conversation]:
    """The conversations after a cursor, newest first; there is an index for each way to ask."""
    after = place_of(query.cursor, int, str)
    where, values = ["tenant = ?"], [tenant]
    for column, value in (("recipient", query.recipient), ("status", query.status)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(str(value))
    bindings: list[Any] = [*values]
    if after is not None:
        where.append("created_at <= ? AND (created_at < ? OR id > ?)")  # the first half is what an index can seek
        bindings += [after[0], after[0], after[1]]
    statement = f"SELECT {COLUMNS} FROM conversation WHERE {' AND '.join(where)} ORDER BY created_at DESC, id LIMIT ?"  # noqa: S608 - made of constants
    rows = db.execute(statement, (*bindings, query.limit + 1)).fetchall()
    items = tuple(filed(row).conversation for row in rows[: query.limit])
    more = len(rows) > query.limit
    return Page(items, cursor_of(microseconds(items[-1].created_at), items[-1].id) if more else None)


def searched(db: apsw.Connection, tenant: str, query: SearchQuery) -> Page[Hit]:
    """The entries that have every word, from the last place to the first."""
    after = place_of(query.cursor, int)
    ceiling = after[0] if after else 1 << 62
    wanted = frozenset(query.words)
    if query.conversation is not None:
        hits = _within(db, found(db, tenant, query.conversation), wanted, ceiling)
    else:
        hits = _anywhere(db, tenant, query.recipient, wanted, ceiling)
    page = list(islice(hits, query.limit + 1))
    items = tuple(
        Hit(known.conversation.id, position_of(place), sqlite_entries.read(db, [(place, place + 1)])[1][0])
        for place, known in page[: query.limit]
    )
    return Page(items, cursor_of(page[query.limit - 1][0]) if len(page) > query.limit else None)


def _within(db: apsw.Connection, known: Filed, wanted: frozenset[str], ceiling: int) -> Iterator[tuple[int, Filed]]:
    """Places in one conversation; what it shares stands at lower places, since a fork is younger than its origin."""
    header = known.conversation
    for start, stop in reversed(known.spans(header.first, header.length)):
        for place in matches(db, wanted, start, min(stop, ceiling)):
            yield place, known


def _anywhere(
    db: apsw.Connection, tenant: str, recipient: str | None, wanted: frozenset[str], ceiling: int
) -> Iterator[tuple[int, Filed]]:
    owners: dict[int, Filed | None] = {}
    for place in matches(db, wanted, 0, ceiling):
        number = place >> SHIFT
        if number not in owners:
            owners = {number: _owner(db, number, tenant, recipient)}  # places come in order: one is enough
        owner = owners[number]
        if owner is not None and position_of(place) >= _said_here(owner):
            yield place, owner


def _said_here(owner: Filed) -> int:
    """From where on entries are to be found in a conversation. A fork's copies are not: they were said elsewhere."""
    header = owner.conversation
    return max(header.first, header.origin.position if header.origin else 0)


def _owner(db: apsw.Connection, number: int, tenant: str, recipient: str | None) -> Filed | None:
    """The conversation of a number, if this search may see it."""
    row = db.execute(f"SELECT {COLUMNS} FROM conversation WHERE number = ? AND tenant = ?", (number, tenant)).fetchone()  # noqa: S608 - a constant
    if row is None:
        return None
    known = filed(row)
    return known if recipient in {None, known.conversation.recipient} else None
