"""Conversations in one SQLite file, safe for many tasks, threads and processes.

Writes go through one connection that commits them in groups; reads go beside it, each on a snapshot of its own. An
acknowledged append is on the disk: the write-ahead log is synced with every commit.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.backend import AppendCommand, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import microseconds
from minutebook.store.rules import now
from minutebook.store.sql import documents, headers
from minutebook.store.sql.backend import BRIEF, SqlBackend, Work
from minutebook.store.sql.transaction import SqlTransaction, TakesLong
from minutebook.store.sqlite.commit import Unit, identity
from minutebook.store.sqlite.connection import Patience, errors_of, opened_to_read, translated
from minutebook.store.sqlite.entries import append
from minutebook.store.sqlite.search import catch_up, is_behind, searched
from minutebook.store.sqlite.transaction import SqliteTransaction
from minutebook.store.sqlite.writer import Writer
from minutebook.store.types import Hit, Page

T = TypeVar("T")
READERS: Final = 4
MOST_UNINDEXED: Final = 20_000
SLOW_SECONDS: Final = 0.01
"""How long a brief reading may take; less, and a busy processor would look like a slow disk."""
MOST_SLOW: Final = 0.05
"""Which part of the time slow readings may keep a loop; in the rest of it, readings are left to other threads."""


class Engine:
    """What all handles on one file share: the thread that writes and the few that read."""

    def __init__(self, path: str) -> None:
        self.url = f"sqlite:///{path}"
        self._path = str(Path(path).absolute())
        self._writer = Writer(self.url, self._path, idle=_index_whole)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix=f"reader of {path}")
        self._mine = threading.local()
        self._connections: list[apsw.Connection] = []
        self._open = self._closed = False
        self._unindexed = 0
        self._slow_until = 0.0

    async def start(self) -> None:
        """Make the file, or bring it up to date, once."""
        if not self._open:
            await self._writer.write(lambda _unit: None, keeps=True)
            self._open = True

    async def write(
        self,
        work: Callable[[Unit], T],
        *,
        keeps: bool = False,
        alone: bool = False,
        light: bool = False,
        brief: bool = False,
    ) -> T:
        """Carry out a change; it returns once that is durable."""
        return await self._writer.write(work, keeps=keeps, alone=alone, light=light, brief=brief)

    def appended(self, count: int) -> None:
        """Note that there is more to index, when there is time for it; when it becomes much, have it done."""
        self._writer.rest_later()
        self._unindexed += count
        if self._unindexed >= MOST_UNINDEXED:
            self._unindexed = 0
            self._index_on()

    def _index_on(self, unit: Unit | None = None) -> None:
        """Index all that is whole, some of it at a time: others write in between."""
        if unit is None or _index_whole(unit):
            with suppress(StoreUnavailable):  # closed in the meantime; whoever searches next will find it to do
                self._writer.chore(self._index_on)

    async def catch_up(self) -> None:
        """Have everything indexed that was appended, by whichever process."""
        behind = await self.read(is_behind)
        while behind:
            behind = await self.write(_index, keeps=True)

    async def read(
        self, work: Callable[[apsw.Connection], T], *, brief: Callable[[apsw.Connection], T] | None = None
    ) -> T:
        """Carry out a reading on a snapshot: in a thread of its own, or at once if it is brief and the disk was quick.

        `brief` is the same reading, which raises `TakesLong` once it finds that it is not.
        """
        if not self._open:
            await self.start()
        if self._closed:
            raise StoreUnavailable(self.url, "is closed")
        if brief is not None and monotonic() >= self._slow_until:
            with suppress(apsw.BusyError, TakesLong):  # busy: somebody is recovering the file, and a thread may wait
                return self._read_at_once(brief)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def _read_at_once(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read in the caller's thread, which takes less time than changing to another; unless it took long just now."""
        began = monotonic()
        try:
            db = self._connection()
            self._mine.patience.is_short = True
            try:
                return self._read_on(db, work)
            finally:
                self._mine.patience.is_short = False
        except apsw.BusyError:
            raise
        except apsw.Error as error:
            raise translated(error, self.url) from error
        finally:
            ended = monotonic()
            if ended - began > SLOW_SECONDS:
                self._slow_until = ended + (ended - began) / MOST_SLOW

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        with errors_of(self.url):
            return self._read_on(self._connection(), work)

    @staticmethod
    def _read_on(db: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            db.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        """This thread's connection, to the file that is there now."""
        known: apsw.Connection | None = getattr(self._mine, "db", None)
        file = identity(self._path)
        if known is not None and file != self._mine.file:
            self._connections.remove(known)
            known.close()
            known = None
        if known is None:
            self._mine.patience = Patience()
            known = opened_to_read(self._path, patience=self._mine.patience)
            self._mine.db, self._mine.file = known, file
            self._connections.append(known)
        return known

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        while self._connections:
            self._connections.pop().close()
        self._writer.close()


def _index(unit: Unit, *, whole: bool = False) -> bool:
    """Index some entries. What is known of conversations stays true, but for which of them are not wholly indexed."""
    unit.behind.clear()
    return catch_up(unit.db, whole=whole)


def _index_whole(unit: Unit) -> bool:
    return _index(unit, whole=True)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a transaction on SQLite waited for something")


class SqliteBackend(SqlBackend):
    """One tenant's rows in a SQLite database."""

    def __init__(self, engine: Engine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    async def open(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def vacuum(self) -> None:
        """Rewrite index, file and log, so that no byte of what was erased is left in them.

        Raises:
            StoreUnavailable: another process goes on reading, so the log could not be emptied.
        """
        await self._engine.catch_up()
        await self.write(self._sweep, keeps_headers=True)

        def work(unit: Unit) -> None:
            unit.db.execute("INSERT INTO word (word) VALUES ('optimize')")
            unit.db.execute("VACUUM")
            busy, _log, _done = unit.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
            if busy:
                raise StoreUnavailable(self._engine.url, "is being read by others, so its log could not be emptied")

        await self._engine.write(work, alone=True)

    async def append(self, command: AppendCommand) -> int:
        """It returns once the entries are on the disk."""

        def work(unit: Unit) -> int:
            tx = SqliteTransaction(unit.connection, self.tenant, unit.swept)
            return run(append(unit, tx, command, self.now()))

        version = await self._engine.write(work, keeps=True, brief=len(command.packed) <= BRIEF)
        self._engine.appended(len(command.packed))
        return version

    async def search(self, query: SearchQuery) -> Page[Hit]:
        await self._engine.catch_up()

        def work(db: apsw.Connection) -> Page[Hit]:
            tx = SqliteTransaction(db, self.tenant)
            within = None if query.conversation is None else run(headers.get(tx, query.conversation))
            return searched(db, self.tenant, query, within)

        return await self._engine.read(work)

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        def run_on(db: apsw.Connection, most_entries: int | None = None) -> T:
            return run(work(SqliteTransaction(db, self.tenant, most_entries=most_entries)))

        return await self._engine.read(run_on, brief=partial(run_on, most_entries=BRIEF) if brief else None)

    async def write(
        self, work: Work[T], *, brief: bool = False, keeps_headers: bool = False, durable: bool = True
    ) -> T:
        return await self._engine.write(
            lambda unit: run(work(SqliteTransaction(unit.db, self.tenant, unit.swept))),
            keeps=keeps_headers,
            light=not durable,
            brief=brief,
        )

    async def _sweep(self, tx: SqlTransaction) -> None:
        """Remove what has expired."""
        await documents.sweep(tx, self.now())
        await tx.put("DELETE FROM lease WHERE until <= ?", microseconds(self.now()))


class SqliteStore(ConversationStore):
    """Keeps conversations in one SQLite file."""

    def __init__(self, path: str, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self.path = path
        self._engine = Engine(path)
        super().__init__(SqliteBackend(self._engine, tenant=tenant, clock=clock))
