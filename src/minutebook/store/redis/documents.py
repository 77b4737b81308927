"""Documents in Redis: checked here, written by a script if what they were checked against is still there.

A document is found by its name in a list of the tenant's, which says whose it is, under a nonce. That list and the document
may be on two servers, so a process may die in between, and others may be at the same name: whoever takes a name from a
conversation that has no such document makes the nonce void there, and nothing is written under what is void.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from typing import Final
from uuid import uuid4

from redis.exceptions import RedisError

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import compress, cursor_of, cursor_values, decompress, microseconds
from minutebook.store.redis.connection import Value
from minutebook.store.redis.tenant import VOID_MILLISECONDS, Shelf
from minutebook.store.types import (
    Document,
    PackedDocument,
    Page,
    Verdict,
    document_key,
    document_of,
    has_expired,
    kind_key,
)

STEP: Final = 200
"""How many documents are looked at in one go."""
Place = tuple[str, str]
"""The id of a conversation, and whom it is with."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Documents that may be written, as the scripts take them."""

    args: list[Value]
    voids: list[str]
    """The keys that say whether the claim to one of them is void."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is there under a name."""

    owner: bytes
    """Whose it is: a nonce, and then the place; empty if nobody's."""
    record: bytes = b""
    void: bool = False

    @property
    def place(self) -> Place:
        recipient, conversation = json.loads(self.owner[32:])
        return conversation, recipient

    @property
    def nonce(self) -> str:
        return self.owner[:32].decode()

    @property
    def document(self) -> Document | None:
        return _document(self.place[0], self.record) if self.record else None


async def put(shelf: Shelf, conversation: str, wanted: PackedDocument, at: datetime) -> Document:
    """Put a document into a conversation that is there."""
    while True:
        place = (conversation, (await shelf.found(conversation)).conversation.recipient)
        plan = await planned(shelf, place, [wanted], at)
        reply = await shelf.ask("put_document", conversation, microseconds(at), *plan.args, more=plan.voids)
        if reply[0] == b"done":
            await drop_expired(shelf, place, reply[2], at)
            return _document(conversation, reply[1][0])


async def planned(shelf: Shelf, place: Place, wanted: Sequence[PackedDocument], at: datetime) -> Planned:
    """What is to be done with some documents in a conversation; the names of new ones are taken.

    Raises:
        DocumentExists: one of them may not stand where it would.
    """
    while True:
        found = [await _find(shelf, _name(one.kind, one.id)) for one in wanted]
        pairs = list(zip(wanted, found, strict=True))
        verdicts = [one.verdict(known.document, place[0], at) for one, known in pairs]
        args: list[Value] = [len(wanted)]
        voids: list[str] = []
        for (one, known), verdict in zip(pairs, verdicts, strict=True):
            mine: _Found | None = known
            if verdict is Verdict.NEW and (known.void or known.owner[32:] != _owner(place)):
                mine = await _taken(shelf, _name(one.kind, one.id), known, place, at)
            if mine is None:
                break
            before = sha1(mine.record, usedforsecurity=False).hexdigest() if mine.record else ""
            head = json.dumps([one.kind, one.id, one.expires_at]).encode()
            ends: Value = "" if one.expires_at is None else one.expires_at
            args += [_name(one.kind, one.id), before, verdict.value, microseconds(at), ends]
            args.append(head + b"\n" + compress(one.body))
            voids.append(shelf.keys.void(place[1], mine.nonce))
        else:
            return Planned(args, voids)


async def _taken(shelf: Shelf, name: bytes, known: _Found, place: Place, at: datetime) -> _Found | None:
    """Take a name for a conversation; None if somebody else was faster."""
    if known.owner and not known.void and (await _drop(shelf, name, known, at))[0] == b"exists":
        return None
    owner = uuid4().hex.encode() + _owner(place)
    reply = await shelf.engine.script("claim_document_id", [shelf.keys.documents()], [name, known.owner, owner])
    return await _look(shelf, name, owner) if reply[0] == b"done" else None


async def found(shelf: Shelf, kind: str, name: str, at: datetime) -> Document:
    """The document of that kind and id.

    Raises:
        DocumentNotFound: there is none.
    """
    known = (await _find(shelf, _name(kind, name))).document
    if known is None or has_expired(known, at):
        raise DocumentNotFound(kind, name)
    return known


