"""Documents: checked in Python, then written by a script if the stored documents have not changed in between.

The tenant's index has a claim for each document: a nonce, and the conversation that has the document. In a cluster the
claim and the document may be on different servers, so one script cannot write both. A process may die after it has written
the claim, or write the document after another process has claimed the same id. So before a process replaces a claim that
has no document, it stores with the old claim's conversation that the old nonce is void. No document is written with a void
claim.
"""

import asyncio
import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from typing import Final, NamedTuple
from uuid import uuid4

from redis.exceptions import RedisError

from minutebook.errors import DocumentNotFound
from minutebook.store.backend import DocumentQuery
from minutebook.store.codec import compress_document, cursor_of, cursor_values, decompress, microseconds
from minutebook.store.redis.connection import Value
from minutebook.store.redis.tenant import VOID_MILLISECONDS, TenantIndex
from minutebook.store.types import (
    REQUEST_KIND,
    Document,
    PackedDocument,
    Page,
    WriteAction,
    document_key,
    document_of,
    has_expired,
    kind_key,
)

BATCH: Final = 200
"""Number of documents that are read or released at a time."""
_NONCE_CHARACTERS: Final = 32
_KEY_BYTES: Final = 32
"""Length of a document's key in the tenant's index, see `_index_key`."""


class Owner(NamedTuple):
    """The conversation of a document."""

    conversation: str
    recipient: str

    def to_bytes(self) -> bytes:
        return json.dumps([self.recipient, self.conversation]).encode()


@dataclass(frozen=True, slots=True)
class DocumentWrites:
    """Checked documents, as the scripts take them."""

    args: list[Value]
    void_keys: list[str]
    """For each document, the key that exists if its claim is void."""


@dataclass(frozen=True, slots=True)
class _DocumentClaim:
    """The stored claim of a document's key, and the document."""

    value: bytes
    """The claim in the tenant's index: a nonce, then the owner; empty if there is none."""
    record: bytes = b""
    """The document; empty if it does not exist."""
    is_void: bool = False

    @property
    def nonce(self) -> str:
        return self.value[:_NONCE_CHARACTERS].decode()

    @property
    def owner(self) -> Owner:
        recipient, conversation = json.loads(self.value[_NONCE_CHARACTERS:])
        return Owner(conversation, recipient)

    @property
    def document(self) -> Document | None:
        return _document(self.owner.conversation, self.record) if self.record else None

    def belongs_to(self, owner: Owner) -> bool:
        return self.value[_NONCE_CHARACTERS:] == owner.to_bytes()


async def put(index: TenantIndex, conversation: str, document: PackedDocument, at: datetime) -> Document:
    """Put a document into an existing conversation."""
    while True:
        owner = Owner(conversation, (await index.get(conversation)).conversation.recipient)
        writes = await prepare_writes(index, owner, [document], at)
        reply = await index.run_script(
            "put_document", conversation, microseconds(at), *writes.args, extra_keys=writes.void_keys
        )
        if reply[0] == b"done":
            await delete_expired(index, owner, reply[2], at)
            return _document(conversation, reply[1][0])


async def prepare_writes(
    index: TenantIndex, owner: Owner, documents: Sequence[PackedDocument], at: datetime
) -> DocumentWrites:
    """Check documents that are to be written to a conversation, and claim the ids of new ones.

    Raises:
        DocumentExists: a different document with the same kind and id exists and must not be replaced.
    """
    while True:
        claims = [await _find(index, _index_key(document.kind, document.id)) for document in documents]
        pairs = list(zip(documents, claims, strict=True))
        write_actions = [document.write_action(claim.document, owner.conversation, at) for document, claim in pairs]
        args: list[Value] = [len(documents)]
        void_keys: list[str] = []
        for (document, stored_claim), action in zip(pairs, write_actions, strict=True):
            key = _index_key(document.kind, document.id)
            claim: _DocumentClaim | None = stored_claim
            if action is WriteAction.NEW and (stored_claim.is_void or not stored_claim.belongs_to(owner)):
                claim = await _claim(index, key, stored_claim, owner, at)
            if claim is None:
                break
            old_digest = sha1(claim.record, usedforsecurity=False).hexdigest() if claim.record else ""
            line = json.dumps([document.kind, document.id, document.expires_at]).encode()
            expires_at: Value = "" if document.expires_at is None else document.expires_at
            args += [
                key,
                old_digest,
                action.value,
                microseconds(at),
                expires_at,
                document.request,
                line + b"\n" + compress_document(document.body),
            ]
            void_keys.append(index.keys.void(owner.recipient, claim.nonce))
        else:
            return DocumentWrites(args, void_keys)


