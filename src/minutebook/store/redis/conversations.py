"""Forks, erases and lists conversations, and removes expired ones."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import ConversationErased, VersionConflict
from minutebook.store.backend import ListQuery
from minutebook.store.codec import cursor_of, cursor_values, microseconds, moment
from minutebook.store.redis import documents as redis_documents
from minutebook.store.redis.connection import Value
from minutebook.store.redis.folds import (
    NumberedFolds,
    active_args,
    active_starts,
    fold_args,
    numbered_folds,
    read_end_of_system,
)
from minutebook.store.redis.keys import PARTS, IdClaim, created_at_of, order_member, parse_order_member, rank_of
from minutebook.store.redis.rows import HeaderRow, new_header_fields
from minutebook.store.redis.tenant import VOID_MILLISECONDS, TenantIndex
from minutebook.store.rules import find_lead, folds_of_fork, recipient_hash, require_fork_position
from minutebook.store.types import ConversationHeader, ErasureReceipt, ForkOrigin, Page

BATCH: Final = 500
"""Number of ids that are read at a time."""
EXPIRY_BATCH: Final = 100
"""Number of expired conversations that are removed at a time. The server runs nothing else meanwhile."""
MAX_HEADERS_PER_PAGE: Final = 10_000
"""Maximum number of headers that a page reads. If few have the requested status, the page has fewer than `limit`."""


async def fork(
    index: TenantIndex, conversation: str, new_id: str, position: int | None, at: datetime
) -> ConversationHeader:
    """Copy a conversation up to a position. The server runs nothing else while it copies."""
    async with index.engine.append_lock(index.tenant, conversation):
        while True:
            reply = await index.run_script("load_fork_point", conversation, -1 if position is None else position)
            row = index.row(conversation, reply[1])
            existing, _ = await index.find(new_id)
            if existing is not None:
                raise VersionConflict(new_id, existing.conversation.version, 0)
            length = require_fork_position(row.conversation, position, splits_an_exchange=bool(reply[2]))
            claim = await index.claim_id(new_id, row.conversation.recipient, microseconds(at))
            if claim is None:
                continue
            turns = row.conversation.turns if position is None else int(reply[3])
            shared_folds = folds_of_fork(numbered_folds(reply[4]).values(), length, row.conversation.first)
            folds = dict(enumerate(shared_folds))
            fork_row = _fork_row(row, new_id, length, turns, at, claim)
            if length < row.conversation.lead:
                end_of_system = await read_end_of_system(index, row, length)
                lead = await find_lead(fork_row.conversation, folds.values(), end_of_system)
                fork_row = replace(fork_row, conversation=replace(fork_row.conversation, lead=lead))
            keys, args = _fork_arguments(index, row, fork_row, claim, folds)
            reply = await index.engine.run_script("fork", keys, args)
            if reply[0] == b"done":
                index.engine.add_to_cache(index.tenant, new_id, fork_row.conversation.recipient, fork_row)
                return fork_row.conversation
            _require_no_fork_error(reply, conversation, new_id)
            index.engine.remove_from_cache(index.tenant, conversation)


def _fork_row(row: HeaderRow, new_id: str, length: int, turns: int, at: datetime, claim: IdClaim) -> HeaderRow:
    origin = row.conversation
    is_complete = length == origin.length
    header = ConversationHeader(
        *(origin.tenant, new_id, origin.recipient, moment(created_at_of(claim.rank)), at, at),
        version=1,
        length=length,
        turns=turns,
        lead=min(origin.lead, length),
        first=origin.first,
        open_calls=origin.open_calls if is_complete else (),
        open_at=origin.open_at if is_complete else None,
        labels=origin.labels,
        origin=ForkOrigin(origin.id, length),
    )
    return HeaderRow(header, claim.nonce, (*row.ancestors, origin.id))


def _fork_arguments(
    index: TenantIndex, row: HeaderRow, fork_row: HeaderRow, claim: IdClaim, fork_folds: NumberedFolds
) -> tuple[list[str], list[Value]]:
    """The keys and arguments of the script `fork`."""
    origin, header = row.conversation, fork_row.conversation
    relatives = [
        key for name in (header.id, *row.ancestors) for key in index.keys.parts(header.recipient, name)
    ]  # the fork, and the conversations that must not expire before it
    keys = [*index.keys_of_claim(origin.id, header.recipient, claim.nonce), *relatives]
    fields = new_header_fields(fork_row)
    args: list[Value] = [
        *(
            index.id_hash(origin.id),
            index.id_hash(header.id),
            row.nonce,
            origin.version,
            row.fold_changes,
        ),
        *(claim.rank + header.id, index.lifetime, header.length, header.turns),
        *(len(fields), *fields, *fold_args(fork_folds), *active_args(active_starts(fork_folds))),
    ]
    return keys, args


def _require_no_fork_error(reply: Sequence[Any], conversation: str, new_id: str) -> None:
    """Raise the error that a reply of the script `fork` reports, if a retry does not help."""
    if reply[0] == b"erased":
        raise ConversationErased(conversation)
    if reply[0] == b"fork erased":
        raise ConversationErased(new_id)
    if reply[0] == b"taken":
        raise VersionConflict(new_id, int(reply[1]), 0)


async def erase_conversation(index: TenantIndex, conversation: str, at: datetime) -> ErasureReceipt:
    """Erase a conversation and its forks."""
    try:
        claim = await index.find_claim(conversation)
    except ConversationErased:
        claim = None
    if claim is None:
        return _receipt(at, (0, 0, 0, 0))
    return await _erase(index, claim.recipient, conversation, at)


async def erase_recipient(index: TenantIndex, recipient: str, at: datetime, *, block: bool) -> ErasureReceipt:
    """Erase all conversations of a recipient. Their forks have the same recipient."""
    if block:
        client, erased = index.engine.client, index.keys.erased(recipient)
        await index.engine.send(client.sadd(index.keys.index.blocked, recipient_hash(index.tenant, recipient)))
        # For appends that have claimed an id already. It expires, because the name of the key contains the recipient.
        await index.engine.send(client.sadd(erased, "blocked"))
        await index.engine.send(client.pexpire(erased, VOID_MILLISECONDS))
    return await _erase(index, recipient, None, at)


async def readmit(index: TenantIndex, recipient: str) -> bool:
    """Allow new conversations with a blocked recipient; return whether it was blocked."""
    client = index.engine.client
    await index.engine.send(client.srem(index.keys.erased(recipient), "blocked"))
    return bool(await index.engine.send(client.srem(index.keys.index.blocked, recipient_hash(index.tenant, recipient))))


async def _erase(index: TenantIndex, recipient: str, conversation: str | None, at: datetime) -> ErasureReceipt:
    while True:
        changes = await index.engine.send(index.engine.client.get(index.keys.changes(recipient))) or b"0"
        rows = {
            name: row
            for name, row in (await _rows_of_recipient(index, recipient)).items()
            if conversation is None or conversation == name or conversation in row.ancestors
        }
        reply = await _run_erase_script(index, recipient, changes, rows)
        if reply[0] == b"done":
            await _remove_erased_ids(index, recipient, [] if conversation is None else [conversation])
            return _receipt(at, reply[1:])


async def remove_expired(index: TenantIndex, conversation: str, before: datetime, at: datetime) -> ErasureReceipt:
    """Remove expired conversations of the recipient of a conversation, some at a time, until that one is not expired."""
    claim = await index.find_claim(conversation)
    total = [0, 0, 0, 0]
    while claim is not None:
        changes = await index.engine.send(index.engine.client.get(index.keys.changes(claim.recipient))) or b"0"
        expired = _expired_rows(await _rows_of_recipient(index, claim.recipient), before)
        if conversation not in expired:
            break
        rows = dict(list(expired.items())[:EXPIRY_BATCH])
        document_keys = {name: await _document_keys(index, claim.recipient, name) for name in rows}
        reply = await _run_erase_script(index, claim.recipient, changes, rows, checks_versions=True)
        if reply[0] == b"done":
            total = [sum(counts) for counts in zip(total, reply[1:], strict=True)]
            for name, keys in document_keys.items():
                index.engine.remove_from_cache(index.tenant, name)
                await redis_documents.delete_expired(index, redis_documents.Owner(name, claim.recipient), keys, at)
            await _remove_unused_claims(
                index,
                {
                    name: IdClaim(row.nonce, rank_of(microseconds(row.conversation.created_at)), claim.recipient)
                    for name, row in rows.items()
                },
            )
    return _receipt(at, total)


def _expired_rows(rows: Mapping[str, HeaderRow], before: datetime) -> dict[str, HeaderRow]:
    """The conversations that, with all their forks, were last appended to before a time. Forks come before their origins."""
    in_use = {
        name
        for row in rows.values()
        if row.conversation.updated_at >= before
        for name in (row.conversation.id, *row.ancestors)
    }
    expired = [row for name, row in rows.items() if name not in in_use]
    expired.sort(key=lambda row: len(row.ancestors), reverse=True)
    return {row.conversation.id: row for row in expired}


async def _document_keys(index: TenantIndex, recipient: str, conversation: str) -> list[bytes]:
    documents = index.keys.parts(recipient, conversation)[PARTS.index("documents")]
    keys: list[bytes] = await index.engine.send(index.engine.client.hkeys(documents))
    return keys


async def _run_erase_script(
    index: TenantIndex, recipient: str, changes: bytes, rows: Mapping[str, HeaderRow], *, checks_versions: bool = False
) -> list[Any]:
    """Delete conversations that were selected when the counter `changes` had this value.

    With `checks_versions`, none is deleted if one was appended to since then.
    """
    keys = index.keys
    shared_keys = [keys.order(recipient), keys.erased(recipient), keys.changes(recipient)]
    shared_keys += [keys.erased_ids(recipient), keys.erased_documents(recipient)]
    parts = [key for name in rows for key in keys.parts(recipient, name)]
    args: list[Value] = [changes, VOID_MILLISECONDS]
    for name, row in rows.items():
        version: Value = row.conversation.version if checks_versions else ""
        args += [
            name,
            index.id_hash(name),
            order_member(microseconds(row.conversation.created_at), name),
            version,
        ]
    return await index.engine.run_script("erase", [*shared_keys, *parts], args)


async def _rows_of_recipient(index: TenantIndex, recipient: str) -> Mapping[str, HeaderRow]:
    engine, keys = index.engine, index.keys
    rows: dict[str, HeaderRow] = {}
    for member in await engine.send(engine.client.zrange(keys.order(recipient), 0, -1)):
        _, conversation = parse_order_member(member.decode())
        fields = await engine.send(engine.client.hgetall(keys.header(recipient, conversation)))
        if fields:
            rows[conversation] = index.row(conversation, fields)
    return rows


async def _remove_erased_ids(index: TenantIndex, recipient: str, requested_ids: Sequence[str]) -> None:
    """Remove erased conversations from the tenant's index, also those that an interrupted erasure left in it."""
    engine, erased_ids = index.engine, index.keys.erased_ids(recipient)
    names = [name.decode() for name in await engine.send(engine.client.smembers(erased_ids))]
    if not names:
        return
    args = [part for name in names for part in (name, "", index.id_hash(name))]
    await engine.run_script("remove_ids", index.keys.index, args)
    await redis_documents.release_erased(index, recipient)
    await engine.send(engine.client.delete(*(index.keys.lease(index.id_hash(name)) for name in names)))
    await engine.send(engine.client.srem(erased_ids, *names))
    for name in (*names, *requested_ids):
        engine.remove_from_cache(index.tenant, name)


