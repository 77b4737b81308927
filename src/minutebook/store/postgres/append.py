"""Appends in groups: decided here, one after the other, and written by one server function in one statement.

Each append is checked against what the ones before it left, and what is wrong with one is its own answer. A plan is made
from headers that are remembered, without asking the database, or from what was read under the locks of the conversations.
The function writes all of a plan, or nothing if anything is not as the plan assumes.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, Self

from psycopg import AsyncConnection, adapters
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.postgres import types
from psycopg.pq import ExecStatus, Format

from minutebook.errors import ConversationErased, IdempotencyConflict, LeaseLost, MinutebookError
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import Packed, microseconds, squeezed
from minutebook.store.postgres import documents as postgres_documents
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres import leases as postgres_leases
from minutebook.store.postgres.connection import Work
from minutebook.store.postgres.documents import Name
from minutebook.store.postgres.entries import Kept, Rows
from minutebook.store.postgres.headers import json_of
from minutebook.store.rules import created, grown, require_recipient, require_version, tombstone
from minutebook.store.types import (
    Conversation,
    Document,
    Lease,
    PackedDocument,
    Verdict,
    document_key,
    kind_key,
    require_standing,
)

Due = Callable[[Conversation], bool]
"""Whether a conversation that has just grown is due for a background job."""
Numbered = tuple[int, Conversation]
"""The number and the header of a conversation."""


def _array_dumper(name: str) -> Any:
    return adapters.get_dumper_by_oid(types[name].array_oid, Format.BINARY)(list, Transformer())


KnownHeaders = MutableMapping[tuple[str, str], Numbered]
"""By tenant and id, as they were when this process last read or wrote them; others may have changed them since."""
MOST_KNOWN: Final = 4096
_ARRAYS: Final = ("int4", "int4", "int2", "int4", "bytea", "bytea", "bytea", "bytea", "int8", "bytea")
_DUMPERS: Final = [_array_dumper(name) for name in _ARRAYS]
_TYPES: Final = (*(types[name].oid for name in ("text", "text", "jsonb")), *(one.oid for one in _DUMPERS))
_CALL: Final = f"SELECT minutebook.append({', '.join(f'${at}' for at in range(1, len(_TYPES) + 1))})".encode()
_FORMATS: Final = (Format.TEXT,) * 3 + (Format.BINARY,) * len(_ARRAYS)
_ANSWERED: Final = (
    "SELECT header.id, known.key, known.digest, known.version FROM minutebook.conversation AS header CROSS JOIN LATERAL ("
    "  SELECT key, digest, version FROM minutebook.answer WHERE answer.tenant = header.tenant"
    "  AND answer.conversation = header.number AND key = ANY(%s::bytea[]) OFFSET 0"  # no other order: few, by their index
    ") AS known WHERE header.tenant = %s AND header.id = ANY(%s::text[])"
)


async def call_append(db: AsyncConnection, values: Sequence[bytes]) -> list[int]:
    """Have a plan written; return the numbers of its conversations.

    The driver is used at its lowest level: finding out the types of lists takes it longer than all the rest.
    """
    pgconn, loop = db.pgconn, asyncio.get_running_loop()
    pgconn.send_query_params(_CALL, values, param_types=_TYPES, param_formats=_FORMATS)
    if pgconn.flush():  # there is more than the socket takes at once
        results = await db.wait(execute(pgconn))
    else:
        while pgconn.is_busy():
            readable = loop.create_future()
            loop.add_reader(pgconn.socket, _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(pgconn.socket)
            pgconn.consume_input()
        results = [result for result in iter(pgconn.get_result, None)]
    for result in results:
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        numbers = result.get_value(0, 0)
    return [int(number) for number in (numbers or b"{}")[1:-1].split(b",") if number]


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append that somebody waits for."""

    tenant: str
    command: AppendCommand
    kept: Sequence[Kept]
    """Its entries as their rows hold them."""
    at: datetime
    answer: "asyncio.Future[int]" = field(init=False)
    """Its version."""

    @property
    def conversation(self) -> str:
        return self.command.conversation

    @property
    def place(self) -> tuple[str, str]:
        return self.tenant, self.command.conversation


