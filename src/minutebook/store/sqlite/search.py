"""The search index, which follows the record at a distance.

Indexing an entry touches several times the pages that storing it does, so an append leaves it for later: for when there
is nothing else to do, or somebody searches. What is still to do is in the database, so it outlives the process. A row of
the index stands for a stretch of entries, under the place of the first: whoever finds one looks through the stretch.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import apsw

from minutebook.store.search import words
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite.headers import SHIFT, place, rows

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
