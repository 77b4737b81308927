"""Group commit: the appends of one event loop are written in groups.

A commit costs a disk flush and a network round trip, for one append as for a hundred. Appends that arrive while a group
is written form the next group. A group is first written in one statement from cached headers. Appends that cannot be
planned from the cache, or whose cached header is out of date, are written in a transaction that reads under locks.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import psycopg
from psycopg import AsyncConnection

from minutebook.errors import MinutebookError, StoreUnavailable
from minutebook.store.postgres.append import AppendPlan, HeaderCache, NeedsJob, PendingAppend, append_all
from minutebook.store.postgres.connection import (
    BEGIN_WRITE,
    INVALID_VALUE_ERRORS,
    RETRYABLE_ERRORS,
    ConnectionPool,
    connect,
    store_error,
)

MAX_GROUP_SIZE: Final = 500
MAX_CACHED_HEADERS: Final = 4096
GROUP_LOCK_SECONDS: Final = 1.0
"""How long a group waits for a conversation's lock. After that, its conversations are written separately."""


class GroupWriter:
    """Writes the appends of the event loop that it was created in."""

    def __init__(self, pool: ConnectionPool, cache: HeaderCache, needs_job: NeedsJob | None) -> None:
        self._pool = pool
        self._cache = cache
        self._needs_job = needs_job
        self._loop = asyncio.get_running_loop()
        self._db: AsyncConnection | None = None
        self._waiting: list[PendingAppend] = []
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tenant and conversation → the task that writes to it under locks. Later appends to it wait for this task."""
        self._runner: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of appends that wait for their group."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return self._runner is None and not self._busy

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group; return the new version."""
        pending.future = self._loop.create_future()
        self._waiting.append(pending)
        self._start_runner()
        return await pending.future

    async def finish(self) -> None:
        """Wait until all appends are written, and close the connection."""
        while not self.is_idle:
            await asyncio.wait({*self._busy.values(), *([self._runner] if self._runner else [])})
        self.close()

    def close(self) -> None:
        """Close the connection. The event loop need not be running."""
        db, self._db = self._db, None
        if db is not None:
            db.pgconn.finish()

    def _start_runner(self) -> None:
        if self._waiting and self._runner is None:
            self._runner = self._loop.create_task(self._run())

    async def _run(self) -> None:
        """Write groups until no waiting append can be written now."""
        try:
            while group := self._take_group():
                with _fail_on_error(group):
                    if unwritten := await self._write_from_cache(group):
                        await asyncio.wait({self._start_locked_write(unwritten)}, timeout=GROUP_LOCK_SECONDS)
        finally:
            self._runner = None

    def _take_group(self) -> list[PendingAppend]:
        """Remove and return the waiting appends of one tenant whose conversations are not busy, in order."""
        waiting = [pending for pending in self._waiting if not pending.future.done()]
        ready = [pending for pending in waiting if pending.name not in self._busy]
        group = [pending for pending in ready if pending.tenant == ready[0].tenant][:MAX_GROUP_SIZE]
        in_group = set(group)
        self._waiting = [pending for pending in waiting if pending not in in_group]
        return group

    async def _write_from_cache(self, group: Sequence[PendingAppend]) -> Sequence[PendingAppend]:
        """Write the appends whose conversations are cached or expected to be new; return the others, which were not written.

        Raises:
            StoreUnavailable: the connection failed; the appends may or may not be written.
        """
        if len(self._cache) > MAX_CACHED_HEADERS:
            self._cache.clear()
        cached_headers = {pending.name[1]: self._cache.get(pending.name) for pending in group}
        known_headers = {name: header for name, header in cached_headers.items() if header is not None}
        plan = AppendPlan(group[0].tenant, known_headers)
        versions: dict[PendingAppend, int] = {}
        for pending in group:
            if pending.command.conversation in plan.headers or pending.command.expected_version == 0:
                # An append is never rejected because of a cached header: it is checked again under locks.
                with suppress(MinutebookError):
                    versions[pending] = plan.add(pending)
        if not versions or (db := await self._connect()) is None:
            return group
        try:
            lock_seconds = min(GROUP_LOCK_SECONDS, self._pool.timeout_seconds)
            self._cache.update(await plan.write(db, lock_seconds, self._needs_job))
        except (*RETRYABLE_ERRORS, *INVALID_VALUE_ERRORS, psycopg.errors.LockNotAvailable):
            return group
        except psycopg.Error as error:
            self.close()
            raise store_error(error, self._pool.address) from error
        for pending, version in versions.items():
            _resolve(pending, version)
        return [pending for pending in group if pending not in versions]

    async def _connect(self) -> AsyncConnection | None:
        """The connection of this event loop, reopened if necessary; None if the server is unreachable."""
        if self._db is not None:
            try:
                self._db.pgconn.consume_input()  # reads the server's last message
                self._db.pgconn.consume_input()  # detects that the connection is closed
            except psycopg.Error:
                self.close()
        if self._db is None:
            with suppress(StoreUnavailable):  # the pool waits for the server, and raises after its timeout
                self._db = await connect(self._pool.url, self._pool.address, self._pool.timeout_seconds)
        return self._db

    def _start_locked_write(self, group: Sequence[PendingAppend]) -> "asyncio.Task[None]":
        task = self._loop.create_task(self._write_locked(group))
        names = {pending.name for pending in group}
        self._busy.update(dict.fromkeys(names, task))

        def on_done(_: object) -> None:
            for name in names:
                if self._busy.get(name) is task:  # it may now be a task for this conversation alone
                    del self._busy[name]
            self._start_runner()

        task.add_done_callback(on_done)
        return task

    async def _write_locked(self, group: Sequence[PendingAppend]) -> None:
        """Write the group in one transaction that locks its conversations.

        If a conversation cannot be locked in time, or has a value that cannot be stored, each conversation is written in
        a separate transaction.
        """
        by_conversation: dict[tuple[str, str], list[PendingAppend]] = {}
        for pending in group:
            by_conversation.setdefault(pending.name, []).append(pending)
        lock_seconds = self._pool.timeout_seconds
        if len(by_conversation) > 1:
            lock_seconds = min(GROUP_LOCK_SECONDS, lock_seconds)
        work = partial(append_all, group=group, cache=self._cache, lock_seconds=lock_seconds, needs_job=self._needs_job)
        with _fail_on_error(group):
            try:
                results = await self._pool.run_transaction(group[0].tenant, BEGIN_WRITE, work, lock_seconds)
            except StoreUnavailable as error:
                separable = (psycopg.errors.LockNotAvailable, *INVALID_VALUE_ERRORS)
                if len(by_conversation) == 1 or not isinstance(error.__cause__, separable):
                    raise
                for appends in by_conversation.values():
                    self._start_locked_write(appends)
            else:
                for pending, result in zip(group, results, strict=True):
                    _resolve(pending, result)


@contextmanager
def _fail_on_error(group: Sequence[PendingAppend]) -> Iterator[None]:
    """If the block raises, set the error on the futures of the group."""
    try:
        yield
    except BaseException as error:
        for pending in group:
            _resolve(pending, error)
        if not isinstance(error, Exception):
            raise


def _resolve(pending: PendingAppend, result: int | BaseException) -> None:
    if pending.future.done():
        return
    if isinstance(result, int):
        pending.future.set_result(result)
    elif isinstance(result, Exception):
        pending.future.set_exception(result)
    else:
        pending.future.cancel()
