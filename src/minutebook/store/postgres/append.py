"""Appends, many at a time: one transaction for all that wait, whatever conversations they are for.

A commit waits for the disk and every statement for the network, as long for one append as for a hundred. So whoever
wants to append while others are at it queues up, and all of them share the next transaction. Each is checked against
what the ones before it left, and what is wrong with one is its own answer.

What a group of appends needs besides the record: the leases that they show, and the documents that come along.

Groups of appends, one after the other for each tenant; none waits long for a conversation that somebody else holds.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Final, Self

import psycopg

from minutebook.errors import ConversationErased, IdempotencyConflict, MinutebookError
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import Packed
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres import leases as postgres_leases
from minutebook.store.postgres.connection import WRITING, Connections, Work
from minutebook.store.postgres.entries import Kept, Rows
from minutebook.store.postgres.transaction import PostgresTransaction
from minutebook.store.rules import created, grown, require_recipient, require_version
from minutebook.store.sql import documents as sql_documents
from minutebook.store.sql import headers as sql_headers
from minutebook.store.sql.documents import Name
from minutebook.store.sql.transaction import ConversationRow, Query
from minutebook.store.types import Conversation, Document, Lease, PackedDocument, Verdict, require_standing

Plan = list[tuple[str, PackedDocument, Verdict, datetime]]
"""For each document: its conversation, what is to be done with it, and when that was asked for."""


@dataclass(slots=True)
class Beside:
    """Looked up once for a group, if any of it needs anything."""

    leases: Mapping[str, Lease] = field(default_factory=dict)
    now: datetime | None = None
    """The time of the database, where somebody shows a lease."""
    stored: dict[Name, Document] = field(default_factory=dict)
    planned: dict[Name, Document] = field(default_factory=dict)
    """The documents as they will be, after those that were decided on."""
    plan: Plan = field(default_factory=list)
    released: list[Lease] = field(default_factory=list)
    """Those that are given back with the commit."""

    @classmethod
    async def of(cls, work: Work, commands: Sequence[AppendCommand]) -> Self:
        """What is there for some appends, under the locks of their conversations."""
        made = cls()
        leased = {command.lease.conversation for command in commands if command.lease is not None}
        if leased:
            made.leases, made.now = await postgres_leases.held(work, leased)
        names = [(one.kind, one.id) for command in commands for one in command.documents]
        made.stored = await sql_documents.find(PostgresTransaction(work), sorted(set(names)))
        made.planned = dict(made.stored)
        return made

    def require_lease(self, lease: Lease | None) -> None:
        """Raises `LeaseLost` unless the lease stands; none need not."""
        if lease is not None and self.now is not None:
            is_released = any(lease.fence == one.fence for one in self.released)  # renewed or not, it is the same
            require_standing(None if is_released else self.leases.get(lease.conversation), lease, self.now)

    def release(self, command: AppendCommand) -> None:
        """Note that a lease is given back, if it is."""
        if command.release and command.lease is not None:
            self.released.append(command.lease)

    def decide(self, conversation: str, documents: Sequence[PackedDocument], at: datetime) -> Plan:
        """What is to be done with the documents of one append.

        Raises:
            DocumentExists: one of them may not stand where it would.
        """
        verdicts = sql_documents.verdicts(conversation, documents, self.planned, at)
        return [(conversation, one, verdict, at) for one, verdict in zip(documents, verdicts, strict=True)]

    def take(self, plan: Plan) -> None:
        """Note what will be done."""
        for conversation, one, _, at in plan:
            self.planned[one.kind, one.id] = one.stored(conversation, 0, at)
        self.plan += plan

    async def write(self, work: Work, numbers: Mapping[str, int]) -> None:
        """Do it, in the order in which it was asked for."""
        tx = PostgresTransaction(work)
        for conversation, one, verdict, at in self.plan:
            name, known = (one.kind, one.id), self.stored.get((one.kind, one.id))
            place = await sql_documents.write(tx, numbers[conversation], one, verdict, known, at)
            self.stored[name] = one.stored(conversation, *place)
        for kind, at in {one.kind: at for _, one, _, at in self.plan}.items():
            await sql_documents.sweep_kinds(tx, [kind], at)


_ANSWERED: Final = (
    "SELECT header.id, known.key, known.digest, known.version FROM minutebook.conversation AS header CROSS JOIN LATERAL ("
    "  SELECT key, digest, version FROM minutebook.answer WHERE answer.tenant = header.tenant"
    "  AND answer.conversation = header.number AND key = ANY(%s::bytea[]) OFFSET 0"  # no other order: few, by their index
    ") AS known WHERE header.tenant = %s AND header.id = ANY(%s::text[])"
)
_ANSWER: Final = (
    "INSERT INTO minutebook.answer (tenant, conversation, key, digest, version)"
    " SELECT %s, * FROM unnest(%s::bigint[], %s::bytea[], %s::bytea[], %s::bigint[])"
)
_ASK: Final = "SELECT minutebook_jobs.ask(%s)"
Due = Callable[[Conversation], bool]
"""Whether a conversation that has just grown is due for a background job."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append that somebody waits for."""

    tenant: str
    command: AppendCommand
    kept: Sequence[Kept]
    """Its entries as their rows hold them."""
    at: datetime
    answer: "asyncio.Future[Any]" = field(init=False)
    """Its version; in a `Lane` also None, if it is to be done the long way."""

    @property
    def conversation(self) -> str:
        return self.command.conversation


