"""The appends of one event loop, written in groups.

A commit waits for the disk and every statement for the network, as long for one append as for a hundred. So whoever wants
to append while others are at it waits, and all of them share the next group. A group is written in one statement on a
connection of the loop's own, from the headers that are remembered: all other connections belong to a loop in a thread of
its own, and going there and back takes longer than the append. What cannot be decided like that, or has changed, is read
under locks and written in a transaction there.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import psycopg
from psycopg import AsyncConnection

from minutebook.errors import MinutebookError, StoreUnavailable
from minutebook.store.per_loop import Loop
from minutebook.store.postgres.append import AppendPlan, Due, KnownHeaders, PendingAppend, append_all
from minutebook.store.postgres.connection import AGAIN, UNWRITABLE, WRITING, Connections, connected, translated

LARGEST_GROUP: Final = 500
MOST_KNOWN: Final = 4096
IMPATIENT_SECONDS: Final = 1.0
"""How long a group waits for the lock of one of its conversations before each of them is written by itself."""


class GroupWriter:
    """Belongs to the event loop that it was made in."""

    def __init__(self, connections: Connections, background: Loop, known: KnownHeaders, due: Due | None) -> None:
        self._connections = connections
        self._background = background
        """The loop of `connections`."""
        self._known = known
        self._due = due
        self._loop = asyncio.get_running_loop()
        self._db: AsyncConnection | None = None
        self._waiting: list[PendingAppend] = []
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tenant and conversation → the task that writes it under locks; what is for it waits until that is done."""
        self._runner: asyncio.Task[None] | None = None
        self._remembers = due is None and not isinstance(self._loop, getattr(asyncio, "ProactorEventLoop", ()))
        """`due` looks at all of a header, of which others change parts; and the driver takes no proactor loop."""

    @property
    def is_idle(self) -> bool:
        return self._runner is None and not self._busy

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group."""
        pending.answer = self._loop.create_future()
        self._waiting.append(pending)
        self._wake()
        return await pending.answer

    async def finish(self) -> None:
        """Wait until everything that was asked for is answered, and close the connection."""
        while not self.is_idle:
            await asyncio.wait({*self._busy.values(), *([self._runner] if self._runner else [])})
        self.close()

    def close(self) -> None:
        """Close the connection, also of a loop that does not run any more."""
        db, self._db = self._db, None
        if db is not None:
            db.pgconn.finish()

    def _wake(self) -> None:
        if self._waiting and self._runner is None:
            self._runner = self._loop.create_task(self._run())

    async def _run(self) -> None:
        """Write group after group, until there is nothing left that can be written now."""
        try:
            while group := self._next():
                with _errors_for(group):
                    if rest := await self._write_remembered(group):
                        await asyncio.wait({self._launch(rest)}, timeout=IMPATIENT_SECONDS)
        finally:
            self._runner = None

    def _next(self) -> list[PendingAppend]:
        """Those of one tenant that wait and can be written now, in their order."""
        waiting = [one for one in self._waiting if not one.answer.done()]
        free = [one for one in waiting if one.name not in self._busy]
        group = [one for one in free if one.tenant == free[0].tenant][:LARGEST_GROUP]
        chosen = set(group)
        self._waiting = [one for one in waiting if one not in chosen]
        return group

    async def _write_remembered(self, group: Sequence[PendingAppend]) -> Sequence[PendingAppend]:
        """Write what can be decided without asking; return the others, of which nothing was written.

        Raises:
            StoreUnavailable: it may have been written or not.
        """
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        known = {one.name[1]: self._known.get(one.name) for one in group} if self._remembers else {}
        plan = AppendPlan(group[0].tenant, {name: header for name, header in known.items() if header is not None})
        versions: dict[PendingAppend, int] = {}
        for one in group:
            if one.command.conversation in plan.headers:
                with suppress(MinutebookError):  # by what is remembered; it is refused only by what is read
                    versions[one] = plan.add(one)
        if not versions or (db := await self._connect()) is None:
            return group
        try:
            self._known.update(await plan.write(db, min(IMPATIENT_SECONDS, self._connections.patience_seconds)))
        except (*AGAIN, *UNWRITABLE, psycopg.errors.LockNotAvailable):
            return group
        except psycopg.Error as error:
            self.close()
            raise translated(error, self._connections.store) from error
        except BaseException:  # between question and answer, the connection is of no use to anybody else
            self.close()
            raise
        for one, version in versions.items():
            _answer(one, version)
        return [one for one in group if one not in versions]

    async def _connect(self) -> AsyncConnection | None:
        """The loop's own connection; None if there is no server now: a connection of the others waits until there is."""
        if self._db is not None:
            try:
                self._db.pgconn.consume_input()  # the server's last words
                self._db.pgconn.consume_input()  # and that it has closed the connection
            except psycopg.Error:
                self.close()
        if self._db is None:
            parts = self._connections
            with suppress(StoreUnavailable):
                self._db = await connected(parts.url, parts.store, parts.patience_seconds)
        return self._db

    def _launch(self, group: Sequence[PendingAppend]) -> "asyncio.Task[None]":
        task = self._loop.create_task(self._write_locked(group))
        names = {one.name for one in group}
        self._busy.update(dict.fromkeys(names, task))

        def free(_: object) -> None:
            for name in names:
                if self._busy.get(name) is task:  # and not a task for this conversation alone
                    del self._busy[name]
            self._wake()

        task.add_done_callback(free)
        return task

    async def _write_locked(self, group: Sequence[PendingAppend]) -> None:
        """One transaction for the group; one for each conversation, if one of them cannot be locked soon or stored at all."""
        parts: dict[tuple[str, str], list[PendingAppend]] = {}
        for one in group:
            parts.setdefault(one.name, []).append(one)
        patience = self._connections.patience_seconds
        lock_seconds = min(IMPATIENT_SECONDS, patience) if len(parts) > 1 else patience
        work = partial(append_all, group=group, known=self._known, lock_seconds=lock_seconds, due=self._due)
        with _errors_for(group):
            try:
                outcomes = await self._background.call(
                    self._connections.carry_out(group[0].tenant, WRITING, work, lock_seconds)
                )
            except StoreUnavailable as error:
                if len(parts) == 1 or not isinstance(error.__cause__, (psycopg.errors.LockNotAvailable, *UNWRITABLE)):
                    raise
                for part in parts.values():
                    self._launch(part)
            else:
                for one, outcome in zip(group, outcomes, strict=True):
                    _answer(one, outcome)


@contextmanager
def _errors_for(group: Sequence[PendingAppend]) -> Iterator[None]:
    """Give what goes wrong to everybody who waits for it."""
    try:
        yield
    except BaseException as error:
        for one in group:
            _answer(one, error)
        if not isinstance(error, Exception):
            raise


def _answer(one: PendingAppend, outcome: int | BaseException) -> None:
    if one.answer.done():
        return
    if isinstance(outcome, int):
        one.answer.set_result(outcome)
    elif isinstance(outcome, Exception):
        one.answer.set_exception(outcome)
    else:
        one.answer.cancel()
