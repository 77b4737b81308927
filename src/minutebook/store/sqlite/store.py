"""Conversations in one SQLite file, safe for many tasks, threads and processes.

Writes go through one connection that commits them in groups. Reads have their own connections, and each read sees a
snapshot. An acknowledged append is on the disk: the write-ahead log is synced with every commit.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakSet

import apsw

from minutebook.errors import StoreReadOnly, StoreUnavailable
from minutebook.store.backend import AppendCommand
from minutebook.store.base import ConversationStore
from minutebook.store.codec import microseconds
from minutebook.store.process_fork import ForkAware
from minutebook.store.rules import now
from minutebook.store.search import search_mode
from minutebook.store.sql import documents
from minutebook.store.sql.backend import MAX_INLINE_ROWS, SqlBackend, TransactionFunction
from minutebook.store.sql.transaction import SqlTransaction, TooManyEntries
from minutebook.store.sqlite import leases
from minutebook.store.sqlite.commit import WriteConnection, file_identity
from minutebook.store.sqlite.connection import BusyHandler, map_errors, open_reader, store_error
from minutebook.store.sqlite.entries import append
from minutebook.store.sqlite.settings import SqliteSettings
from minutebook.store.sqlite.transaction import SqliteTransaction
from minutebook.store.sqlite.writer import Writer
from minutebook.store.types import LEASE_GRACE, Lease, StoreStatistics

T = TypeVar("T")
READER_THREADS: Final = 4
SLOW_READ_SECONDS: Final = 0.01
"""A read that blocks an event loop for longer counts as slow. A lower value would mistake a busy CPU for a slow disk."""
_MAX_INLINE_BYTES: Final = 256 * 1024
"""Longer texts are compressed and indexed by the writer thread."""
MAX_SLOW_SHARE: Final = 0.05
"""Maximum share of the time that slow inline reads may block a loop; after one, reads use other threads for a while."""


class _ReadGate:
    """Entered by any number of reading threads. A fork waits until they have left, and closes it to others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._is_closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._is_closed:
                self._changed.wait()
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._readers -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            while self._readers:
                self._changed.wait()

    def open(self) -> None:
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()