async def listed(shelf: Shelf, query: DocumentQuery, at: datetime) -> Page[Document]:
    """The documents of a kind after a cursor, by their number."""
    after = cursor_values(query.cursor, int)
    low, high = b"[" + kind_key(query.kind), b"(" + kind_key(query.kind) + b":"  # which sorts after every digit
    if after is not None and query.newest_first:
        high = b"(" + kind_key(query.kind) + b"%016d" % max(0, after[0])
    elif after is not None:
        low = b"[" + kind_key(query.kind) + b"%016d" % max(0, after[0] + 1)
    args: list[Value] = [low, high, "1" if query.newest_first else "", query.limit + 1, microseconds(at)]
    reply = await shelf.ask("list_documents", query.conversation, *args)
    found = [_document(query.conversation, record) for record in reply[1]]
    return Page(
        tuple(found[: query.limit]), cursor_of(found[query.limit - 1].number) if len(found) > query.limit else None
    )


async def delete(shelf: Shelf, kind: str, name: str, at: datetime) -> bool:
    """Remove a document; return whether there was one that had not expired."""
    key = _name(kind, name)
    known = await _find(shelf, key)
    if not known.record:
        return False
    record = (await _drop(shelf, key, known, None))[1]
    await _disown(shelf, key, known.owner)
    return bool(record) and not has_expired(_document(known.place[0], record), at)


async def drop_expired(shelf: Shelf, place: Place, names: Sequence[bytes], at: datetime) -> None:
    """Remove documents of a conversation that have expired. If that fails, it is for another time."""
    with suppress(RedisError, OSError):
        for name in names:
            known = await _find(shelf, name)
            if known.owner[32:] == _owner(place):
                await _sweep(shelf, name, known.owner, at)


async def leave(shelf: Shelf, recipient: str) -> None:
    """Take the documents of what was erased out of the list of all."""
    engine, leaving = shelf.engine, shelf.keys.leaving_documents(recipient)
    names: list[bytes] = list(await engine.send(engine.client.smembers(leaving)))
    for start in range(0, len(names), STEP):
        some = names[start : start + STEP]
        args = [part for one in some for part in (one[:32], _owner((one[32:].decode(), recipient)))]
        await engine.script("release_document_id", [shelf.keys.documents()], args)
        await engine.send(engine.client.srem(leaving, *some))


async def sweep(shelf: Shelf, at: datetime) -> None:
    """Remove what has expired, and what is listed and gone with its conversation."""
    engine, owners = shelf.engine, shelf.keys.documents()
    cursor = 0
    while True:
        cursor, some = await engine.send(engine.client.hscan(owners, cursor, count=STEP))
        await asyncio.gather(*(_sweep(shelf, name, owner, at) for name, owner in some.items()))
        if cursor == 0:
            return


async def _sweep(shelf: Shelf, name: bytes, owner: bytes, at: datetime) -> None:
    if (await _drop(shelf, name, _Found(owner), at))[0] == b"done":
        await _disown(shelf, name, owner)


async def _drop(shelf: Shelf, name: bytes, known: _Found, at: datetime | None) -> list[bytes]:
    """Remove what a claim stands for, and make it void; with a time, only if that has expired or is not there."""
    args: list[Value] = [name, "" if at is None else microseconds(at), VOID_MILLISECONDS]
    return await _ask(shelf, "delete_documents", known, args)


async def _disown(shelf: Shelf, name: bytes, owner: bytes) -> None:
    await shelf.engine.script("release_document_id", [shelf.keys.documents()], [name, owner])


async def _find(shelf: Shelf, name: bytes) -> _Found:
    """What is there under a name."""
    client, owners = shelf.engine.client, shelf.keys.documents()
    owner: bytes = await shelf.engine.send(client.hget(owners, name)) or b""
    while owner:
        known = await _look(shelf, name, owner)
        now: bytes = owner if known.record else await shelf.engine.send(client.hget(owners, name)) or b""
        if now == owner:
            return known
        owner = now
    return _Found(b"")


async def _look(shelf: Shelf, name: bytes, owner: bytes) -> _Found:
    reply = await _ask(shelf, "get_document", _Found(owner), [name])
    return _Found(owner, reply[1], bool(reply[2]))


async def _ask(shelf: Shelf, script: str, known: _Found, args: Sequence[Value]) -> list[bytes]:
    """Carry out a script where a claim says that the document is; whether its conversation is there or not."""
    conversation, recipient = known.place
    keys = [*shelf.keys.conversation(recipient, conversation), shelf.keys.void(recipient, known.nonce)]
    reply: list[bytes] = await shelf.engine.script(script, keys, [shelf.mark(conversation), *args])
    return reply


def _name(kind: str, name: str) -> bytes:
    return kind_key(kind) + document_key(kind, name)


def _owner(place: Place) -> bytes:
    conversation, recipient = place
    return json.dumps([recipient, conversation]).encode()


def _document(conversation: str, record: bytes) -> Document:
    number, made, rest = record.split(b":", 2)
    head, _, body = rest.partition(b"\n")
    kind, name, expires_at = json.loads(head)
    return document_of(conversation, kind, name, decompress(body), int(number), int(made), expires_at)
