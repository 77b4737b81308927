"""What callers ask for, checked before any store does anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.store.codec import Packed, body_digest, pack
from minutebook.store.documents import NewDocument, PackedDocument, require_documents
from minutebook.store.leases import Lease, require_own_lease
from minutebook.store.rules import require_labels, require_name
from minutebook.store.types import ConversationStatus


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Entries that may be appended, ready to be written."""

    packed: tuple[Packed, ...]
    messages: tuple[Message, ...]
    digest: bytes
    """What tells these messages from others, for the idempotency key."""
    documents: tuple[PackedDocument, ...] = ()
    lease: Lease | None = None
    """The one that must stand."""
    release: bool = False
    """Whether it is given back with that."""


def require_append(
    conversation: str,
    entries: Sequence[ConversationEntry],
    recipient: str | None,
    labels: Mapping[str, str] | None,
    expected_version: int | None,
    idempotency_key: str | None,
    fingerprint: bytes | None,
    documents: Sequence[NewDocument] = (),
    lease: Lease | None = None,
    release: bool = False,
) -> AppendRequest:
    """An append, if it can be one.

    Raises:
        InvalidSetting: a name cannot be one, there is nothing to append, or no lease to give back.
        InvalidMessage: an entry is not JSON.
    """
    require_name("conversation", conversation)
    if recipient is not None:
        require_name("recipient", recipient)
    if idempotency_key is not None:
        require_name("idempotency_key", idempotency_key)
    if labels is not None:
        require_labels(labels)
    if expected_version is not None and expected_version < 0:
        raise InvalidSetting("expected_version", expected_version, "0 or more")
    if not entries and expected_version != 0:
        raise InvalidSetting("entries", [], "at least one entry, or expected_version=0 for an empty conversation")
    if release and lease is None:
        raise InvalidSetting("release", release, "a lease besides, which is given back")
    pairs = [pack(entry, index) for index, entry in enumerate(entries)]
    packed: tuple[Packed, ...]
    messages: tuple[Message, ...]
    packed, messages = zip(*pairs, strict=True) if pairs else ((), ())
    digest = b""
    if idempotency_key is not None:
        digest = body_digest(packed) if fingerprint is None else sha256(fingerprint).digest()[:16]
    lease = require_own_lease(conversation, lease)
    return AppendRequest(packed, messages, digest, require_documents(documents), lease, release)


def require_status(status: ConversationStatus | str) -> ConversationStatus:
    """A status, also by its name.

    Raises:
        InvalidSetting: there is none of that name.
    """
    try:
        return ConversationStatus(status)
    except ValueError:
        raise InvalidSetting("status", status, f"one of {', '.join(ConversationStatus)}") from None


@lru_cache(maxsize=1_024)  # asked for by every part of a transaction
def tombstone(tenant: str, conversation: str) -> bytes:
    """What is left of an erased conversation's id: enough to know it again, not enough to read it."""
    return sha256(f"{len(tenant)}:{tenant}{conversation}".encode()).digest()[:16]