def _receipt(at: datetime, counts: Sequence[int]) -> ErasureReceipt:
    conversations, entries, folds, pins = counts
    return ErasureReceipt(str(uuid4()), at, conversations=conversations, entries=entries, folds=folds, pins=pins)


async def remove_expired_ids(index: TenantIndex) -> None:
    """Remove the ids of expired conversations from the tenant's index."""
    engine, cursor = index.engine, 0
    while True:
        cursor, batch = await engine.send(engine.client.hscan(index.keys.index.claims, cursor, count=BATCH))
        await _remove_unused_claims(index, {name.decode(): IdClaim.parse(value) for name, value in batch.items()})
        if cursor == 0:
            return


async def _remove_unused_claims(index: TenantIndex, claims: Mapping[str, IdClaim]) -> None:
    """Remove those ids from the tenant's index whose conversations do not exist."""
    are_void = await asyncio.gather(*(_void_if_expired(index, name, claim) for name, claim in claims.items()))
    expired = [name for name, is_void in zip(claims, are_void, strict=True) if is_void]
    if expired:
        args = [part for name in expired for part in (name, claims[name].nonce, "")]
        await index.engine.run_script("remove_ids", index.keys.index, args)


async def _void_if_expired(index: TenantIndex, conversation: str, claim: IdClaim) -> bool:
    """Void a claim if its conversation does not exist; return whether it is void."""
    header = index.keys.header(claim.recipient, conversation)
    if await index.engine.send(index.engine.client.exists(header)):
        return False
    return await index.void_claim(conversation, claim)


