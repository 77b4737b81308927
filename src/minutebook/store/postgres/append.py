"""A group of appends: decided here, one after the other, and written by one server function in one statement.

Each append is checked against what the ones before it left, and what is wrong with one is its own answer. A plan is made
from headers that are remembered, without asking the database, or from what was read under the locks of the conversations.
The function writes all of a plan, or nothing if anything is not as the plan assumes.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, chain
from typing import Any, Final, Self

from psycopg import AsyncConnection, adapters
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from minutebook.errors import ConversationErased, IdempotencyConflict, LeaseLost, MinutebookError
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import microseconds, moment, squeezed
from minutebook.store.postgres.connection import NOW, Work
from minutebook.store.postgres.entries import Kept, Rows
from minutebook.store.postgres.transaction import PostgresTransaction
from minutebook.store.rules import created, grown, require_recipient, require_version, tombstone
from minutebook.store.sql import documents as sql_documents
from minutebook.store.sql.documents import Name
from minutebook.store.sql.headers import SELECT, json_of, row_of
from minutebook.store.types import Conversation, Document, Lease, document_key, kind_key, require_standing

Due = Callable[[Conversation], bool]
"""Whether a conversation that has just grown is due for a background job."""
Numbered = tuple[int, Conversation]
"""The number and the header of a conversation."""
KnownHeaders = MutableMapping[tuple[str, str], Numbered]
"""By tenant and id, as this process last read or wrote them; others may have changed them since."""

_CALL: Final = b"SELECT minutebook.append($1, $2, $3, $4)"
_TYPES: Final = [adapters.types[name].oid for name in ("text", "text", "jsonb", "bytea")]
_FORMATS: Final = (Format.TEXT, Format.TEXT, Format.TEXT, Format.BINARY)
_GROWN: Final = ["place", "number", "seen", "version", "length", "turns", "lead", "open_at", "open_calls", "updated_at"]
_CREATED: Final = ["id", "mark", "recipient", "status", "labels", "created_at"]
_ENTRY: Final = ["place", "position", "role", "turn", "stamp", "text", "rest"]
_ANSWER: Final = ("place", "key", "digest", "version")
_DOCUMENT: Final = ["place", "verdict", "kind", "id", "kind_hash", "hash", "at", "expires_at", "body"]
_ANSWERED: Final = (
    "SELECT header.id, known.key, known.digest, known.version FROM minutebook.conversation AS header CROSS JOIN LATERAL ("
    "  SELECT key, digest, version FROM minutebook.answer WHERE answer.tenant = header.tenant"
    "  AND answer.conversation = header.number AND key = ANY(%s::bytea[]) OFFSET 0"  # no other order: few, by their index
    ") AS known WHERE header.tenant = %s AND header.id = ANY(%s::text[])"
)
_LOCK: Final = f"{SELECT} AND id = ANY(?::text[]) ORDER BY id FOR UPDATE"
_ERASED: Final = "SELECT id FROM tombstone WHERE tenant = ? AND id = ANY(?::bytea[])"
_LEASES: Final = (
    "SELECT id, holder, fence, until FROM lease WHERE tenant = ? AND id = ANY(?::bytea[]) ORDER BY id FOR SHARE"
)


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append that somebody waits for."""

    tenant: str
    command: AppendCommand
    kept: Sequence[Kept]
    """Its entries as their rows hold them."""
    at: datetime
    answer: "asyncio.Future[int]" = field(init=False)

    @property
    def name(self) -> tuple[str, str]:
        return self.tenant, self.command.conversation


