"""A connection of an event loop's own, for appends that take one statement.

Everything else is done by a loop in a thread of its own, and going there and back takes longer than the append itself.
So the driver is used at its lowest level here: one message there, one back, and no waiting but for the socket.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from minutebook.errors import MinutebookError
from minutebook.store.postgres_append import Ask
from minutebook.store.postgres_errors import AGAIN, translated
from minutebook.store.postgres_group import IMPATIENT_SECONDS, LARGEST_GROUP
from minutebook.store.postgres_open import SETTINGS
from minutebook.store.postgres_quick import Known, Message, Plan, Quick

_LATER: Final = (*AGAIN, psycopg.errors.LockNotAvailable)
"""What the long way deals with; nothing has been written."""
_BINARY: Final = 1


class Lane:
    """Belongs to the loop that it was made in."""

    def __init__(self, url: str, store: str, patience_seconds: float, known: Known) -> None:
        self.loop = asyncio.get_running_loop()
        self._url = url
        self._store = store
        self._patience_seconds = patience_seconds
        self._known = known
        self._db: AsyncConnection | None = None
        self._waiting: deque[Quick] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._works = True

    @property
    def is_idle(self) -> bool:
        return self._runner is None

    def takes(self, tenant: str, ask: Ask) -> bool:
        """Whether this may be tried here: nothing is asked for besides, and the conversation is known."""
        request = ask.request
        plain = not ask.labels and not request.documents and request.lease is None
        return plain and self._works and (tenant, ask.conversation) in self._known

    async def append(self, tenant: str, ask: Ask) -> int | None:
        """Append with the next group; None if it must be done the long way, and nothing was written."""
        one = Quick(tenant, ask, self.loop.create_future())
        self._waiting.append(one)
        if self._runner is None:
            self._runner = self.loop.create_task(self._run())
        return await one.answer

    async def finish(self) -> None:
        """Wait for what was begun, and let go of the connection."""
        while self._runner is not None:
            await asyncio.wait({self._runner})
        self._hang_up()

    def abandon(self) -> None:
        """Let go of the connection of a loop that does not run any more."""
        if self._db is not None:
            self._db.pgconn.finish()
            self._db = None

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._write(self._next())
        finally:
            self._runner = None
            for one in self._waiting:  # only if this was cancelled, with the loop
                one.answer.cancel()

    def _next(self) -> list[Quick]:
        """Those of one tenant that wait, in their order."""
        tenant, group = self._waiting[0].tenant, list[Quick]()
        others: list[Quick] = []
        while self._waiting and len(group) < LARGEST_GROUP:
            one = self._waiting.popleft()
            if not one.answer.done():
                (group if one.tenant == tenant else others).append(one)
        self._waiting.extendleft(reversed(others))
        return group

    async def _write(self, group: list[Quick]) -> None:
        if not group:
            return
        plan = Plan(group[0].tenant, self._known)
        versions: list[int | None] = []
        for one in group:
            try:
                versions.append(plan.add(one.ask))
            except (MinutebookError, KeyError):  # as things are now; the long way looks, and says so if it is so
                versions.append(None)
        try:
            done = plan.conversations == 0 or await self._ask(plan)
        except BaseException as error:
            plan.forget()
            self._answer_all(group, error)
            if not isinstance(error, Exception):
                raise
            return
        for one, version in zip(group, versions, strict=True):
            if not one.answer.done():
                one.answer.set_result(version if done else None)

    def _answer_all(self, group: list[Quick], error: BaseException) -> None:
        for one in group:
            if one.answer.done():
                continue
            if isinstance(error, Exception):
                one.answer.set_exception(error)
            else:
                one.answer.cancel()

    async def _ask(self, plan: Plan) -> bool:
        """Have it written; whether it was. If it was not, nothing was.

        Raises:
            StoreUnavailable: it may have been, or not.
        """
        pgconn = await self._connected()
        if pgconn is None:
            return False
        patience = IMPATIENT_SECONDS if plan.conversations > 1 else self._patience_seconds
        try:
            await self._exchange(pgconn, plan.message(int(1000 * patience)))
        except _LATER:
            plan.forget()
            return False
        except psycopg.Error as error:
            self._hang_up()
            raise translated(error, self._store) from error
        except BaseException:  # cancelled between question and answer: of no use to anybody else
            self._hang_up()
            raise
        plan.remember()
        return True

    async def _exchange(self, pgconn: PGconn, message: Message) -> None:
        formats = (_BINARY,) * len(message.values)
        pgconn.send_query_params(message.statement, message.values, param_types=message.types, param_formats=formats)
        while pgconn.flush():
            await self._writable(pgconn)
        problem: psycopg.Error | None = None
        while True:
            while pgconn.is_busy():
                await self._readable()
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            if result.status != ExecStatus.TUPLES_OK:
                problem = problem or error_from_result(result)
        if problem is not None:
            raise problem
        if pgconn.transaction_status != TransactionStatus.IDLE:
            raise psycopg.OperationalError("the connection was lost")

    async def _readable(self) -> None:
        self._awaited = self.loop.create_future()
        try:
            await self._awaited
        finally:
            self._awaited = None

    async def _writable(self, pgconn: PGconn) -> None:
        """Wait until more can be sent, or there is something to read, which may be why nothing can."""
        self._awaited = waiting = self.loop.create_future()
        self.loop.add_writer(pgconn.socket, _wake, waiting)
        try:
            await waiting
        finally:
            self._awaited = None
            self.loop.remove_writer(pgconn.socket)
        pgconn.consume_input()

    def _incoming(self) -> None:
        """The socket can be read. When nobody waits for that, the server is hanging up."""
        if self._awaited is not None:
            _wake(self._awaited)
        elif self._db is not None:
            try:
                self._db.pgconn.consume_input()
            except psycopg.Error:
                self._hang_up()

    async def _connected(self) -> PGconn | None:
        if self._db is None:
            try:
                self._db = await AsyncConnection.connect(
                    self._url, connect_timeout=max(2, int(self._patience_seconds)), **SETTINGS
                )
                self.loop.add_reader(self._db.pgconn.socket, self._incoming)
            except (psycopg.Error, NotImplementedError):  # the long way says why, or waits until there is a server
                self._works = not isinstance(self.loop, _UNSUITABLE)
                return None
        return self._db.pgconn

    def _hang_up(self) -> None:
        if self._db is not None:
            with suppress(psycopg.Error):
                self.loop.remove_reader(self._db.pgconn.socket)
            self.abandon()


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


_UNSUITABLE: Final[tuple[type, ...]] = tuple(
    kind for kind in (getattr(asyncio, "ProactorEventLoop", None),) if kind is not None
)
"""Loops that cannot watch a socket of somebody else's."""
