"""The search index, which follows the record at a distance.

Indexing an entry touches several times the pages that storing it does, so an append leaves it for later: for when there
is nothing else to do, or somebody searches. What is still to do is in the database, so it outlives the process. A row of
the index stands for a stretch of entries, under the place of the first: whoever finds one looks through the stretch.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.store.backend import SearchQuery
from minutebook.store.codec import cursor_of, place_of
from minutebook.store.search import words
from minutebook.store.sql.headers import SELECT, row_of
from minutebook.store.sql.transaction import ConversationRow
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite.entries import SHIFT, place, position_of, rows
from minutebook.store.types import Hit, Page

STEP: Final = 2_000
"""How many entries are indexed in one transaction for somebody who waits for it, about: others want to write, too."""
SMALL_STEP: Final = 256
"""How many, when nobody waits."""
STRETCH: Final = 16
"""How many entries one row stands for at most."""
MOST_BEGUN: Final = 100
"""How many conversations may have a last stretch that waits to become whole, when nobody searches."""

_BEHIND: Final = (
    "SELECT number, indexed, length FROM unindexed JOIN conversation ON number = unindexed.conversation"
    " WHERE length - indexed >= ? ORDER BY number LIMIT ?"
)
Span = tuple[int, int]
"""The places from and up to which entries are meant."""


def is_behind(db: apsw.Connection) -> bool:
    """Whether there are entries that a search would not find."""
    return bool(rows(db, "SELECT 1 FROM unindexed LIMIT 1"))


def catch_up(db: apsw.Connection, *, whole: bool = False) -> bool:
    """Index a good number of entries; return whether there are more. With `whole`, only what fills its stretch."""
    least = STRETCH if whole and len(rows(db, _BEHIND, (0, MOST_BEGUN + 1))) <= MOST_BEGUN else 0
    left = SMALL_STEP if whole else STEP
    for number, indexed, length in rows(db, _BEHIND, (least, left)):
        stop = min(length, indexed + left)
        if least:
            stop -= (stop - indexed) % STRETCH
        index(db, number, indexed, stop)
        db.execute("UPDATE conversation SET indexed = ? WHERE number = ?", (stop, number))
        if stop == length:
            db.execute("DELETE FROM unindexed WHERE conversation = ?", (number,))
        left -= stop - indexed
        if left < STRETCH:
            break
    return bool(rows(db, _BEHIND, (least, 1)))


def index(db: apsw.Connection, number: int, start: int, stop: int) -> None:
    """Index a range of a conversation's own entries, none of which is indexed."""
    begins = range(place(number, start), place(number, stop), STRETCH)
    index_again(db, ((at, min(at + STRETCH, begins.stop)) for at in begins))


def index_again(db: apsw.Connection, spans: Iterable[Span]) -> None:
    """Write a row for each of some stretches, if there are words in it."""
    made = []
    for start, stop in spans:
        found = set[str]().union(*(words(text) for _, text in sqlite_entries.texts(db, start, stop)))
        if found:
            made.append((start, " ".join(found)))
    db.executemany("INSERT INTO word (rowid, words) VALUES (?, ?)", made)


def forget(db: apsw.Connection, start: int, stop: int) -> list[Span]:
    """Take every stretch out of the index that has one of these places; they are of one conversation.

    Returns those stretches, for `index_again`: once the entries are changed or gone, what is left is to be found again.
    """
    first = start >> SHIFT << SHIFT
    low = max(first, start - STRETCH + 1)
    found = [
        at for (at,) in rows(db, "SELECT rowid FROM word WHERE rowid >= ? AND rowid < ? ORDER BY rowid", (low, stop))
    ]
    if not found:
        return []
    db.executemany("DELETE FROM word WHERE rowid = ?", [(at,) for at in found])
    after = rows(db, "SELECT rowid FROM word WHERE rowid >= ? ORDER BY rowid LIMIT 1", (stop,))
    ends = [*found[1:], after[0][0] if after else stop + STRETCH]
    return [(at, min(at + STRETCH, end)) for at, end in zip(found, ends, strict=True)]


def matches(db: apsw.Connection, wanted: frozenset[str], start: int, stop: int) -> Iterator[int]:
    """The places of entries that have all of these words, from the last to the first."""
    query = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC"
    match = " AND ".join(f'"{word}"' for word in sorted(wanted))
    for (at,) in db.execute(query, (match, max(start >> SHIFT << SHIFT, start - STRETCH + 1), stop)):
        texts = list(sqlite_entries.texts(db, max(at, start), min(at + STRETCH, stop)))
        yield from (one for one, text in reversed(texts) if wanted <= words(text))
        stop = at


def searched(db: apsw.Connection, tenant: str, query: SearchQuery, within: ConversationRow | None) -> Page[Hit]:
    """The entries that have every word, in one conversation or all, from the last place to the first."""
    after = place_of(query.cursor, int)
    ceiling = after[0] if after else 1 << 62
    wanted = frozenset(query.words)
    if within is not None:
        hits = _within(db, within, wanted, ceiling)
    else:
        hits = _anywhere(db, tenant, query.recipient, wanted, ceiling)
    page = list(islice(hits, query.limit + 1))
    items = tuple(Hit(known.conversation.id, position_of(at), _entry(db, at)) for at, known in page[: query.limit])
    return Page(items, cursor_of(page[query.limit - 1][0]) if len(page) > query.limit else None)


def _within(
    db: apsw.Connection, known: ConversationRow, wanted: frozenset[str], ceiling: int
) -> Iterator[tuple[int, ConversationRow]]:
    """Places in one conversation; what it shares stands at lower places, since a fork is younger than its origin."""
    header = known.conversation
    for number, start, stop in reversed(known.spans(header.first, header.length)):
        for at in matches(db, wanted, place(number, start), min(place(number, stop), ceiling)):
            yield at, known


def _anywhere(
    db: apsw.Connection, tenant: str, recipient: str | None, wanted: frozenset[str], ceiling: int
) -> Iterator[tuple[int, ConversationRow]]:
    owners: dict[int, ConversationRow | None] = {}
    for at in matches(db, wanted, 0, ceiling):
        number = at >> SHIFT
        if number not in owners:
            owners = {number: _owner(db, number, tenant, recipient)}  # places come in order: one is enough
        owner = owners[number]
        if owner is not None and position_of(at) >= _said_here(owner):
            yield at, owner


def _said_here(owner: ConversationRow) -> int:
    """From where on entries are to be found in a conversation. A fork's copies are not: they were said elsewhere."""
    header = owner.conversation
    return max(header.first, header.origin.position if header.origin else 0)


def _owner(db: apsw.Connection, number: int, tenant: str, recipient: str | None) -> ConversationRow | None:
    """The conversation of a number, if this search may see it."""
    row = db.execute(f"{SELECT} AND number = ?", (tenant, number)).fetchone()
    if row is None:
        return None
    known = row_of(row)
    return known if recipient in {None, known.conversation.recipient} else None


def _entry(db: apsw.Connection, at: int) -> ConversationEntry:
    return sqlite_entries.unpacked(db, rows(db, sqlite_entries.READ, (at, at + 1)))[1][0]