async def _claim(
    index: TenantIndex, key: bytes, stored_claim: _DocumentClaim, owner: Owner, at: datetime
) -> _DocumentClaim | None:
    """Claim the key of a document for a conversation; return None if another process has claimed or written it."""
    if stored_claim.value and not stored_claim.is_void:
        reply = await _delete(index, key, stored_claim, expired_at=at)
        if reply[0] == b"exists":
            return None
    value = uuid4().hex.encode() + owner.to_bytes()
    requested_at: Value = microseconds(at) if key.startswith(kind_key(REQUEST_KIND)) else ""
    reply = await index.engine.run_script(
        "claim_document_id", index.keys.document_index(), [key, stored_claim.value, value, requested_at]
    )
    return await _read(index, key, value) if reply[0] == b"done" else None


async def get(index: TenantIndex, kind: str, document_id: str, at: datetime) -> Document:
    """The document with this kind and id.

    Raises:
        DocumentNotFound: it does not exist or has expired.
    """
    document = (await _find(index, _index_key(kind, document_id))).document
    if document is None or has_expired(document, at):
        raise DocumentNotFound(kind, document_id)
    return document


async def list_page(index: TenantIndex, query: DocumentQuery, at: datetime) -> Page[Document]:
    """A page of a conversation's documents of one kind, by number."""
    after, kind = cursor_values(query.cursor, int), kind_key(query.kind)
    low, high = b"[" + kind, b"(" + kind + b":"  # a colon sorts after every digit
    if after is not None and query.newest_first:
        high = b"(" + kind + b"%016d" % max(0, after[0])
    elif after is not None:
        low = b"[" + kind + b"%016d" % max(0, after[0] + 1)
    args: list[Value] = [low, high, "1" if query.newest_first else "", query.limit + 1, microseconds(at)]
    reply = await index.run_script("list_documents", query.conversation, *args)
    documents = [_document(query.conversation, record) for record in reply[1]]
    has_more = len(documents) > query.limit
    page = documents[: query.limit]
    return Page(tuple(page), cursor_of(page[-1].number) if has_more else None)


