"""Appends: checked in Python, written by a script if the conversation has not changed in between.

The checks are the same for every store. The script only compares the current version with the one that was checked. If they
differ, it returns the current header, and the append is checked and tried again, unless the caller expects a version.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from minutebook.errors import (
    ConversationErased,
    IdempotencyConflict,
    LeaseLost,
    MinutebookError,
    RecipientBlocked,
    StoreUnavailable,
)
from minutebook.record.message import MessageRole
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import Packed, microseconds, moment
from minutebook.store.redis import documents as redis_documents
from minutebook.store.redis import leases as redis_leases
from minutebook.store.redis.connection import Value, map_errors
from minutebook.store.redis.keys import IdClaim, created_at_of
from minutebook.store.redis.rows import ROLE_LETTERS, HeaderRow, append_fields, encoded_entry, new_header_fields
from minutebook.store.redis.tenant import TenantIndex
from minutebook.store.rules import header_after_append, new_header, require_recipient, require_version
from minutebook.store.types import ConversationHeader


async def append(index: TenantIndex, command: AppendCommand, at: datetime) -> int:
    """Append entries; return the new version. If the lease cannot be released then, it expires later."""
    version = await _append(index, command, at)
    if command.release and command.lease is not None:
        with suppress(ConversationErased, StoreUnavailable), map_errors(index.engine.address.name):
            await redis_leases.release(index, command.lease)  # the append is written, so its success is reported
    return version


async def _append(index: TenantIndex, command: AppendCommand, at: datetime) -> int:
    engine, conversation = index.engine, command.conversation
    async with engine.append_lock(index.tenant, conversation):
        row: HeaderRow | None = engine.rows.get((index.tenant, conversation))
        if command.lease is not None and command.idempotency_hash:
            row = None  # look for an earlier append with this key first: its version is returned even if the lease is lost
        is_current = False
        while True:
            if row is None:
                row, earlier_append = await index.find(conversation, command.idempotency_hash)
                is_current = True
                if earlier_append:
                    return _earlier_version(command, earlier_append)
                if command.lease is not None:
                    await redis_leases.require(index, command.lease)
            try:
                after = _header_after(command, row, at)
                owner = redis_documents.Owner(conversation, after.recipient)
                documents = await redis_documents.prepare_writes(index, owner, command.documents, at)
            except MinutebookError:
                if is_current:
                    raise
                row = None  # the cached row may be stale
                continue
            result = await _write(index, command, row, after, documents, at)
            if result.version is not None:
                return result.version
            row, is_current = result.row, result.is_current


def _earlier_version(command: AppendCommand, earlier_append: bytes) -> int:
    """The version that the first append with this idempotency key returned."""
    if earlier_append[:16] != command.digest:
        raise IdempotencyConflict(command.conversation, command.idempotency_key or "")
    return int(earlier_append[16:])


def _header_after(command: AppendCommand, row: HeaderRow | None, at: datetime) -> ConversationHeader:
    """The header after the append. For a new conversation, tenant and creation time are placeholders: see `new_row`."""
    require_version(row.conversation if row else None, command.conversation, command.expected_version)
    if row is None:
        before = new_header("-", command.conversation, command.recipient, command.labels or {}, at)
    else:
        before = row.conversation
        require_recipient(before, command.recipient)
    return header_after_append(before, command.messages, broken=command.on_broken_exchange, at=at)


class _WriteResult(NamedTuple):
    """The result of an attempt to write."""

    row: HeaderRow | None
    """The conversation's row after the attempt; None if it must be read again."""
    is_current: bool = False
    """Whether the row was just read from the server."""
    version: int | None = None
    """The version that the append returns; None if it must be tried again."""


async def _write(
    index: TenantIndex,
    command: AppendCommand,
    before: HeaderRow | None,
    after: ConversationHeader,
    documents: redis_documents.DocumentWrites,
    at: datetime,
) -> _WriteResult:
    conversation, lease = command.conversation, command.lease
    if before is None:
        claim = await index.claim_id(conversation, after.recipient, microseconds(at))
        if claim is None:
            return _WriteResult(None)
        row = new_row(command, index.tenant, claim, at)
        version, position, member, fields = "", 0, claim.rank + conversation, new_header_fields(row)
    else:
        row = replace(before, conversation=after)
        version, position, member = str(before.conversation.version), before.conversation.length, ""
        fields = append_fields(after)
    keys = [*index.keys_of_claim(conversation, after.recipient, row.nonce), *documents.void_keys]
    if before is not None and index.lifetime != "":
        keys += [key for ancestor in before.ancestors for key in index.keys.parts(after.recipient, ancestor)]
    key_record = command.digest + str(row.conversation.version).encode() if command.idempotency_hash else b""
    args: list[Value] = [
        *(
            index.id_hash(conversation),
            row.nonce,
            version,
            command.idempotency_hash,
            key_record,
            index.lifetime,
            member,
        ),
        *("" if lease is None else lease.fence, microseconds(at), *documents.args),
        *(len(fields), *fields, *entry_args(command.packed, position)),
    ]
    try:
        # After the id is claimed: a later holder finds the claim and raises the fence, so that the script rejects this append.
        if lease is not None:
            await redis_leases.require(index, lease)
        reply = await index.engine.run_script("append", keys, args)
    except BaseException:
        index.engine.remove_from_cache(index.tenant, conversation)
        raise
    match reply[0]:
        case b"done":
            index.engine.add_to_cache(index.tenant, conversation, after.recipient, row)
            await redis_documents.delete_expired(
                index, redis_documents.Owner(conversation, after.recipient), reply[1], at
            )
            return _WriteResult(row, is_current=True, version=row.conversation.version)
        case b"repeated":
            return _WriteResult(None, version=_earlier_version(command, reply[1]))
        case b"conflict":
            return _WriteResult(index.row(conversation, reply[1]), is_current=True)
    index.engine.remove_from_cache(index.tenant, conversation)
    match reply[0]:
        case b"lost" if lease is not None:
            raise LeaseLost(conversation, lease.holder, lease.fence)
        case b"erased":
            raise ConversationErased(conversation)
        case b"blocked":
            raise RecipientBlocked(after.recipient)
    return _WriteResult(None)


def new_row(command: AppendCommand, tenant: str, claim: IdClaim, at: datetime) -> HeaderRow:
    """The conversation that an append creates with a claim."""
    created_at = moment(created_at_of(claim.rank))
    empty_header = new_header(tenant, command.conversation, command.recipient, command.labels or {}, created_at)
    return HeaderRow(
        header_after_append(empty_header, command.messages, broken=command.on_broken_exchange, at=at), claim.nonce
    )


def entry_args(packed: Sequence[Packed], position: int) -> list[Value]:
    """Roles, turns, payloads and entries, as arguments of the script `append`."""
    encoded_entries = [encoded_entry(entry) for entry in packed]
    roles = "".join(ROLE_LETTERS[entry.role] for entry in packed)
    turns = [turn_start for turn_start, entry in enumerate(packed, position) if entry.role is MessageRole.USER]
    payloads = [part for entry in encoded_entries for part in entry.payloads]
    entries = [entry.data for entry in encoded_entries]
    return [roles, len(turns), *turns, len(payloads) // 2, *payloads, position, len(entries), *entries]
