"""Appending: checked here, written by a script if nothing changed in between.

The rules are Python's, the same for every store; the script only compares the version that they were asked about. Who
loses that race is told the new header and tries again, unless the caller named a version.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from minutebook.errors import ConversationErased, IdempotencyConflict, LeaseLost, MinutebookError, StoreUnavailable
from minutebook.record.message import MessageRole
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import Packed, microseconds, moment
from minutebook.store.redis import documents as redis_documents
from minutebook.store.redis import leases as redis_leases
from minutebook.store.redis.connection import Value, errors_of
from minutebook.store.redis.keys import Claim, created_at_of
from minutebook.store.redis.rows import LETTERS, Filed, digests_of, entry_to_bytes, first_fields, grown_fields
from minutebook.store.redis.tenant import Shelf
from minutebook.store.rules import header_after_append, new_header, require_recipient, require_version
from minutebook.store.types import ConversationHeader


def answered(command: AppendCommand, answer: bytes) -> int:
    """The version that the first append under this key gave."""
    if answer[:16] != command.digest:
        raise IdempotencyConflict(command.conversation, command.idempotency_key or "")
    return int(answer[16:])


def header_after(command: AppendCommand, found: Filed | None, at: datetime) -> ConversationHeader:
    """The header as it will be."""
    require_version(found.conversation if found else None, command.conversation, command.expected_version)
    if found is None:
        before = new_header("-", command.conversation, command.recipient, command.labels or {}, at)
    else:
        before = found.conversation
        require_recipient(before, command.recipient)
    return header_after_append(before, command.messages, broken=command.broken, at=at)


def new_conversation(command: AppendCommand, tenant: str, claim: Claim, at: datetime) -> Filed:
    """The conversation that a claim makes."""
    begun = moment(created_at_of(claim.rank))
    empty = new_header(tenant, command.conversation, command.recipient, command.labels or {}, begun)
    return Filed(header_after_append(empty, command.messages, broken=command.broken, at=at), claim.nonce)


def entry_args(packed: Sequence[Packed], position: int) -> list[Value]:
    """Roles, turns, payloads and entries, as the script takes them."""
    turns = [at for at, one in enumerate(packed, position) if one.role is MessageRole.USER]
    entries: list[bytes] = []
    blobs: list[bytes] = []
    for one in packed:
        entry, large = entry_to_bytes(one)
        entries.append(entry)
        blobs += [part for digest in digests_of(entry) for part in (digest, large[digest])]
    roles = "".join(LETTERS[one.role] for one in packed)
    return [roles, len(turns), *turns, len(blobs) // 2, *blobs, position, len(entries), *entries]


async def append(shelf: Shelf, command: AppendCommand, at: datetime) -> int:
    """Add entries at the end; return the new version. A lease is given back after that, and else runs out by itself."""
    version = await _appended(shelf, command, at)
    if command.release and command.lease is not None:
        with suppress(ConversationErased, StoreUnavailable), errors_of(shelf.engine.address.name):
            await redis_leases.release(shelf, command.lease)  # what is written is written, whatever becomes of this
    return version


async def _appended(shelf: Shelf, command: AppendCommand, at: datetime) -> int:
    engine, name = shelf.engine, command.conversation
    async with engine.lock(shelf.tenant, name):
        found: Filed | None = engine.known.get((shelf.tenant, name))
        if command.lease is not None and command.key:
            found = None  # what was answered before is answered again, also to who has lost the lease since
        sure = False
        while True:
            if found is None:
                found, answer = await shelf.find(name, command.key)
                sure = True
                if answer:
                    return answered(command, answer)
                if command.lease is not None:
                    await redis_leases.require(shelf, command.lease)
            try:
                after = header_after(command, found, at)
                place = (name, after.recipient)
                documents = await redis_documents.planned(shelf, place, command.documents, at)
            except MinutebookError:
                if sure:
                    raise
                found = None  # what we thought we knew may be out of date
                continue
            found, sure, version = await _written(shelf, command, found, after, documents, at)
            if version is not None:
                return version


async def _written(
    shelf: Shelf,
    command: AppendCommand,
    before: Filed | None,
    after: ConversationHeader,
    documents: redis_documents.Planned,
    at: datetime,
) -> tuple[Filed | None, bool, int | None]:
    """Try to write: what is known now, whether that is certain, and the version if it is done."""
    name = command.conversation
    if before is None:
        claim = await shelf.claim(name, after.recipient, microseconds(at))
        if claim is None:
            return None, False, None
        made = new_conversation(command, shelf.tenant, claim, at)
        keys, version, position = [*shelf.keys_to_make(name, claim), *documents.voids], "", 0
        member, fields = claim.rank + name, first_fields(made)
    else:
        made, claim = before.header_after_append(after), Claim(before.nonce, "", after.recipient)
        keys, position = [*shelf.keys_to_make(name, claim), *documents.voids], before.conversation.length
        version, member, fields = str(before.conversation.version), "", grown_fields(after)
        if shelf.lifetime != "":
            keys += [key for origin in before.line for key in shelf.keys.parts(after.recipient, origin)]
    answer = command.digest + str(made.conversation.version).encode() if command.key else b""
    facts: list[Value] = [shelf.mark(name), made.nonce, version, command.key, answer, shelf.lifetime, member]
    lease = command.lease
    facts += ["" if lease is None else lease.fence, microseconds(at)]
    args = [*facts, *documents.args, len(fields), *fields, *entry_args(command.packed, position)]
    try:
        if lease is not None:  # once the id is taken: who takes the lease after this knows where to show its fence
            await redis_leases.require(shelf, lease)
        reply = await shelf.engine.script("append", keys, args)
    except BaseException:
        shelf.engine.forget(shelf.tenant, name)
        raise
    match reply[0]:
        case b"done":
            shelf.engine.remember(shelf.tenant, name, made.conversation.recipient, made)
            await redis_documents.drop_expired(shelf, (name, made.conversation.recipient), reply[1], at)
            return made, True, made.conversation.version
        case b"answered":
            return None, True, answered(command, reply[1])
        case b"moved":
            return shelf.filed(name, reply[1]), True, None
        case b"lost" if lease is not None:
            shelf.engine.forget(shelf.tenant, name)
            raise LeaseLost(name, lease.holder, lease.fence)
        case b"erased":
            shelf.engine.forget(shelf.tenant, name)
            raise ConversationErased(name)
    shelf.engine.forget(shelf.tenant, name)
    return None, False, None
