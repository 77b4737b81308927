"""The write connection: runs the jobs of a group in one transaction and gives each its own result.

A job checks before it writes, so a failed check leaves the group intact. If a job fails after it has written something,
the group is rolled back and each job gets its own transaction.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import Any, Final, NamedTuple

import apsw

from minutebook.errors import StoreUnavailable
from minutebook.store.sql.transaction import ConversationRow
from minutebook.store.sqlite import search
from minutebook.store.sqlite.connection import BusyHandler, open_connection, store_error

MAX_CACHED: Final = 4096
"""Maximum number of items in a cache of `WriteConnection`; it is cleared when it has more."""


@dataclass(slots=True)
class WriteConnection:
    """The connection that jobs write with, and caches of rows.

    The caches are cleared when another process has written, when a job fails, and after every job that is not
    `cache_safe`.
    """

    connection: apsw.Connection
    busy_handler: BusyHandler = field(default_factory=BusyHandler)
    """Decides how long the connection waits for a lock of another process."""
    conversations: dict[tuple[str, str], ConversationRow] = field(default_factory=dict)
    """(tenant, id) → the conversation's row."""
    sources: dict[tuple[str | None, str | None], int | None] = field(default_factory=dict)
    """(provider, model) → the number of its row."""
    search_mode: str | None = None
    """The database's setting `search`, once it is read."""
    pending_characters: int | None = None
    """Size of the rows that wait to be added to the search index."""
    data_version: int = -1
    """SQLite's data version for which the caches are valid."""
    deferred: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Statement → the rows to execute it with before the next commit or read."""
    flushed_changes: int = 0
    """Number of rows changed by deferred statements."""
    syncs_commits: bool = True
    """Whether a commit waits for the disk. True is the setting of a new connection."""
    last_document_sweep: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """(tenant, kind of document) → when expired documents were last removed."""

    @property
    def db(self) -> apsw.Connection:
        """The connection. Reading this property executes the deferred statements, so that their rows can be read."""
        if self.deferred:
            self.flush()
        return self.connection

    def set_commit_sync(self, enabled: bool) -> None:
        """Set whether the next commit waits for the disk. If not, the next commit that waits syncs it too."""
        if enabled != self.syncs_commits:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if enabled else 'NORMAL'}")
            self.syncs_commits = enabled

    def begin(self) -> None:
        """Begin a transaction with the write lock, and clear the caches if another process has written."""
        self.connection.execute("BEGIN IMMEDIATE")
        if self.connection.data_version() != self.data_version or len(self.conversations) > MAX_CACHED:
            self.clear_caches()
        if len(self.last_document_sweep) > MAX_CACHED:
            self.last_document_sweep.clear()

    def commit(self) -> None:
        self.connection.execute("COMMIT")
        self.data_version = self.connection.data_version()

    def defer(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute a statement for these rows together with the rows of the whole group, which takes half the time.

        A job calls this after everything in it that can fail: deferred rows are not rolled back with the job.
        """
        self.deferred.setdefault(statement, []).extend(rows)

    def flush(self) -> None:
        """Execute the deferred statements."""
        changes_before = self.connection.total_changes()
        while self.deferred:
            statement, rows = self.deferred.popitem()
            if statement == search.INSERT:
                self._index(rows)
            else:
                self.connection.executemany(statement, rows)
        self.flushed_changes += self.connection.total_changes() - changes_before

    def _index(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if self.pending_characters is None:
            self.pending_characters = search.count_pending_characters(self.connection)
        self.pending_characters = search.write_rows(self.connection, rows, self.pending_characters)

    @property
    def direct_changes(self) -> int:
        """Number of rows changed so far, without those of deferred statements."""
        return self.connection.total_changes() - self.flushed_changes

    def clear_caches(self) -> None:
        self.conversations.clear()
        self.sources.clear()
        self.pending_characters = None


@dataclass(slots=True, eq=False)
class WriteJob:
    """A function that writes, and the future of the task that waits for it."""

    work: Callable[[WriteConnection], Any]
    future: "asyncio.Future[Any] | None" = None
    """None if no task waits, or if the task that waits runs the job itself."""
    cache_safe: bool = True
    """Whether the caches of `WriteConnection` are still valid after the job."""
    exclusive: bool = False
    """Whether it must run outside of any transaction."""
    no_fsync: bool = False
    """Whether a power cut may lose it, so that its commit need not wait for the disk. Readers see it immediately."""
    inline_ok: bool = False
    """Whether it touches so few rows that it may run in the event loop's thread."""

    @property
    def is_cancelled(self) -> bool:
        return self.future is not None and self.future.cancelled()


class JobResult(NamedTuple):
    """What a job returned or raised."""

    job: WriteJob
    value: Any = None
    error: Exception | None = None


def file_identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file, or None if it does not exist.

    SQLite continues to write to a file that was deleted or replaced, and everything it acknowledges is lost. A changed
    identity shows that.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - called with every commit, and a Path takes three times as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


CHECKPOINT_PAGES: Final = 4_000
"""Length of the write-ahead log at which a checkpoint is due. In bytes it is SQLite's default, which has larger pages."""
UNKNOWN_SECONDS: Final = float("inf")
JOB_WRITE_SECONDS: Final = 0.00005
"""Estimated time to write the pages of one job to the log. It is not spent waiting for the disk."""


class _GroupFailed(Exception):
    """A job failed with `error` after it had written something."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Committer:
    """Runs groups of jobs on the write connection. Only one thread at a time may use it."""

    def __init__(self, store: str, path: str, prepare: Callable[[apsw.Connection], None]) -> None:
        self._store = store
        self._path = path
        self._prepare = prepare
        self._writable: WriteConnection | None = None
        self._file_identity: tuple[int, int] | None = None
        self._log_pages = 0
        """Length of the write-ahead log."""
        self.busy_handler = BusyHandler()
        self.sync_seconds = UNKNOWN_SECONDS
        """Estimated time that the last commit waited for the disk."""

    def run_group(self, group: Sequence[WriteJob]) -> list[JobResult]:
        """Run the jobs of a group. Only the last one may be exclusive."""
        try:
            writable = self._writable or self._connect()
        except Exception as error:  # noqa: BLE001 - every error is the result of the jobs
            return [JobResult(job, error=self._error_for_caller(error)) for job in group]
        shared_jobs = [job for job in group if not job.exclusive]
        results = self._run_shared(writable, shared_jobs) if shared_jobs else []
        return results + [self._run_exclusive(writable, job) for job in group[len(shared_jobs) :]]

    @property
    def needs_checkpoint(self) -> bool:
        return self._log_pages >= CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the database if it is long, without waiting for readers that still use it.

        Errors are ignored: it is tried again after the next commit.
        """
        if self._writable is not None and self.needs_checkpoint:
            with suppress(apsw.Error):
                self._writable.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        if self._writable is not None:
            self._writable.connection.close()
            self._writable = None

    def _connect(self) -> WriteConnection:
        connection = open_connection(self._path, busy_handler=self.busy_handler)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        writable = WriteConnection(connection, self.busy_handler)
        self._file_identity = file_identity(self._path)
        writable.connection.set_wal_hook(self._on_wal_commit)
        self._writable = writable
        return writable

    def _on_wal_commit(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return 0

    def _run_exclusive(self, writable: WriteConnection, job: WriteJob) -> JobResult:
        writable.clear_caches()
        writable.set_commit_sync(True)
        try:
            return JobResult(job, job.work(writable))
        except Exception as error:  # noqa: BLE001 - every error is the result of the job
            return JobResult(job, error=self._error_for_caller(error))

    def _run_shared(self, writable: WriteConnection, group: Sequence[WriteJob]) -> list[JobResult]:
        """Run a group in one transaction; if that fails as a whole, run each job in its own."""
        try:
            return self._run_transaction(writable, group)
        except Exception as error:  # noqa: BLE001 - every error is the result of the jobs
            writable.clear_caches()
            writable.deferred.clear()
            with suppress(apsw.Error):  # SQLite may have rolled back already
                writable.connection.execute("ROLLBACK")
            if isinstance(error, StoreUnavailable):
                self.close()
            elif len(group) > 1 and not isinstance(error, apsw.BusyError):
                return [result for job in group for result in self._run_shared(writable, [job])]
            return [JobResult(job, error=self._error_for_caller(error)) for job in group]

    def _run_transaction(self, writable: WriteConnection, group: Sequence[WriteJob]) -> list[JobResult]:
        writable.set_commit_sync(not all(job.no_fsync for job in group))
        writable.begin()
        results: list[JobResult] = []
        for job in group:
            changes_before = writable.direct_changes
            try:
                results.append(JobResult(job, job.work(writable)))
            except Exception as error:
                if writable.direct_changes != changes_before or not writable.connection.in_transaction:
                    raise _GroupFailed(error) from error
                results.append(JobResult(job, error=self._error_for_caller(error)))
            if not job.cache_safe:
                writable.clear_caches()
        writable.flush()
        commit_started = perf_counter()
        writable.commit()
        self.sync_seconds = perf_counter() - commit_started - len(group) * JOB_WRITE_SECONDS
        if file_identity(self._path) != self._file_identity:
            raise StoreUnavailable(self._store, "its file was deleted or replaced while it was in use")
        return results

    def _error_for_caller(self, error: Exception) -> Exception:
        """The error that the job's caller gets. A driver's error is converted to `StoreUnavailable`."""
        if isinstance(error, _GroupFailed):
            error = error.error
        if not isinstance(error, apsw.Error):
            return error
        mapped_error = store_error(error, self._store)
        mapped_error.__cause__ = error
        return mapped_error
