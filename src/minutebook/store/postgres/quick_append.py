"""A connection of an event loop's own, for appends that take one statement.

Everything else is done by a loop in a thread of its own, and going there and back takes longer than the append itself.
So the driver is used at its lowest level here: one message there, one back, and no waiting but for the socket.

Appends to conversations that are known already: one statement, which the database takes or leaves.

What a conversation was after our last append to it is remembered, so the next one is decided without asking. The
database changes the header only if it still has that version. If not, nothing is written, and the append is done again
the long way: under a lock, from what is there.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from minutebook.errors import IdempotencyConflict, MinutebookError
from minutebook.store.codec import Packed, microseconds
from minutebook.store.postgres.append import IMPATIENT_SECONDS, LARGEST_GROUP, PendingAppend
from minutebook.store.postgres.connection import AGAIN, SETTINGS, translated
from minutebook.store.postgres.entries import Kept, Rows
from minutebook.store.rules import grown, require_recipient, require_version
from minutebook.store.sql.headers import json_of
from minutebook.store.types import Conversation

Name = tuple[str, str]
"""A tenant and the id of a conversation."""
Known = MutableMapping[Name, tuple[int, Conversation]]
"""The number and the header of conversations, as they were when we last looked."""

_BYTES, _BIG, _SMALL, _INTEGER, _TEXT = 17, 20, 21, 23, 25
"""The database's own numbers for bytea, bigint, smallint, integer and text."""
_PLAIN: Final = {_BIG: ">q", _SMALL: ">h", _INTEGER: ">i"}
_FORMATS: Final = {_BIG: ">iq", _SMALL: ">ih", _INTEGER: ">ii"}
_WIDTHS: Final = {_BIG: 8, _SMALL: 2, _INTEGER: 4}

_HEADER: Final = (_BIG, _BIG, _BIG, _INTEGER, _INTEGER, _INTEGER, _INTEGER, _TEXT, _BIG)
_ENTRY: Final = (_BIG, _INTEGER, _SMALL, _INTEGER, _BYTES, _BYTES, _BYTES)
_PAYLOAD: Final = (_BYTES, _BIG, _BYTES)
_ANSWER: Final = (_BIG, _BYTES, _BYTES, _BIG)
_KINDS: Final = (*_HEADER, *_ENTRY, *_PAYLOAD, *_ANSWER)
_ARRAYS: Final = {_BYTES: 1001, _BIG: 1016, _SMALL: 1005, _INTEGER: 1007, _TEXT: 1009}
"""The same for arrays of them."""
_ONE_KINDS: Final = (*_HEADER, *_ENTRY[1:], _BYTES, _BYTES)


class Message(NamedTuple):
    """A statement on its way: types are said beside it, since reading casts takes the server as long as the work itself."""

    statement: bytes
    types: Sequence[int]
    values: Sequence[bytes | None]


def _call(function: str, types: Sequence[int]) -> tuple[bytes, Sequence[int]]:
    numbers = ", ".join(f"${number}" for number in range(1, len(types) + 1))
    return f"SELECT minutebook.{function}({numbers})".encode(), types


_MANY: Final = _call("append", (_TEXT, _TEXT, *(_ARRAYS[kind] for kind in _KINDS)))
_ONE: Final = _call("append_one", (_TEXT, _TEXT, *_ONE_KINDS))


@dataclass(slots=True)
class _Talk:
    number: int
    before: Conversation
    after: Conversation
    parts: list[tuple[int, int, Sequence[Packed], Sequence[Kept]]] = field(default_factory=list)
    answers: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)


