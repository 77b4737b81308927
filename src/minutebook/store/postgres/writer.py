"""The appends of one event loop, written in groups.

A commit waits for the disk and every statement for the network, as long for one append as for a hundred. So whoever wants
to append while others are at it waits, and all of them share the next group. A group is written in one statement on a
connection of the loop's own, from the headers that are remembered: other connections belong to a loop in a thread of its
own, and going there and back takes longer than the append. What cannot be decided like that, or turns out to have
changed, is read under locks and written in a transaction there.
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
from minutebook.store.postgres.append import AppendPlan, Due, KnownHeaders, PendingAppend, append_all, call_append
from minutebook.store.postgres.connection import AGAIN, WRITING, Connections, connected, translated

LARGEST_GROUP: Final = 500
IMPATIENT_SECONDS: Final = 1.0
"""How long a group waits for the lock of one of its conversations before each of them is written by itself."""
_STALE: Final = (*AGAIN, psycopg.errors.LockNotAvailable)
"""Something is not as it is remembered, or cannot be had soon; nothing has been written."""


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
        proactor = getattr(asyncio, "ProactorEventLoop", ())
        self._remembers = due is None and not isinstance(self._loop, proactor)
        """`due` looks at the whole header, of which others change parts; the driver takes no proactor loop."""

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
        while tasks := {*self._busy.values(), *({self._runner} if self._runner else ())}:
            await asyncio.wait(tasks)
        self.abandon()

    def abandon(self) -> None:
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
                with _answer_errors(group):
                    if rest := await self._write_remembered(group):
                        await asyncio.wait({self._launch(rest)}, timeout=IMPATIENT_SECONDS)
        finally:
            self._runner = None

    def _next(self) -> list[PendingAppend]:
        """Those of one tenant that wait, in their order: either for conversations that are remembered, or for others."""
        waiting = [one for one in self._waiting if not one.answer.done()]
        free = [one for one in waiting if one.place not in self._busy]
        group = [one for one in free if self._kind(one) == self._kind(free[0])][:LARGEST_GROUP]
        chosen = set(group)
        self._waiting = [one for one in waiting if one not in chosen]
        return group

    def _kind(self, pending: PendingAppend) -> tuple[str, bool]:
        return pending.tenant, pending.place in self._known

    async def _write_remembered(self, group: Sequence[PendingAppend]) -> Sequence[PendingAppend]:
        """Write what can be decided without asking; return the others, of which nothing was written."""
        headers = {one.conversation: self._known.get(one.place) for one in group} if self._remembers else {}
        plan = AppendPlan(group[0].tenant, {name: header for name, header in headers.items() if header is not None})
        versions: dict[PendingAppend, int] = {}
        for one in group:
            if one.conversation in plan.headers:
                with suppress(MinutebookError):  # by what is remembered; it is refused only by what is read
                    versions[one] = plan.add(one)
        if not versions or not await self._send(plan):
            return group
        for one, version in versions.items():
            _answer(one, version)
        return [one for one in group if one not in versions]

    async def _send(self, plan: AppendPlan) -> bool:
        """Write a plan in one statement; return whether it was written.

        Raises:
            StoreUnavailable: it may have been or not.
        """
        db = await self._connected()
        if db is None:
            return False
        try:
            numbers = await call_append(db, plan.values(min(IMPATIENT_SECONDS, self._connections.patience_seconds)))
        except _STALE:
            plan.forget(self._known)
            return False
        except BaseException as error:
            plan.forget(self._known)
            self.abandon()
            if isinstance(error, psycopg.Error):
                raise translated(error, self._connections.store) from error
            raise
        plan.remember(self._known, numbers)
        return True

    async def _connected(self) -> AsyncConnection | None:
        """The loop's own connection; None if there is no server now: who waits for a connection waits until there is."""
        if self._db is not None:
            try:
                self._db.pgconn.consume_input()  # the server's last words
                self._db.pgconn.consume_input()  # and that it has closed the connection
            except psycopg.Error:
                self.abandon()
        if self._db is None:
            with suppress(StoreUnavailable):
                self._db = await connected(
                    self._connections.url, self._connections.store, self._connections.patience_seconds
                )
        return self._db

    def _launch(self, group: Sequence[PendingAppend]) -> "asyncio.Task[None]":
        task = self._loop.create_task(self._write_locked(group))
        places = {one.place for one in group}
        self._busy.update(dict.fromkeys(places, task))

        def free(_: object) -> None:
            for place in places:
                if self._busy.get(place) is task:  # it may have been passed on to a task for this conversation alone
                    del self._busy[place]
            self._wake()

        task.add_done_callback(free)
        return task

    async def _write_locked(self, group: Sequence[PendingAppend]) -> None:
        """One transaction for the group; one for each conversation, if one of them cannot be locked soon."""
        parts: dict[str, list[PendingAppend]] = {}
        for one in group:
            parts.setdefault(one.conversation, []).append(one)
        patience = self._connections.patience_seconds
        lock_seconds = min(IMPATIENT_SECONDS, patience) if len(parts) > 1 else patience
        work = partial(append_all, pending=group, due=self._due, known=self._known, lock_seconds=lock_seconds)
        with _answer_errors(group):
            try:
                outcomes = await self._background.call(
                    self._connections.carry_out(group[0].tenant, WRITING, work, lock_seconds)
                )
            except StoreUnavailable as error:
                if len(parts) == 1 or not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                    raise
                for part in parts.values():
                    self._launch(part)
                return
            for one, outcome in zip(group, outcomes, strict=True):
                _answer(one, outcome)


@contextmanager
def _answer_errors(group: Sequence[PendingAppend]) -> Iterator[None]:
    """Give what goes wrong to everybody who waits for it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the edge of the task: every error belongs to whoever asked
        for one in group:
            _answer(one, error)
    except BaseException:
        for one in group:
            one.answer.cancel()
        raise


def _answer(one: PendingAppend, outcome: int | Exception) -> None:
    if one.answer.done():
        return
    if isinstance(outcome, Exception):
        one.answer.set_exception(outcome)
    else:
        one.answer.set_result(outcome)
