"""Appending to an encrypted store: sealed for the place where the record ends, and again if it no longer ends there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    IdempotencyConflict,
    InvalidSetting,
    StoreDamaged,
    VersionConflict,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import Finding
from minutebook.record.transcript import Broken
from minutebook.store.cipher import Cipher
from minutebook.store.contract import ConversationStore
from minutebook.store.keyring import Keyring
from minutebook.store.request import AppendRequest
from minutebook.store.rules import require_version
from minutebook.store.seal import sealed_document, sealed_entry
from minutebook.store.types import Conversation

NAME: Final = "encrypted store"
KEY_LABEL: Final = "minutebook.key"
"""The label that says which data key a conversation is encrypted with."""


@dataclass(frozen=True, slots=True)
class Append:
    """What was asked for, checked."""

    conversation: str
    request: AppendRequest
    recipient: str | None
    labels: Mapping[str, str]
    expected_version: int | None
    idempotency_key: str | None
    broken: Broken

    def sealed(self, cipher: Cipher, tenant: str, position: int) -> list[ConversationEntry]:
        pairs = zip(self.request.packed, self.request.messages, strict=True)
        return [
            sealed_entry(cipher, packed, message, tenant, self.conversation, at)
            for at, (packed, message) in enumerate(pairs, position)
        ]

    def without(self, kind: str, document_id: str) -> "Append":
        """The same, but for a document that is there already."""
        others = tuple(one for one in self.request.documents if (one.kind, one.id) != (kind, document_id))
        return replace(self, request=replace(self.request, documents=others))

    def fingerprint(self, cipher: Cipher) -> bytes | None:
        return None if self.idempotency_key is None else cipher.fingerprint(self.request.digest)


async def appended(store: ConversationStore, ring: Keyring, wanted: Append) -> int | None:
    """Append at the place where the record ends now; None if somebody else was faster, and it is to be tried again."""
    name, expected = wanted.conversation, wanted.expected_version
    header = await _find(store, name)
    if header is None:
        require_version(None, name, expected)
        key_id, cipher = await ring.for_recipient(wanted.recipient or name)
        version, position, labels = 0, 0, {**wanted.labels, KEY_LABEL: key_id}
    else:
        key_id, cipher = key_of(header), await cipher_of(ring, header)
        # 0 cannot be its version: what is not at the caller's is answered if the key is known, and refused if not.
        version = header.version if expected in {None, header.version} else 0
        position, labels = header.length, dict(wanted.labels)
    try:
        answer = await store.append(
            name,
            wanted.sealed(cipher, store.tenant, position),
            recipient=wanted.recipient,
            labels=labels,
            expected_version=version,
            idempotency_key=wanted.idempotency_key,
            fingerprint=wanted.fingerprint(cipher),
            broken=wanted.broken,
            documents=[sealed_document(cipher, one, store.tenant, name) for one in wanted.request.documents],
            lease=wanted.request.lease,
            release=wanted.request.release,
        )
    except VersionConflict as problem:
        if expected is None or (header is None and wanted.idempotency_key is not None):
            return None
        raise VersionConflict(name, problem.actual, expected) from problem
    except IdempotencyConflict:
        now = await _find(store, name)
        if now is not None and key_of(now) != key_id:
            return None  # it was made in the meantime, with another data key
        raise
    except BrokenConversation as problem:
        raise BrokenConversation([_in_the_clear(one, cipher) for one in problem.findings]) from problem
    if header is None:
        await _require_key(store, ring, name, key_id)
    return answer


async def cipher_of(ring: Keyring, header: Conversation) -> Cipher:
    """What opens a conversation.

    Raises:
        ConversationErased: the key was destroyed.
    """
    try:
        return await ring.cipher(key_of(header))
    except ConversationNotFound as problem:
        raise ConversationErased(header.id) from problem


def key_of(header: Conversation) -> str:
    """The id of the data key."""
    try:
        return header.labels[KEY_LABEL]
    except KeyError:
        raise StoreDamaged(NAME, f"conversation {header.id!r} was not written by an encrypted store") from None


def require_free_labels(labels: Mapping[str, object]) -> None:
    """Raises `InvalidSetting` if one of them is ours."""
    if KEY_LABEL in labels:
        raise InvalidSetting("label", KEY_LABEL, "another name: that one says which key a conversation has")


async def _find(store: ConversationStore, conversation: str) -> Conversation | None:
    try:
        return await store.header(conversation)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


async def _require_key(store: ConversationStore, ring: Keyring, conversation: str, key_id: str) -> None:
    """Make sure that the key outlived the making of a conversation: its recipient may just have been erased."""
    try:
        await ring.require(key_id)
    except ConversationNotFound as problem:
        await store.erase(conversation=conversation)
        raise ConversationErased(conversation) from problem


def _in_the_clear(finding: Finding, cipher: Cipher) -> Finding:
    """A finding that names the call as its maker knows it."""
    return replace(finding, call_id=cipher.call_id(finding.call_id)) if finding.call_id else finding
