"""What makes and removes conversations: forking, erasing, and forgetting what has expired."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import ConversationErased, VersionConflict
from minutebook.store.codec import microseconds, moment
from minutebook.store.redis import documents as redis_documents
from minutebook.store.redis.connection import Value
from minutebook.store.redis.folds import numbered, standing_args, standing_numbers, written
from minutebook.store.redis.keys import Claim, created_at_of, member_of
from minutebook.store.redis.rows import Filed, first_fields
from minutebook.store.redis.tenant import VOID_MILLISECONDS, Shelf
from minutebook.store.rules import require_fork_position
from minutebook.store.types import ConversationHeader, ErasureReceipt, ForkOrigin

STEP: Final = 500
"""How many conversations are looked at in one go."""


async def fork(shelf: Shelf, conversation: str, new_id: str, at: int | None, when: datetime) -> ConversationHeader:
    """Copy a conversation up to a place. It takes as long as there is to copy, and others wait for it."""
    async with shelf.engine.lock(shelf.tenant, conversation):
        while True:
            reply = await shelf.ask("purge", conversation, -1 if at is None else at)
            filed = shelf.filed(conversation, reply[1])
            taken, _ = await shelf.find(new_id)
            if taken is not None:
                raise VersionConflict(new_id, taken.conversation.version, 0)
            cut = require_fork_position(filed.conversation, at, splits=bool(reply[2]))
            claim = await shelf.claim(new_id, filed.conversation.recipient, microseconds(when))
            if claim is None:
                continue
            turns = filed.conversation.turns if at is None else int(reply[3])
            made = _forked(filed, new_id, cut, turns, when, claim)
            keys, args = _fork_args(shelf, filed, made, claim, reply[4])
            done = await shelf.engine.script("fork", keys, args)
            if done[0] == b"done":
                shelf.engine.remember(shelf.tenant, new_id, made.conversation.recipient, made)
                return made.conversation
            _require_fork(done, conversation, new_id)
            shelf.engine.forget(shelf.tenant, conversation)


def _forked(filed: Filed, new_id: str, cut: int, turns: int, when: datetime, claim: Claim) -> Filed:
    header = filed.conversation
    ends = cut == header.length
    made = ConversationHeader(
        *(header.tenant, new_id, header.recipient, moment(created_at_of(claim.rank)), when, when),
        version=1,
        length=cut,
        turns=turns,
        lead=min(header.lead, cut),
        first=header.first,
        open_calls=header.open_calls if ends else (),
        open_at=header.open_at if ends else None,
        labels=header.labels,
        origin=ForkOrigin(header.id, cut),
    )
    return Filed(made, claim.nonce, (*filed.line, header.id))


def _fork_args(
    shelf: Shelf, filed: Filed, made: Filed, claim: Claim, flat: Sequence[bytes]
) -> tuple[list[str], list[Value]]:
    header, recipient = made.conversation, made.conversation.recipient
    kept = {
        number: one
        for number, one in numbered(flat).items()
        if one.undone_at is None and one.fold.stop <= header.length
    }
    folds = {at: one for at, (_, one) in enumerate(kept.items())}
    relatives = [key for name in (header.id, *filed.line) for key in shelf.keys.parts(recipient, name)]
    keys = [
        *shelf.keys.conversation(recipient, filed.conversation.id),
        shelf.keys.void(recipient, claim.nonce),
        *relatives,
    ]
    fields = first_fields(made)
    facts: list[Value] = [
        *(shelf.mark(filed.conversation.id), shelf.mark(header.id), filed.nonce, filed.conversation.version),
        *(filed.marks, claim.rank + header.id, shelf.lifetime, header.length, header.turns),
    ]
    return keys, [*facts, len(fields), *fields, *written(folds), *standing_args(standing_numbers(folds))]


def _require_fork(reply: Sequence[Any], conversation: str, new_id: str) -> None:
    if reply[0] == b"erased":
        raise ConversationErased(conversation)
    if reply[0] == b"fork erased":
        raise ConversationErased(new_id)
    if reply[0] == b"taken":
        raise VersionConflict(new_id, int(reply[1]), 0)


async def erase_conversation(shelf: Shelf, conversation: str, at: datetime) -> ErasureReceipt:
    """Remove a conversation and its forks."""
    try:
        claim = await shelf.locate(conversation)
    except ConversationErased:
        claim = None
    if claim is None:
        return _receipt(at, (0, 0, 0, 0))
    return await _erase(shelf, claim.recipient, conversation, at)


async def erase_recipient(shelf: Shelf, recipient: str, at: datetime) -> ErasureReceipt:
    """Remove all of a recipient's conversations; forks of them are the recipient's, too."""
    return await _erase(shelf, recipient, None, at)


async def _erase(shelf: Shelf, recipient: str, conversation: str | None, at: datetime) -> ErasureReceipt:
    keys = shelf.keys
    while True:
        changes, members = await _members(shelf, recipient)
        reached = {
            name: filed
            for name, filed in members.items()
            if conversation is None or conversation == name or conversation in filed.line
        }
        shared = [keys.order(recipient), keys.erased(recipient), keys.changes(recipient), keys.leaving(recipient)]
        shared.append(keys.leaving_documents(recipient))
        parts = [key for name in reached for key in keys.parts(recipient, name)]
        args: list[Value] = [changes, VOID_MILLISECONDS]
        for name, filed in reached.items():
            args += [name, shelf.mark(name), member_of(microseconds(filed.conversation.created_at), name)]
        reply = await shelf.engine.script("erase", [*shared, *parts], args)
        if reply[0] == b"done":
            await _leave(shelf, recipient, [] if conversation is None else [conversation])
            return _receipt(at, reply[1:])


async def _members(shelf: Shelf, recipient: str) -> tuple[bytes, Mapping[str, Filed]]:
    """A recipient's conversations, and how often some came or went until then."""
    engine, keys = shelf.engine, shelf.keys
    changes = await engine.send(engine.client.get(keys.changes(recipient))) or b"0"
    found: dict[str, Filed] = {}
    for member in await engine.send(engine.client.zrange(keys.order(recipient), 0, -1)):
        name = member.decode()[16:]
        row = await engine.send(engine.client.hgetall(keys.parts(recipient, name)[0]))
        if row:
            found[name] = shelf.filed(name, [part for pair in row.items() for part in pair])
    return changes, found


