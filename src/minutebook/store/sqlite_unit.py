"""What the jobs of one group share: the connection, what is known of the database, and what is still to be written."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import apsw

MOST_KNOWN: Final = 4096


@dataclass(slots=True)
class Unit:
    """What a job works on: the connection, and what is known without asking it.

    That is only good as long as nobody else writes: it is forgotten when another process has, when a job fails, and
    after every job that does not keep it up to date.
    """

    connection: apsw.Connection
    known: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Tenant and id → the conversation."""
    sources: dict[tuple[str | None, str | None], int | None] = field(default_factory=dict)
    """Provider and model → their number."""
    behind: set[int] = field(default_factory=set)
    """Numbers of conversations that are noted as not wholly indexed."""
    seen: int = -1
    """The state of the database that these were true of."""
    put_off: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Statement → the rows that it is carried out for before the next commit, and before anybody reads."""
    flushed: int = 0
    """How many rows were written after they were put off."""
    waits: bool = True
    """Whether commits wait until they are on the disk, as they do in a connection that was just opened."""
    swept: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """Tenant and kind of document → when it was last looked for what has expired."""

    @property
    def db(self) -> apsw.Connection:
        """The connection, with nothing put off any more."""
        if self.put_off:
            self.flush()
        return self.connection

    def wait_for_disk(self, wanted: bool) -> None:
        """Have the next commit wait until it is on the disk; or only be written, and synced by the next that waits."""
        if wanted != self.waits:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self.waits = wanted

    def begin(self) -> None:
        """Take the lock that writers take, and forget what others may have changed."""
        self.connection.execute("BEGIN IMMEDIATE")
        if self.connection.data_version() != self.seen or len(self.known) > MOST_KNOWN:
            self.forget()
        if len(self.swept) > MOST_KNOWN:
            self.swept.clear()

    def commit(self) -> None:
        """Make all of it durable. The state that this leaves is the one that the next transaction should find."""
        self.connection.execute("COMMIT")
        self.seen = self.connection.data_version()

    def later(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Have rows written with those of the whole group: a statement for many of them takes half the time.

        A job does this when nothing in it can fail any more: it is not undone with the job.
        """
        self.put_off.setdefault(statement, []).extend(rows)

    def flush(self) -> None:
        """Write what was put off, so that it can be read."""
        before = self.connection.total_changes()
        while self.put_off:
            statement, rows = self.put_off.popitem()
            self.connection.executemany(statement, rows)
        self.flushed += self.connection.total_changes() - before

    @property
    def changes(self) -> int:
        """How many rows were changed at once, by whoever did it; what was put off is not counted."""
        return self.connection.total_changes() - self.flushed

    def forget(self) -> None:
        self.known.clear()
        self.sources.clear()
        self.behind.clear()