@dataclass(slots=True)
class AppendPlan:
    """What a group of one tenant's appends writes, and what is known of what is there.

    Where nothing else is known than headers, leases are taken to stand, and no document or idempotency key to be there:
    the server function checks that.
    """

    tenant: str
    headers: Mapping[str, Numbered]
    answers: dict[tuple[str, bytes], tuple[bytes, int]] = field(default_factory=dict)
    """Conversation and idempotency key → the digest and the version of the append that had it."""
    erased: set[str] = field(default_factory=set)
    documents: dict[Name, Document] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    now: datetime | None = None
    """The time of the database, if the leases are known."""
    _after: dict[str, Conversation] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    """Which of the conversations that are written it is, from 1 on."""
    _rows: Rows = field(default_factory=Rows)
    _changes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """What the server function is told of answers, documents and leases."""

    @classmethod
    async def load(cls, work: Work, group: Sequence[PendingAppend]) -> Self:
        """Read, under the locks of their conversations, all that some appends are decided on."""
        commands = [one.command for one in group]
        names = sorted({command.conversation for command in commands})
        keys = [command.key for command in commands if command.key]
        answers = [(_ANSWERED, (keys, work.tenant, names))] if keys else []
        rows, *answered = await work.ask((_LOCK, (work.tenant, names)), *answers)  # everybody locks in this order
        headers = map(row_of, rows)
        plan = cls(work.tenant, {row.conversation.id: (row.number, row.conversation) for row in headers})
        plan.answers = {(name, key): (digest, version) for name, key, digest, version in chain(*answered)}
        marks = {tombstone(work.tenant, name): name for name in names if name not in plan.headers}
        if marks:
            plan.erased = {marks[mark] for (mark,) in await work.rows(_ERASED, work.tenant, list(marks))}
        documents = sorted({(one.kind, one.id) for command in commands for one in command.documents})
        plan.documents = await sql_documents.find(PostgresTransaction(work), documents)
        leased = {command.lease.conversation for command in commands if command.lease is not None}
        if leased:
            marks = {tombstone(work.tenant, name): name for name in leased}
            leases = await work.rows(_LEASES, work.tenant, list(marks))
            plan.leases = {
                marks[mark]: Lease(marks[mark], holder, fence, moment(until)) for mark, holder, fence, until in leases
            }
            plan.now = moment((await work.row(NOW))[0])
        return plan

    def add(self, pending: PendingAppend) -> int:
        """Decide on one append; return the version that it makes.

        Raises:
            MinutebookError: it cannot be done, and adds nothing.
        """
        command, at = pending.command, pending.at
        name, key, lease = command.conversation, command.key, command.lease
        if name in self.erased:
            raise ConversationErased(name)
        if key and (name, key) in self.answers:
            digest, version = self.answers[name, key]
            if digest != command.digest:
                raise IdempotencyConflict(name, command.idempotency_key or "")
            self._note_lease(command)
            return version
        if lease is not None and any(lease.fence == one["fence"] for one in self._changes.get("releases", ())):
            raise LeaseLost(lease.conversation, lease.holder, lease.fence)
        if lease is not None and self.now is not None:
            require_standing(self.leases.get(lease.conversation), lease, self.now)
        header = self._after.get(name) or (self.headers[name][1] if name in self.headers else None)
        require_version(header, name, command.expected_version)
        before = header or created(self.tenant, name, command.recipient, command.labels or {}, at)
        require_recipient(before, command.recipient)
        verdicts = sql_documents.verdicts(name, command.documents, self.documents, at)
        self._after[name] = after = grown(before, command.messages, broken=command.broken, at=at)
        place = self._places.setdefault(name, len(self._places) + 1)
        self._rows.add(place, before.length, before.turns, command.packed, pending.kept)
        row: tuple[Any, ...]
        for one, verdict in zip(command.documents, verdicts, strict=True):
            self.documents[one.kind, one.id] = one.stored(name, 0, at)
            names = (one.kind, one.id, kind_key(one.kind), document_key(one.kind, one.id))
            row = (place, verdict.value, *names, microseconds(at), one.expires_at, squeezed(one.body))
            self._changes["documents"].append(dict(zip(_DOCUMENT, row, strict=True)))
        if key:
            self.answers[name, key] = (command.digest, after.version)
            row = (place, key, command.digest, after.version)
            self._changes["answers"].append(dict(zip(_ANSWER, row, strict=True)))
        self._note_lease(command, shown=True)
        return after.version

    def _note_lease(self, command: AppendCommand, *, shown: bool = False) -> None:
        if (lease := command.lease) is not None:
            row = {"id": tombstone(self.tenant, lease.conversation), "holder": lease.holder, "fence": lease.fence}
            if shown:
                self._changes["leases"].append(row)
            if command.release:
                self._changes["releases"].append(row)

    async def write(self, db: AsyncConnection, lock_seconds: float, due: Due | None = None) -> KnownHeaders:
        """Write it in one statement; return the conversations as they are once that is committed.

        The driver is used below its cursors, which would take longer than all the rest.
        """
        payloads = self._rows.payloads
        starts = accumulate((len(body) for _, body in payloads.values()), initial=1)
        changes = {
            **self._changes,
            "conversations": [self._row(name) for name in sorted(self._after)],  # everybody locks them in this order
            "entries": [dict(zip(_ENTRY, row, strict=True)) for row in zip(*self._rows.columns, strict=True)],
            "payloads": [
                {"hash": digest, "uses": uses, "start": start, "size": len(body)}
                for (digest, (uses, body)), start in zip(payloads.items(), starts, strict=False)
            ],
            "jobs": [name for name, header in self._after.items() if due is not None and due(header)],
        }
        told = json.dumps({kind: rows for kind, rows in changes.items() if rows}, default=_hex)
        bodies = b"".join(body for _, body in payloads.values())
        values = (self.tenant.encode(), str(int(1000 * lock_seconds)).encode(), told.encode(), bodies)
        db.pgconn.send_query_params(_CALL, values, param_types=_TYPES, param_formats=_FORMATS)
        result = await _result(db)
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        numbers = json.loads(result.get_value(0, 0) or b"[]")
        return {(self.tenant, name): (numbers[at], header) for at, (name, header) in enumerate(self._after.items())}

    def _row(self, name: str) -> dict[str, Any]:
        one = self._after[name]
        number, before = self.headers.get(name, (None, None))
        seen = (self._places[name], number, before and before.version)
        counts = (one.version, one.length, one.turns, one.lead, one.open_at, json_of(one.open_calls))
        row: dict[str, Any] = dict(zip(_GROWN, (*seen, *counts, microseconds(one.updated_at)), strict=True))
        if number is None:
            facts = (one.recipient, one.status.value, json_of(dict(one.labels)), microseconds(one.created_at))
            row |= zip(_CREATED, (name, tombstone(self.tenant, name), *facts), strict=True)
        return row


async def append_all(
    work: Work, group: Sequence[PendingAppend], known: KnownHeaders, lock_seconds: float, due: Due | None
) -> list[int | Exception]:
    """Carry out a group of appends by what is there; the version of each, or what was wrong with it."""
    plan = await AppendPlan.load(work, group)
    outcomes: list[int | Exception] = []
    for one in group:
        try:
            outcomes.append(plan.add(one))
        except MinutebookError as refusal:
            outcomes.append(refusal)
    written = await work.use(lambda db: plan.write(db, lock_seconds, due))
    await work.commit()
    known.update(written)
    return outcomes


async def _result(db: AsyncConnection) -> PGresult:
    """What the server answers. A short statement is sent at once: then there is less to wait for than the driver does."""
    pgconn, loop = db.pgconn, asyncio.get_running_loop()
    if pgconn.flush():
        sent: list[PGresult] = await db.wait(execute(pgconn))
        return sent[0]
    while pgconn.is_busy():
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(pgconn.socket, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(pgconn.socket)
        pgconn.consume_input()
    results: list[PGresult] = list(iter(pgconn.get_result, None))
    return results[0]


def _hex(data: bytes) -> str:
    return f"\\x{data.hex()}"


def _wake(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