class SqliteEngine(ForkAware):
    """The writer and the reader threads that all stores on one file share.

    While its process forks, no connection is open: a child could not lock a file that it inherits open.
    """

    def __init__(self, path: str, search_mode: str | None = None) -> None:
        self.url = f"sqlite:///{path}"
        self._path = str(Path(path).absolute())
        self.settings = SqliteSettings(self.url, search_mode)
        self._open = self._closed = False
        self._inline_reads_from = 0.0
        """Until this time (monotonic), reads do not run inline."""
        self._create_threads()
        super().__init__()

    def _create_threads(self) -> None:
        self._writer = Writer(self.url, self._path, prepare=self.settings.check)
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix=f"reader of {self._path}")
        self._read_gate = _ReadGate()
        self._thread_state = threading.local()
        """The connection of the current thread, the identity of its file, and its busy handler."""
        self._connections: WeakSet[apsw.Connection] = WeakSet()
        """Open connections of reading threads. One whose thread has ended is closed and no longer here."""

    def before_fork(self) -> None:
        self._writer.pause()
        self._read_gate.close()
        self._close_readers()
        self._thread_state = threading.local()

    def after_fork_in_parent(self) -> None:
        self._writer.resume()
        self._read_gate.open()

    def after_fork_in_child(self) -> None:
        self._create_threads()
        if self._closed:
            self._writer.close()

    async def start(self) -> None:
        """Create the file or run its missing migrations, once. A file that cannot be written is opened for reading."""
        if not self._open:
            try:
                await self._writer.write(lambda _writable: None, cache_safe=True)
            except StoreReadOnly:
                await asyncio.get_running_loop().run_in_executor(self._readers, self._read, self.settings.check)
            self._open = True

    async def write(
        self,
        work: Callable[[WriteConnection], T],
        *,
        cache_safe: bool = False,
        exclusive: bool = False,
        no_fsync: bool = False,
        inline_ok: bool = False,
    ) -> T:
        """Run a write job, and return its result after the commit. `WriteJob` explains the flags."""
        return await self._writer.write(
            work, cache_safe=cache_safe, exclusive=exclusive, no_fsync=no_fsync, inline_ok=inline_ok
        )

    @property
    def waiting_writes(self) -> int:
        return self._writer.waiting

    async def read(
        self, work: Callable[[apsw.Connection], T], *, inline_work: Callable[[apsw.Connection], T] | None = None
    ) -> T:
        """Run a read on a snapshot, in a reader thread or, if possible, inline in the event loop's thread.

        `inline_work` does the same as `work`, but raises `TooManyEntries` if that would block the loop for too long.
        """
        if not self._open:
            await self.start()
        if self._closed:
            raise StoreUnavailable(self.url, "is closed")
        if inline_work is not None and monotonic() >= self._inline_reads_from:
            with suppress(apsw.BusyError, TooManyEntries):  # busy: another process recovers the file; a thread may wait
                return self._read_inline(inline_work)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def _read_inline(self, work: Callable[[apsw.Connection], T]) -> T:
        """Read in the caller's thread, which takes less time than switching to another one."""
        started = monotonic()
        try:
            with self._read_gate:
                db = self._connection()
                self._thread_state.busy_handler.fail_fast = True
                try:
                    return self._read_snapshot(db, work)
                finally:
                    self._thread_state.busy_handler.fail_fast = False
        except apsw.BusyError:
            raise
        except apsw.Error as error:
            raise store_error(error, self.url) from error
        finally:
            ended = monotonic()
            if ended - started > SLOW_READ_SECONDS:
                self._inline_reads_from = ended + (ended - started) / MAX_SLOW_SHARE

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        with map_errors(self.url), self._read_gate:
            return self._read_snapshot(self._connection(), work)

    @staticmethod
    def _read_snapshot(db: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            db.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        """The connection of this thread. It is opened again if the file was replaced."""
        db: apsw.Connection | None = getattr(self._thread_state, "db", None)
        file = file_identity(self._path)
        if db is not None and file != self._thread_state.file:
            self._connections.discard(db)
            db.close()
            db = None
        if db is None:
            self._thread_state.busy_handler = BusyHandler()
            db = open_reader(self._path, busy_handler=self._thread_state.busy_handler)
            self._thread_state.db, self._thread_state.file = db, file
            self._connections.add(db)
        return db

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        self._close_readers()
        self._writer.close()

    def _close_readers(self) -> None:
        for db in list(self._connections):
            with suppress(apsw.Error):
                db.close()
        self._connections.clear()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise AssertionError("a coroutine of a SQLite transaction suspended; it must not await I/O")


class SqliteBackend(SqlBackend):
    """One tenant's rows in a SQLite database."""

    def __init__(self, engine: SqliteEngine, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._engine = engine

    def use_keys(self, key_ids: Sequence[str]) -> None:
        self._engine.settings.key_ids = key_ids

    async def open(self) -> None:
        await self._engine.start()

    async def close(self) -> None:
        await self._engine.close()

    async def statistics(self) -> StoreStatistics:
        return StoreStatistics(waiting_writes=self._engine.waiting_writes)

    async def vacuum(self, *, rewrite: bool = False) -> None:
        """Remove deleted data from the search index, the file and the log, in small steps beside other writers.

        With `rewrite`, the file is written again in one step, so that no deleted data is left in it. Writers wait.

        Raises:
            StoreUnavailable: another process is reading, so the log could not be emptied.
        """
        from minutebook.store.sqlite.vacuum import vacuum

        await self.write(self._sweep, cache_safe=True)
        await vacuum(self._engine, rewrite=rewrite)

    async def append(self, command: AppendCommand) -> int:
        """Append entries, and return once they are on the disk."""

        def work(writable: WriteConnection) -> int:
            tx = SqliteTransaction(writable.connection, self.tenant, writable.last_document_sweep)
            return run(append(writable, tx, command, self.now()))

        is_short = sum(len(entry.text or b"") for entry in command.packed) <= _MAX_INLINE_BYTES
        inline_ok = is_short and len(command.packed) <= MAX_INLINE_ROWS
        return await self._engine.write(work, cache_safe=True, inline_ok=inline_ok)

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return await self._write_leases(lambda tx: leases.acquire(tx, conversation, holder, seconds, self.now()))

    async def renew_leases(self, renewed: Sequence[Lease], seconds: float) -> Sequence[Lease | None]:
        return await self._write_leases(lambda tx: leases.renew(tx, renewed, seconds, self.now()))

    async def release_lease(self, lease: Lease) -> None:
        await self._write_leases(lambda tx: leases.release(tx, lease))

    async def _write_leases(self, work: TransactionFunction[T]) -> T:
        return await self.write(work, inline_ok=True, cache_safe=True, no_fsync=True)

    async def read(
        self,
        work: TransactionFunction[T],
        *,
        inline_ok: bool = False,
        single_query: bool = False,  # noqa: ARG002 - for PostgreSQL only
    ) -> T:
        def read(db: apsw.Connection, max_entries: int | None = None) -> T:
            return run(work(SqliteTransaction(db, self.tenant, max_entries=max_entries)))

        return await self._engine.read(
            read, inline_work=partial(read, max_entries=MAX_INLINE_ROWS) if inline_ok else None
        )

    async def write(
        self, work: TransactionFunction[T], *, inline_ok: bool = False, cache_safe: bool = False, no_fsync: bool = False
    ) -> T:
        return await self._engine.write(
            lambda writable: run(work(SqliteTransaction(writable.db, self.tenant, writable.last_document_sweep))),
            cache_safe=cache_safe,
            no_fsync=no_fsync,
            inline_ok=inline_ok,
        )

    async def _sweep(self, tx: SqlTransaction) -> None:
        """Remove expired documents and leases."""
        await documents.sweep(tx, self.now())
        await tx.execute("DELETE FROM lease WHERE until <= ?", microseconds(self.now() - LEASE_GRACE))


class SqliteStore(ConversationStore):
    """Stores conversations in one SQLite file."""

    def __init__(
        self,
        path: str,
        *,
        tenant: str = "default",
        clock: Callable[[], datetime] = now,
        expire_after: timedelta | None = None,
        search: bool | str | None = None,
    ) -> None:
        self.path = path
        engine = SqliteEngine(path, search_mode(search))
        self.settings = engine.settings
        self.sqlite_backend = SqliteBackend(engine, tenant=tenant, clock=clock)
        self._engine = engine
        super().__init__(self.sqlite_backend, expire_after=expire_after)