async def _leave(shelf: Shelf, recipient: str, named: Sequence[str]) -> None:
    """Take what was erased out of the list of all; also what an erasure that was cut short left in it."""
    engine, leaving = shelf.engine, shelf.keys.leaving(recipient)
    names = [name.decode() for name in await engine.send(engine.client.smembers(leaving))]
    if not names:
        return
    args = [part for name in names for part in (name, "", shelf.mark(name))]
    await engine.script("remove_expired", shelf.keys.catalogue(), args)
    await redis_documents.leave(shelf, recipient)
    await engine.send(engine.client.delete(*(shelf.keys.lease(shelf.mark(name)) for name in names)))
    await engine.send(engine.client.srem(leaving, *names))
    for name in (*names, *named):
        engine.forget(shelf.tenant, name)


def _receipt(at: datetime, counts: Sequence[int]) -> ErasureReceipt:
    conversations, entries, folds, pins = counts
    return ErasureReceipt(str(uuid4()), at, conversations=conversations, entries=entries, folds=folds, pins=pins)


async def forget_expired(shelf: Shelf) -> None:
    """Take ids out of the list of all whose conversations are gone with their time."""
    engine, (place, _, _) = shelf.engine, shelf.keys.catalogue()
    cursor = 0
    while True:
        cursor, found = await engine.send(engine.client.hscan(place, cursor, count=STEP))
        claims = {name.decode(): Claim.read(kept) for name, kept in found.items()}
        gone = await asyncio.gather(*(_is_gone(shelf, name, claim) for name, claim in claims.items()))
        expired = [name for name, is_gone in zip(claims, gone, strict=True) if is_gone]
        if expired:
            args = [part for name in expired for part in (name, claims[name].nonce, "")]
            await engine.script("remove_expired", shelf.keys.catalogue(), args)
        if cursor == 0:
            return


async def _is_gone(shelf: Shelf, name: str, claim: Claim) -> bool:
    header = shelf.keys.parts(claim.recipient, name)[0]
    if await shelf.engine.send(shelf.engine.client.exists(header)):
        return False
    return await shelf.void(name, claim)
