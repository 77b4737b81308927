"""Appending: checked here, written by a script if nothing changed in between.

The rules are Python's, the same for every store; the script only compares the version that they were asked about. Who
loses that race is told the new header and tries again, unless the caller named a version.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from minutebook.errors import ConversationErased, IdempotencyConflict, LeaseLost, MinutebookError, StoreUnavailable
from minutebook.record.message import MessageRole
from minutebook.record.transcript import Broken
from minutebook.store import redis_documents, redis_leases
from minutebook.store.codec import microseconds, moment
from minutebook.store.redis_engine import Value
from minutebook.store.redis_errors import errors_of
from minutebook.store.redis_keys import Claim, created_at_of
from minutebook.store.redis_rows import LETTERS, Filed, digests_of, entry_to_bytes, first_fields, grown_fields
from minutebook.store.redis_shelf import Shelf
from minutebook.store.request import AppendRequest
from minutebook.store.rules import created, grown, require_recipient, require_version
from minutebook.store.types import Conversation


@dataclass(frozen=True, slots=True)
class Append:
    """What was asked for, checked as far as it can be without the conversation."""

    conversation: str
    request: AppendRequest
    recipient: str | None
    labels: Mapping[str, str]
    expected_version: int | None
    idempotency_key: str | None
    broken: Broken
    at: datetime

    @property
    def key(self) -> Value:
        """The idempotency key as it is kept."""
        return b"" if self.idempotency_key is None else sha256(self.idempotency_key.encode()).digest()[:16]

    def answered(self, answer: bytes) -> int:
        """The version that the first append under this key gave."""
        if answer[:16] != self.request.digest:
            raise IdempotencyConflict(self.conversation, self.idempotency_key or "")
        return int(answer[16:])

    def after(self, found: Filed | None) -> Conversation:
        """The header as it will be."""
        require_version(found.conversation if found else None, self.conversation, self.expected_version)
        if found is None:
            return self._grown(created("-", self.conversation, self.recipient, self.labels, self.at))
        require_recipient(found.conversation, self.recipient)
        return self._grown(found.conversation)

    def made(self, tenant: str, claim: Claim) -> Filed:
        """The conversation that a claim makes."""
        at = moment(created_at_of(claim.rank))
        empty = created(tenant, self.conversation, self.recipient, self.labels, at)
        return Filed(self._grown(empty), claim.nonce)

    def _grown(self, conversation: Conversation) -> Conversation:
        return grown(conversation, self.request.messages, broken=self.broken, at=self.at)

    def written(self, position: int) -> list[Value]:
        """Roles, turns, payloads and entries, as the script takes them."""
        packed = self.request.packed
        turns = [at for at, one in enumerate(packed, position) if one.role is MessageRole.USER]
        entries: list[bytes] = []
        blobs: list[bytes] = []
        for one in packed:
            entry, large = entry_to_bytes(one)
            entries.append(entry)
            blobs += [part for digest in digests_of(entry) for part in (digest, large[digest])]
        roles = "".join(LETTERS[one.role] for one in packed)
        return [roles, len(turns), *turns, len(blobs) // 2, *blobs, position, len(entries), *entries]


async def append(shelf: Shelf, wanted: Append) -> int:
    """Add entries at the end; return the new version. A lease is given back after that, and else runs out by itself."""
    version = await _appended(shelf, wanted)
    if wanted.request.release and wanted.request.lease is not None:
        with suppress(ConversationErased, StoreUnavailable), errors_of(shelf.engine.address.name):
            await redis_leases.release(
                shelf, wanted.request.lease
            )  # what is written is written, whatever becomes of this
    return version


async def _appended(shelf: Shelf, wanted: Append) -> int:
    engine, name = shelf.engine, wanted.conversation
    async with engine.lock(shelf.tenant, name):
        found: Filed | None = engine.known.get((shelf.tenant, name))
        if wanted.request.lease is not None and wanted.key:
            found = None  # what was answered before is answered again, also to who has lost the lease since
        sure = False
        while True:
            if found is None:
                found, answer = await shelf.find(name, wanted.key)
                sure = True
                if answer:
                    return wanted.answered(answer)
                if wanted.request.lease is not None:
                    await redis_leases.require(shelf, wanted.request.lease)
            try:
                after = wanted.after(found)
                place = (name, after.recipient)
                documents = await redis_documents.planned(shelf, place, wanted.request.documents, wanted.at)
            except MinutebookError:
                if sure:
                    raise
                found = None  # what we thought we knew may be out of date
                continue
            found, sure, version = await _written(shelf, wanted, found, after, documents)
            if version is not None:
                return version


async def _written(
    shelf: Shelf, wanted: Append, before: Filed | None, after: Conversation, documents: redis_documents.Planned
) -> tuple[Filed | None, bool, int | None]:
    """Try to write: what is known now, whether that is certain, and the version if it is done."""
    name = wanted.conversation
    if before is None:
        claim = await shelf.claim(name, after.recipient, microseconds(wanted.at))
        if claim is None:
            return None, False, None
        made = wanted.made(shelf.tenant, claim)
        keys, version, position = [*shelf.keys_to_make(name, claim), *documents.voids], "", 0
        member, fields = claim.rank + name, first_fields(made)
    else:
        made, claim = before.grown(after), Claim(before.nonce, "", after.recipient)
        keys, position = [*shelf.keys_to_make(name, claim), *documents.voids], before.conversation.length
        version, member, fields = str(before.conversation.version), "", grown_fields(after)
        if shelf.lifetime != "":
            keys += [key for origin in before.line for key in shelf.keys.parts(after.recipient, origin)]
    answer = wanted.request.digest + str(made.conversation.version).encode() if wanted.key else b""
    facts: list[Value] = [shelf.mark(name), made.nonce, version, wanted.key, answer, shelf.lifetime, member]
    lease = wanted.request.lease
    facts += ["" if lease is None else lease.fence, microseconds(wanted.at)]
    args = [*facts, *documents.args, len(fields), *fields, *wanted.written(position)]
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
            await redis_documents.drop_expired(shelf, (name, made.conversation.recipient), reply[1], wanted.at)
            return made, True, made.conversation.version
        case b"answered":
            return None, True, wanted.answered(reply[1])
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