class Plan:
    """What a group of one tenant's appends will have written, if nobody else has changed the same conversations."""

    def __init__(self, tenant: str, known: Known) -> None:
        self._tenant = tenant
        self._known = known
        self._talks: dict[str, _Talk] = {}

    @property
    def conversations(self) -> int:
        return len(self._talks)

    def add(self, pending: PendingAppend) -> int:
        """Decide on one append; return the version that it makes.

        Raises:
            MinutebookError: it could not be done, if what is known is still so.
        """
        command, conversation = pending.command, pending.conversation
        talk = self._talks.get(conversation)
        if talk is None:
            number, header = self._known[self._tenant, conversation]
            talk = _Talk(number, header, header)
        if command.key in talk.answers:
            digest, version = talk.answers[command.key]
            if digest != command.digest:
                raise IdempotencyConflict(conversation, command.idempotency_key or "")
            return version
        require_version(talk.after, conversation, command.expected_version)
        require_recipient(talk.after, command.recipient)
        after = grown(talk.after, command.messages, broken=command.broken, at=pending.at)
        talk.parts.append((talk.after.length, talk.after.turns, command.packed, pending.kept))
        talk.after = after
        if command.key:
            talk.answers[command.key] = (command.digest, after.version)
        self._talks[conversation] = talk
        return after.version

    def message(self, lock_milliseconds: int) -> Message:
        """What has it written. Conversations are in the order in which everybody locks them."""
        talks = [self._talks[name] for name in sorted(self._talks)]
        rows = Rows()
        for talk in talks:
            for part in talk.parts:
                rows.add(talk.number, *part)
        start = [self._tenant.encode(), str(lock_milliseconds).encode()]
        if len(rows.columns[0]) == 1 and not rows.payloads:
            entry = [column[0] for column in rows.columns[1:]]
            answer = next(((key, digest) for key, (digest, _) in talks[0].answers.items()), (None, None))
            row = (*_header(talks[0]), *entry, *answer)
            return Message(*_ONE, [*start, *map(_scalar, _ONE_KINDS, row)])
        payloads = ((digest, *kept) for digest, kept in rows.payloads.items())
        answers = ((talk.number, key, *kept) for talk in talks for key, kept in talk.answers.items())
        columns = (
            *_columns(_HEADER, map(_header, talks)),
            *rows.columns,
            *_columns(_PAYLOAD, payloads),
            *_columns(_ANSWER, answers),
        )
        arrays = [_array(kind, column) for kind, column in zip(_KINDS, columns, strict=True)]
        return Message(*_MANY, [*start, *arrays])

    def remember(self) -> None:
        """Note how things are, now that it is done."""
        for name, talk in self._talks.items():
            self._known[self._tenant, name] = (talk.number, talk.after)

    def forget(self) -> None:
        """Note that somebody else was faster."""
        for name in self._talks:
            self._known.pop((self._tenant, name), None)


def _header(talk: _Talk) -> tuple[Any, ...]:
    one = talk.after
    counts = (one.version, one.length, one.turns, one.lead, one.open_at)
    return (talk.number, talk.before.version, *counts, json_of(one.open_calls), microseconds(one.updated_at))


def _columns(kinds: Sequence[int], rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    columns: list[list[Any]] = [[] for _ in kinds]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns


def _scalar(kind: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if kind in _PLAIN:
        return pack(_PLAIN[kind], value)
    return value.encode() if isinstance(value, str) else bytes(value)


def _array(kind: int, values: Sequence[Any]) -> bytes:
    """An array as the database reads it: what it holds and how many, then for each its length and its bytes."""
    if not values:
        return pack(">iii", 0, 0, kind)
    head = pack(">iiiii", 1, 1 if None in values else 0, kind, len(values), 1)
    if kind in _FORMATS:
        how, width = _FORMATS[kind], _WIDTHS[kind]
        return head + b"".join([_NULL if value is None else pack(how, width, value) for value in values])
    made = [value.encode() if isinstance(value, str) else value for value in values]
    return head + b"".join([_NULL if one is None else pack(">i", len(one)) + one for one in made])


_NULL: Final = pack(">i", -1)


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
        self._waiting: deque[PendingAppend] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._works = True

    @property
    def is_idle(self) -> bool:
        return self._runner is None

    def takes(self, pending: PendingAppend) -> bool:
        """Whether this may be tried here: nothing is asked for besides, and the conversation is known."""
        command = pending.command
        plain = not command.labels and not command.documents and command.lease is None
        return plain and self._works and (pending.tenant, pending.conversation) in self._known

    async def append(self, pending: PendingAppend) -> int | None:
        """Append with the next group; None if it must be done the long way, and nothing was written."""
        answer: asyncio.Future[int | None] = self.loop.create_future()
        pending.answer = answer
        self._waiting.append(pending)
        if self._runner is None:
            self._runner = self.loop.create_task(self._run())
        return await answer

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

    def _next(self) -> list[PendingAppend]:
        """Those of one tenant that wait, in their order."""
        tenant, group = self._waiting[0].tenant, list[PendingAppend]()
        others: list[PendingAppend] = []
        while self._waiting and len(group) < LARGEST_GROUP:
            one = self._waiting.popleft()
            if not one.answer.done():
                (group if one.tenant == tenant else others).append(one)
        self._waiting.extendleft(reversed(others))
        return group

    async def _write(self, group: list[PendingAppend]) -> None:
        if not group:
            return
        plan = Plan(group[0].tenant, self._known)
        versions: list[int | None] = []
        for one in group:
            try:
                versions.append(plan.add(one))
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

    def _answer_all(self, group: list[PendingAppend], error: BaseException) -> None:
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