async def list_page(index: TenantIndex, query: ListQuery) -> Page[ConversationHeader]:
    """A page of the conversations, newest first."""
    after = cursor_values(query.cursor, int, str)
    last_member = "" if after is None else order_member(*after)
    matches: list[ConversationHeader] = []
    read_count, step = 0, query.limit + 1
    while True:
        members = await _order_members(index, query.recipient, last_member, step)
        headers = await _headers(index, query.recipient, members)
        matches += [header for header in headers if header is not None and query.status in {None, header.status}]
        if len(matches) > query.limit:
            last_header = matches[query.limit - 1]
            return Page(tuple(matches[: query.limit]), cursor_of(microseconds(last_header.created_at), last_header.id))
        if len(members) < step:
            return Page(tuple(matches), None)
        last_member, read_count = members[-1], read_count + len(members)
        if read_count >= MAX_HEADERS_PER_PAGE:
            return Page(tuple(matches), cursor_of(*parse_order_member(last_member)))


async def _order_members(index: TenantIndex, recipient: str | None, after: str, count: int) -> list[str]:
    """The next members of the order of a recipient, or of the tenant."""
    order = index.keys.index.order if recipient is None else index.keys.order(recipient)
    low = f"({after}" if after else "-"
    members = await index.engine.send(index.engine.client.zrangebylex(order, low, "+", start=0, num=count))
    return [member.decode() for member in members]


async def _headers(index: TenantIndex, recipient: str | None, members: list[str]) -> list[ConversationHeader | None]:
    names = [parse_order_member(member)[1] for member in members]
    recipients: list[str | None] = [recipient] * len(names)
    if recipient is None and names:
        claims = await index.engine.send(index.engine.client.hmget(index.keys.index.claims, names))
        recipients = [IdClaim.parse(claim).recipient if claim else None for claim in claims]
    return await asyncio.gather(*(_header(index, *pair) for pair in zip(names, recipients, strict=True)))


async def _header(index: TenantIndex, conversation: str, recipient: str | None) -> ConversationHeader | None:
    """The header of a conversation; None if it does not exist."""
    if recipient is None:
        return None
    fields = await index.engine.send(index.engine.client.hgetall(index.keys.header(recipient, conversation)))
    return index.row(conversation, fields).conversation if fields else None
