"""The search index, which follows the record at a distance.

Indexing an entry touches several times the pages that storing it does, so an append leaves it for later: for when there
is nothing else to do, or somebody searches. What is still to do is in the database, so it outlives the process.
"""

from typing import Final

import apsw

from minutebook.store import sqlite_entries
from minutebook.store.sqlite_rows import place, rows
from minutebook.store.words import words

STEP: Final = 500
"""How many entries are indexed in one transaction, about: others want to write, too."""


def is_behind(db: apsw.Connection) -> bool:
    """Whether there are entries that a search would not find."""
    return bool(rows(db, "SELECT 1 FROM unindexed LIMIT 1"))


def catch_up(db: apsw.Connection) -> bool:
    """Index a good number of entries; return whether there are more."""
    left = STEP
    query = (
        "SELECT number, indexed, length FROM unindexed JOIN conversation ON number = unindexed.conversation"
        " ORDER BY number LIMIT ?"
    )
    for number, indexed, length in rows(db, query, (STEP,)):
        stop = min(length, indexed + left)
        _index(db, number, indexed, stop)
        db.execute("UPDATE conversation SET indexed = ? WHERE number = ?", (stop, number))
        if stop == length:
            db.execute("DELETE FROM unindexed WHERE conversation = ?", (number,))
        left -= stop - indexed
        if left <= 0:
            break
    return is_behind(db)


def _index(db: apsw.Connection, number: int, start: int, stop: int) -> None:
    texts = sqlite_entries.texts(db, place(number, start), place(number, stop))
    found = ((at, " ".join(words(text))) for at, text in texts)
    db.executemany("INSERT INTO word (rowid, words) VALUES (?, ?)", [row for row in found if row[1]])