@dataclass(slots=True)
class AppendPlan:
    """What a group of one tenant's appends writes, and what is known of what is there.

    Without `now`, nothing is known of leases, documents and idempotency keys: leases are taken to stand, and no document
    or key to be there. The server function checks that.
    """

    tenant: str
    headers: Mapping[str, Numbered]
    now: datetime | None = None
    """The time of the database."""
    erased: set[str] = field(default_factory=set)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    documents: dict[Name, Document] = field(default_factory=dict)
    answers: dict[tuple[str, bytes], tuple[bytes, int]] = field(default_factory=dict)
    """Conversation and idempotency key → the digest and the version of the append that had it."""
    _after: dict[str, Conversation] = field(default_factory=dict)
    _parts: dict[str, list[tuple[int, int, Sequence[Packed], Sequence[Kept]]]] = field(default_factory=dict)
    """For each conversation: position, user messages before it, and the entries that are written from there."""
    _new_keys: list[tuple[str, bytes]] = field(default_factory=list)
    _shown: dict[int, Lease] = field(default_factory=dict)
    _released: dict[int, Lease] = field(default_factory=dict)
    _new_documents: list[tuple[str, PackedDocument, Verdict, datetime]] = field(default_factory=list)

    @classmethod
    async def load(cls, work: Work, pending: Sequence[PendingAppend]) -> Self:
        """Read, under the locks of their conversations, all that some appends are decided on."""
        names = sorted({one.conversation for one in pending})
        keys = [one.command.key for one in pending if one.command.key]
        queries = [postgres_rows.lock(work.tenant, names)]
        if keys:
            queries.append((_ANSWERED, (keys, work.tenant, names)))
        rows, *answered = await work.ask(*queries)
        filed = map(postgres_rows.filed, rows)
        plan = cls(work.tenant, {one.conversation.id: (one.number, one.conversation) for one in filed})
        plan.answers = {(name, key): (digest, version) for name, key, digest, version in chain(*answered)}
        plan.erased = await postgres_rows.buried(work, [name for name in names if name not in plan.headers])
        leased = {one.command.lease.conversation for one in pending if one.command.lease is not None}
        if leased:
            plan.leases, plan.now = await postgres_leases.held(work, leased)
        named = {(one.kind, one.id) for append in pending for one in append.command.documents}
        plan.documents = await postgres_documents.find(work, sorted(named))
        return plan

    @property
    def conversations(self) -> int:
        """How many conversations it appends to."""
        return len(self._after)

    @property
    def is_empty(self) -> bool:
        return not self._after and not self._released

    def add(self, pending: PendingAppend) -> int:
        """Decide on one append; return the version that it makes.

        Raises:
            MinutebookError: it cannot be done, and adds nothing.
        """
        command, name, at = pending.command, pending.conversation, pending.at
        key = command.key
        if name in self.erased:
            raise ConversationErased(name)
        if key and (name, key) in self.answers:
            digest, version = self.answers[name, key]
            if digest != command.digest:
                raise IdempotencyConflict(name, command.idempotency_key or "")
            self._release(command)
            return version
        self._require_lease(command.lease)
        header = self._after.get(name) or (self.headers[name][1] if name in self.headers else None)
        require_version(header, name, command.expected_version)
        before = header or created(self.tenant, name, command.recipient, command.labels or {}, at)
        require_recipient(before, command.recipient)
        verdicts = postgres_documents.decided(name, command.documents, self.documents, at)
        after = grown(before, command.messages, broken=command.broken, at=at)
        for document, verdict in zip(command.documents, verdicts, strict=True):
            self.documents[document.kind, document.id] = document.stored(name, 0, at)
            self._new_documents.append((name, document, verdict, at))
        if command.lease is not None:
            self._shown[command.lease.fence] = command.lease
        self._release(command)
        self._parts.setdefault(name, []).append((before.length, before.turns, command.packed, pending.kept))
        self._after[name] = after
        if key:
            self.answers[name, key] = (command.digest, after.version)
            self._new_keys.append((name, key))
        return after.version

    def _require_lease(self, lease: Lease | None) -> None:
        if lease is not None and lease.fence in self._released:
            raise LeaseLost(lease.conversation, lease.holder, lease.fence)
        if lease is not None and self.now is not None:
            require_standing(self.leases.get(lease.conversation), lease, self.now)

    def _release(self, command: AppendCommand) -> None:
        if command.release and command.lease is not None:
            self._released[command.lease.fence] = command.lease

    def values(self, lock_seconds: float, due: Due | None = None) -> list[Any]:
        """What `call_append` takes. Conversations are in the order of their ids, in which everybody locks them."""
        rows = Rows()
        places = {name: place for place, name in enumerate(sorted(self._after), 1)}
        for name, place in places.items():
            for part in self._parts[name]:
                rows.add(place, *part)
        jobs = [] if due is None else [name for name in places if due(self._after[name])]
        changes = {
            "conversations": [self._conversation(name) for name in places],
            "answers": [self._answer(places[name], name, key) for name, key in self._new_keys],
            "documents": [_document(places[name], one, *rest) for name, one, *rest in self._new_documents],
            "leases": [self._lease(one) for one in self._shown.values()],
            "releases": [self._lease(one) for one in self._released.values()],
            "jobs": jobs,
        }
        payloads = ((digest, *kept) for digest, kept in rows.payloads.items())
        small = (
            self.tenant,
            str(int(1000 * lock_seconds)),
            json.dumps({key: some for key, some in changes.items() if some}),
        )
        columns = (*rows.columns, *(zip(*payloads, strict=True) if rows.payloads else ([], [], [])))
        return [
            *(one.encode() for one in small),
            *(one.dump(list(column)) for one, column in zip(_DUMPERS, columns, strict=True)),
        ]

    def remember(self, known: KnownHeaders, numbers: Iterable[int]) -> None:
        """Note how the conversations are, now that it is written."""
        if len(known) > MOST_KNOWN:
            known.clear()
        for name, number in zip(sorted(self._after), numbers, strict=True):
            known[self.tenant, name] = (number, self._after[name])

    def forget(self, known: KnownHeaders) -> None:
        """Note that the conversations may have been changed."""
        for name in self._after:
            known.pop((self.tenant, name), None)

    def _conversation(self, name: str) -> dict[str, Any]:
        one = self._after[name]
        row = {
            "version": one.version,
            "length": one.length,
            "turns": one.turns,
            "lead": one.lead,
            "open_at": one.open_at,
            "open_calls": json_of(one.open_calls),
            "updated_at": microseconds(one.updated_at),
        }
        if name in self.headers:
            number, before = self.headers[name]
            return {**row, "number": number, "seen": before.version}
        return {
            **row,
            "id": name,
            "mark": _hex(tombstone(self.tenant, name)),
            "recipient": one.recipient,
            "status": one.status.value,
            "labels": json_of(dict(one.labels)),
            "created_at": microseconds(one.created_at),
        }

    def _answer(self, place: int, name: str, key: bytes) -> dict[str, Any]:
        digest, version = self.answers[name, key]
        return {"place": place, "key": _hex(key), "digest": _hex(digest), "version": version}

    def _lease(self, lease: Lease) -> dict[str, Any]:
        return {"id": _hex(tombstone(self.tenant, lease.conversation)), "holder": lease.holder, "fence": lease.fence}


async def append_all(
    work: Work, pending: Sequence[PendingAppend], due: Due | None, known: KnownHeaders, lock_seconds: float
) -> list[int | Exception]:
    """Carry out a group of appends by what is there; the version of each, or what was wrong with it."""
    plan = await AppendPlan.load(work, pending)
    outcomes: list[int | Exception] = []
    for one in pending:
        try:
            outcomes.append(plan.add(one))
        except MinutebookError as refusal:
            outcomes.append(refusal)
    if not plan.is_empty:
        numbers = await work.use(lambda db: call_append(db, plan.values(lock_seconds, due)))
        await work.commit()
        plan.remember(known, numbers)
    return outcomes


def _document(place: int, one: PackedDocument, verdict: Verdict, at: datetime) -> dict[str, Any]:
    return {
        "place": place,
        "verdict": verdict.value,
        "kind": one.kind,
        "id": one.id,
        "kind_hash": _hex(kind_key(one.kind)),
        "hash": _hex(document_key(one.kind, one.id)),
        "at": microseconds(at),
        "expires_at": one.expires_at,
        "body": _hex(squeezed(one.body)),
    }


def _hex(data: bytes) -> str:
    return f"\\x{data.hex()}"
