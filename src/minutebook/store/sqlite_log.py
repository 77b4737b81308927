"""The write-ahead log, kept ahead of those who write to it.

A commit waits until the log is on the disk. Where the file has to grow for that, the file system writes down its new
size too, which takes about twice as long. So the log is made longer before it is needed, in large steps, with zeros that
SQLite takes for what they are: no frames. And it is emptied into the database when nobody waits for an answer.
"""

import os
from contextlib import suppress
from typing import Final

import apsw

PAGES: Final = 4_000
"""How long the log may become before it is emptied; the same number of bytes as is usual with larger pages."""
_FRAME: Final = 24
_AHEAD: Final = 256 * 1024
"""How much room there should be before a commit."""


class Log:
    """The log of one connection's file. All of it is for whoever holds the lock that writers take."""

    def __init__(self, db: apsw.Connection, path: str) -> None:
        self._path = f"{path}-wal"
        self._frame = db.execute("PRAGMA page_size").get + _FRAME
        self._pages = 0
        self._size = 0
        db.set_wal_hook(self._written)

    def make_room(self) -> None:
        """Make it longer, if the next commit might have to. What does not work is only slower."""
        used = self._pages * self._frame
        if used + _AHEAD <= self._size or used > PAGES * self._frame:
            return
        with suppress(OSError), open(self._path, "r+b", buffering=0) as log:  # noqa: PTH123 - before every commit
            end = log.seek(0, os.SEEK_END)
            wanted = min(max(2 * end, 2 * _AHEAD), PAGES * self._frame + _AHEAD)
            if end < wanted:
                log.write(bytes(wanted - end))
            self._size = max(end, wanted)

    @property
    def is_long(self) -> bool:
        return self._pages >= PAGES

    def empty(self, db: apsw.Connection) -> None:
        """Bring what is in it into the database; readers who still need it are not waited for."""
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def forget(self) -> None:
        """Somebody may have made it shorter."""
        self._size = 0

    def _written(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return 0
