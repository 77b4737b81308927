"""Removes deleted data from the files in small steps, so that other writers need not wait for long.

Deleted rows are overwritten with zeros at once (`secure_delete`). What remains is in the search index, in which a deleted row
is only marked, and in the write-ahead log. But when SQLite had moved a row to another page of its B-tree, a copy of it may be
in the unused part of the former page. Only `VACUUM` removes such copies: it writes the whole file again, and writers wait.
"""

import asyncio
from time import monotonic
from typing import Final

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sqlite.commit import WriteConnection
from minutebook.store.sqlite.store import SqliteEngine

MERGE_PAGES: Final = 64
"""Pages of the search index that one step writes."""
FREE_PAGES: Final = 256
"""Unused pages that one step removes from the file."""
LOG_WAIT_SECONDS: Final = 10.0
"""Maximum time to wait for readers of other processes that use the write-ahead log."""
_RETRY_SECONDS: Final = 0.05


async def vacuum(engine: SqliteEngine, *, rewrite: bool = False) -> None:
    """Merge the search index, shrink the file or write it again, and empty the log.

    Raises:
        StoreUnavailable: another process is reading, so the log could not be emptied.
    """
    merge_pages = -MERGE_PAGES  # a negative number begins to merge all parts of the index into one
    while await engine.write(lambda writable: _merge(writable.db, merge_pages), cache_safe=True):  # noqa: B023 - runs now
        merge_pages = MERGE_PAGES
    if rewrite:
        await engine.write(lambda writable: writable.db.execute("VACUUM").fetchall(), exclusive=True)
    while await engine.write(lambda writable: _free(writable.db), cache_safe=True):
        pass
    deadline = monotonic() + LOG_WAIT_SECONDS
    while not await engine.write(_empty_log, exclusive=True):
        if monotonic() > deadline:
            problem = "another process is reading, so the write-ahead log could not be emptied"
            raise StoreUnavailable(engine.url, problem)
        await asyncio.sleep(_RETRY_SECONDS)


def _merge(db: apsw.Connection, pages: int) -> bool:
    """Merge parts of the search index; return whether there is more to merge."""
    changes_before = db.total_changes()
    db.execute("INSERT INTO word (word, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes() - changes_before >= 2  # documented: fewer changes mean that it is done


def _free(db: apsw.Connection) -> bool:
    """Remove unused pages from the end of the file; return whether there are more."""
    before = int(db.execute("PRAGMA freelist_count").get)
    db.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
    return 0 < int(db.execute("PRAGMA freelist_count").get) < before


def _empty_log(writable: WriteConnection) -> bool:
    """Copy the log into the database and empty it, unless a reader uses it; return whether that was done."""
    writable.busy_handler.fail_fast = True
    try:
        busy, _log_pages, _copied_pages = writable.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
    except apsw.BusyError:
        return False
    finally:
        writable.busy_handler.fail_fast = False
    return not busy