async def requests_before(index: TenantIndex, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
    """Minutes of requests that were created before a time, of all conversations, oldest first."""
    engine, after = index.engine, cursor_values(cursor, int, str)
    start = "-inf" if after is None else after[0]
    found: list[Document] = []
    for offset in itertools.count(0, BATCH):
        rows = await engine.send(
            engine.client.zrangebyscore(
                index.keys.requests(), start, f"({microseconds(before)}", start=offset, num=BATCH, withscores=True
            )
        )
        members = [(int(at), key) for key, at in rows if after is None or (int(at), key.hex()) > after]
        claims = await asyncio.gather(*(_find(index, key) for _, key in members))
        for (at, key), claim in zip(members, claims, strict=True):
            document = claim.document
            if document is not None and document.created_at < before:
                found.append(document)
            if len(found) == limit:
                return Page(tuple(found), cursor_of(at, key.hex()))
        if len(rows) < BATCH:
            break
    return Page(tuple(found), None)


async def delete(index: TenantIndex, kind: str, document_ids: Sequence[str], at: datetime) -> int:
    """Delete documents; return how many existed and had not expired."""
    return sum(await asyncio.gather(*(_delete_one(index, kind, document_id, at) for document_id in document_ids)))


async def _delete_one(index: TenantIndex, kind: str, document_id: str, at: datetime) -> bool:
    key = _index_key(kind, document_id)
    claim = await _find(index, key)
    if not claim.record:
        return False
    record = (await _delete(index, key, claim))[1]
    await _release(index, key, claim.value)
    return bool(record) and not has_expired(_document(claim.owner.conversation, record), at)


async def delete_expired(index: TenantIndex, owner: Owner, keys: Sequence[bytes], at: datetime) -> None:
    """Delete expired documents of a conversation. If that fails, a later write or `sweep` deletes them."""
    with suppress(RedisError, OSError):
        for key in keys:
            claim = await _find(index, key)
            if claim.belongs_to(owner):
                await _delete_if_expired(index, key, claim.value, at)


async def release_erased(index: TenantIndex, recipient: str) -> None:
    """Remove the documents of a recipient's erased conversations from the tenant's index."""
    engine, erased_documents = index.engine, index.keys.erased_documents(recipient)
    members: list[bytes] = list(await engine.send(engine.client.smembers(erased_documents)))
    for start in range(0, len(members), BATCH):
        batch = members[start : start + BATCH]
        args: list[Value] = []
        for member in batch:  # the key of a document, then the id of its conversation
            owner = Owner(member[_KEY_BYTES:].decode(), recipient)
            args += [member[:_KEY_BYTES], owner.to_bytes()]
        await engine.run_script("release_document_ids", index.keys.document_index(), args)
        await engine.send(engine.client.srem(erased_documents, *batch))


async def sweep(index: TenantIndex, at: datetime) -> None:
    """Delete expired documents, and the claims of documents that have expired with their conversation."""
    engine, cursor = index.engine, 0
    while True:
        cursor, batch = await engine.send(engine.client.hscan(index.keys.document_claims(), cursor, count=BATCH))
        await asyncio.gather(*(_delete_if_expired(index, key, value, at) for key, value in batch.items()))
        if cursor == 0:
            return


async def _delete_if_expired(index: TenantIndex, key: bytes, claim_value: bytes, at: datetime) -> None:
    if (await _delete(index, key, _DocumentClaim(claim_value), expired_at=at))[0] == b"done":
        await _release(index, key, claim_value)


async def _delete(
    index: TenantIndex, key: bytes, claim: _DocumentClaim, *, expired_at: datetime | None = None
) -> list[bytes]:
    """Delete a document and void its claim. With `expired_at`, a document that has not expired by then is not deleted."""
    args: list[Value] = [key, "" if expired_at is None else microseconds(expired_at), VOID_MILLISECONDS]
    return await _run_script(index, "delete_document", claim, args)


async def _release(index: TenantIndex, key: bytes, claim_value: bytes) -> None:
    await index.engine.run_script("release_document_ids", index.keys.document_index(), [key, claim_value])


async def _find(index: TenantIndex, key: bytes) -> _DocumentClaim:
    """Read the claim of a key and its document."""
    client, claims = index.engine.client, index.keys.document_claims()
    value: bytes = await index.engine.send(client.hget(claims, key)) or b""
    while value:
        claim = await _read(index, key, value)
        current_value: bytes = value if claim.record else await index.engine.send(client.hget(claims, key)) or b""
        if current_value == value:
            return claim
        value = current_value
    return _DocumentClaim(b"")


async def _read(index: TenantIndex, key: bytes, claim_value: bytes) -> _DocumentClaim:
    reply = await _run_script(index, "get_document", _DocumentClaim(claim_value), [key])
    return _DocumentClaim(claim_value, reply[1], bool(reply[2]))


async def _run_script(index: TenantIndex, script: str, claim: _DocumentClaim, args: Sequence[Value]) -> list[bytes]:
    """Run a script on the conversation that a claim names, whether or not it exists."""
    conversation, recipient = claim.owner
    keys = index.keys_of_claim(conversation, recipient, claim.nonce)
    reply: list[bytes] = await index.engine.run_script(script, keys, [index.id_hash(conversation), *args])
    return reply


def _index_key(kind: str, document_id: str) -> bytes:
    return kind_key(kind) + document_key(kind, document_id)


def _document(conversation: str, record: bytes) -> Document:
    number, created_at, line_and_body = record.split(b":", 2)
    line, _, body = line_and_body.partition(b"\n")
    kind, document_id, expires_at = json.loads(line)
    return document_of(conversation, kind, document_id, decompress(body), int(number), int(created_at), expires_at)
