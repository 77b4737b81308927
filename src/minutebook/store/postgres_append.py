"""Appends, many at a time: one transaction for all that wait, whatever conversations they are for.

A commit waits for the disk and every statement for the network, as long for one append as for a hundred. So whoever
wants to append while others are at it queues up, and all of them share the next transaction. Each is checked against
what the ones before it left, and what is wrong with one is its own answer.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from minutebook.errors import ConversationErased, IdempotencyConflict, MinutebookError
from minutebook.record.transcript import Broken
from minutebook.store import postgres_leases, postgres_rows
from minutebook.store.codec import Packed
from minutebook.store.postgres_beside import Beside
from minutebook.store.postgres_entries import Kept, Rows
from minutebook.store.postgres_rows import Filed
from minutebook.store.postgres_work import Query, Work
from minutebook.store.request import AppendRequest
from minutebook.store.rules import created, grown, require_recipient, require_version
from minutebook.store.types import Conversation

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
class Ask:
    """An append that somebody waits for."""

    conversation: str
    request: AppendRequest
    kept: Sequence[Kept]
    """Its entries as their rows hold them."""
    recipient: str | None
    labels: Mapping[str, str]
    expected_version: int | None
    idempotency_key: str | None
    broken: Broken
    at: datetime
    answer: "asyncio.Future[int]" = field(init=False)

    @property
    def key(self) -> bytes:
        return sha256((self.idempotency_key or "").encode()).digest()[:16]


@dataclass(slots=True)
class _Talk:
    """A conversation in the course of a group: what is stored of it, and what is to be added."""

    filed: Filed | None
    header: Conversation | None
    parts: list[tuple[int, int, Sequence[Packed], Sequence[Kept]]] = field(default_factory=list)
    """Position, user messages before it, and the entries that are written from there."""
    answers: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    new_keys: list[bytes] = field(default_factory=list)


async def append_all(
    work: Work, asks: Sequence[Ask], due: Due | None, known: MutableMapping[tuple[str, str], tuple[int, Conversation]]
) -> list[int | Exception]:
    """Carry out a group of appends and commit it; the answer to each, or what was wrong with it.

    How the conversations are then is noted in `known`, by tenant and id.
    """
    talks = await _talks(work, asks)
    erased = await postgres_rows.buried(work, [name for name, talk in talks.items() if talk.filed is None])
    beside = await Beside.of(work, [ask.request for ask in asks])
    outcomes: list[int | Exception] = []
    for ask in asks:
        try:
            outcomes.append(_decide(work.tenant, talks[ask.conversation], ask, erased, beside))
        except MinutebookError as refusal:
            outcomes.append(refusal)
    numbers = await _write(work, [talk for talk in talks.values() if talk.parts], due, beside)
    known.update(
        ((work.tenant, name), (numbers[name], talk.header))
        for name, talk in talks.items()
        if name in numbers and talk.header is not None
    )
    return outcomes


async def _talks(work: Work, asks: Sequence[Ask]) -> dict[str, _Talk]:
    names = sorted({ask.conversation for ask in asks})
    keys = [ask.key for ask in asks if ask.idempotency_key is not None]
    queries = [postgres_rows.lock(work.tenant, names)]
    if keys:
        queries.append((_ANSWERED, (keys, work.tenant, names)))
    rows, *answered = await work.ask(*queries)
    known = {one.conversation.id: one for one in map(postgres_rows.filed, rows)}
    talks = {name: _Talk(known.get(name), known[name].conversation if name in known else None) for name in names}
    for name, key, digest, version in chain(*answered):
        talks[name].answers[key] = (digest, version)
    return talks


def _decide(tenant: str, talk: _Talk, ask: Ask, erased: set[str], beside: Beside) -> int:
    """The answer to one append; what it adds is noted with its conversation.

    Raises:
        MinutebookError: it cannot be done, and adds nothing.
    """
    if ask.conversation in erased:
        raise ConversationErased(ask.conversation)
    answered = talk.answers.get(ask.key) if ask.idempotency_key is not None else None
    if answered is not None and answered[0] != ask.request.digest:
        raise IdempotencyConflict(ask.conversation, ask.idempotency_key or "")
    if answered is not None:
        beside.release(ask.request)
        return answered[1]
    beside.require_lease(ask.request.lease)
    require_version(talk.header, ask.conversation, ask.expected_version)
    before = talk.header or created(tenant, ask.conversation, ask.recipient, ask.labels, ask.at)
    require_recipient(before, ask.recipient)
    documents = beside.decide(ask.conversation, ask.request.documents, ask.at)
    after = grown(before, ask.request.messages, broken=ask.broken, at=ask.at)
    beside.take(documents)
    beside.release(ask.request)
    talk.parts.append((before.length, before.turns, ask.request.packed, ask.kept))
    talk.header = after
    if ask.idempotency_key is not None:
        talk.answers[ask.key] = (ask.request.digest, after.version)
        talk.new_keys.append(ask.key)
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
            number = (await postgres_rows.insert(work, header)).number
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