@dataclass(slots=True)
class _Talk:
    """A conversation in the course of a group: what is stored of it, and what is to be added."""

    filed: ConversationRow | None
    header: Conversation | None
    parts: list[tuple[int, int, Sequence[Packed], Sequence[Kept]]] = field(default_factory=list)
    """Position, user messages before it, and the entries that are written from there."""
    answers: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    new_keys: list[bytes] = field(default_factory=list)


async def append_all(
    work: Work,
    pending: Sequence[PendingAppend],
    due: Due | None,
    known: MutableMapping[tuple[str, str], tuple[int, Conversation]],
) -> list[int | Exception]:
    """Carry out a group of appends and commit it; the answer to each, or what was wrong with it.

    How the conversations are then is noted in `known`, by tenant and id.
    """
    talks = await _talks(work, pending)
    erased = await postgres_rows.buried(work, [name for name, talk in talks.items() if talk.filed is None])
    beside = await Beside.of(work, [one.command for one in pending])
    outcomes: list[int | Exception] = []
    for one in pending:
        try:
            outcomes.append(_decide(work.tenant, talks[one.conversation], one, erased, beside))
        except MinutebookError as refusal:
            outcomes.append(refusal)
    numbers = await _write(work, [talk for talk in talks.values() if talk.parts], due, beside)
    known.update(
        ((work.tenant, name), (numbers[name], talk.header))
        for name, talk in talks.items()
        if name in numbers and talk.header is not None
    )
    return outcomes


async def _talks(work: Work, pending: Sequence[PendingAppend]) -> dict[str, _Talk]:
    names = sorted({one.conversation for one in pending})
    keys = [one.command.key for one in pending if one.command.key]
    queries = [postgres_rows.lock(work.tenant, names)]
    if keys:
        queries.append((_ANSWERED, (keys, work.tenant, names)))
    rows, *answered = await work.ask(*queries)
    known = {one.conversation.id: one for one in map(sql_headers.row_of, rows)}
    talks = {name: _Talk(known.get(name), known[name].conversation if name in known else None) for name in names}
    for name, key, digest, version in chain(*answered):
        talks[name].answers[key] = (digest, version)
    return talks


def _decide(tenant: str, talk: _Talk, pending: PendingAppend, erased: set[str], beside: Beside) -> int:
    """The answer to one append; what it adds is noted with its conversation.

    Raises:
        MinutebookError: it cannot be done, and adds nothing.
    """
    command, conversation = pending.command, pending.conversation
    if conversation in erased:
        raise ConversationErased(conversation)
    answered = talk.answers.get(command.key) if command.key else None
    if answered is not None and answered[0] != command.digest:
        raise IdempotencyConflict(conversation, command.idempotency_key or "")
    if answered is not None:
        beside.release(command)
        return answered[1]
    beside.require_lease(command.lease)
    require_version(talk.header, conversation, command.expected_version)
    before = talk.header or created(tenant, conversation, command.recipient, command.labels or {}, pending.at)
    require_recipient(before, command.recipient)
    documents = beside.decide(conversation, command.documents, pending.at)
    after = grown(before, command.messages, broken=command.broken, at=pending.at)
    beside.take(documents)
    beside.release(command)
    talk.parts.append((before.length, before.turns, command.packed, pending.kept))
    talk.header = after
    if command.key:
        talk.answers[command.key] = (command.digest, after.version)
        talk.new_keys.append(command.key)
    return after.version


async def _write(work: Work, talks: Sequence[_Talk], due: Due | None, beside: Beside) -> dict[str, int]:
    """Write and commit; return the numbers of the conversations."""
    entries = Rows()
    numbers: dict[str, int] = {}
    grew: dict[int, Conversation] = {}
    answers: list[tuple[Any, ...]] = []
    for talk in talks:
        header = talk.header
        assert header is not None, "a talk that has parts has a header"
        if talk.filed is None:
            number = (await sql_headers.insert(PostgresTransaction(work), header, behind=header.length > 0)).number
        else:
            number = talk.filed.number
            grew[number] = header
        numbers[header.id] = number
        for part in talk.parts:
            entries.add(number, *part)
        answers += [(number, key, *talk.answers[key]) for key in talk.new_keys]
    await entries.write(work)
    await beside.write(work, numbers)
    last = _last(work.tenant, grew, answers, [one for talk in talks if (one := talk.header)], due)
    await work.commit(*last, *(postgres_leases.given_back(work.tenant, lease) for lease in beside.released))
    return numbers


def _last(
    tenant: str,
    grew: Mapping[int, Conversation],
    answers: Sequence[tuple[Any, ...]],
    headers: Sequence[Conversation],
    due: Due | None,
) -> list[Query]:
    """What is small enough to travel with the commit."""
    changes: list[Query] = []
    if grew:
        changes.append(postgres_rows.grow(tenant, grew))
    if answers:
        changes.append((_ANSWER, (tenant, *map(list, zip(*answers, strict=True)))))
    if due is not None:
        changes += [(_ASK, (header.id,)) for header in headers if due(header)]
    return changes


LARGEST_GROUP: Final = 500
MOST_KNOWN: Final = 4096
IMPATIENT_SECONDS: Final = 1.0
"""How long others wait for a group that waits for a conversation, before they go on without it."""


class Groups:
    """Appends that wait for their turn, and those that are on their way. All of it belongs to one event loop."""

    def __init__(self, connections: Connections, due: Due | None) -> None:
        self._connections = connections
        self._due = due
        self.known: dict[tuple[str, str], tuple[int, Conversation]] = {}
        """Tenant and id → the number and the header of conversations, as we left them; others may have gone on."""
        self._waiting: dict[str, list[PendingAppend]] = {}
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tenant and conversation → the group that is writing it; what is for it waits until that is done."""
        self._runners: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def append(self, pending: PendingAppend) -> int:
        """Append with the next group of this tenant's appends."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        pending.answer = answer
        self._waiting.setdefault(pending.tenant, []).append(pending)
        self._wake(pending.tenant)
        return await answer

    async def finish(self) -> None:
        """Wait until everything that was asked for is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _wake(self, tenant: str) -> None:
        if self._waiting.get(tenant) and tenant not in self._runners:
            self._runners[tenant] = task = asyncio.get_running_loop().create_task(self._run(tenant))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, tenant: str) -> None:
        """Write group after group, until there is nothing left that can be written now."""
        await asyncio.sleep(0)  # others that were ready in the same moment come along
        while group := self._next(tenant):
            await asyncio.wait({self._launch(tenant, group)}, timeout=IMPATIENT_SECONDS)
        del self._runners[tenant]

    def _next(self, tenant: str) -> list[PendingAppend]:
        """What waits and is not for a conversation that is being written."""
        waiting = [one for one in self._waiting.pop(tenant, []) if not one.answer.done()]
        ready = [one for one in waiting if (tenant, one.conversation) not in self._busy][:LARGEST_GROUP]
        if len(ready) < len(waiting):
            chosen = set(map(id, ready))
            self._waiting[tenant] = [one for one in waiting if id(one) not in chosen]
        return ready

    def _launch(self, tenant: str, group: Sequence[PendingAppend]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._write(tenant, group))
        self._tasks.add(task)
        places = [(tenant, one.conversation) for one in group]
        self._busy.update(dict.fromkeys(places, task))

        def done(_: object) -> None:
            self._tasks.discard(task)
            for place in places:
                if self._busy.get(place) is task:
                    del self._busy[place]
            self._wake(tenant)

        task.add_done_callback(done)
        return task

    async def _write(self, tenant: str, group: Sequence[PendingAppend]) -> None:
        """One transaction for the group; one for each conversation, if one of them cannot be had soon."""
        parts: dict[str, list[PendingAppend]] = {}
        for one in group:
            parts.setdefault(one.conversation, []).append(one)
        outcomes: Sequence[int | Exception]
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        try:
            outcomes = await self._connections.carry_out(
                tenant,
                WRITING,
                lambda work: append_all(work, group, self._due, self.known),
                IMPATIENT_SECONDS if len(parts) > 1 else None,
            )
        except Exception as error:  # noqa: BLE001 - the edge of the task: every error belongs to whoever asked
            if len(parts) > 1 and isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                for part in parts.values():
                    self._launch(tenant, part)
                return
            outcomes = [error] * len(group)
        _answer(group, outcomes)


def _answer(group: Sequence[PendingAppend], outcomes: Sequence[int | Exception]) -> None:
    for one, outcome in zip(group, outcomes, strict=True):
        if one.answer.done():
            continue
        if isinstance(outcome, Exception):
            one.answer.set_exception(outcome)
        else:
            one.answer.set_result(outcome)
