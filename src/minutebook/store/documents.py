"""Documents: JSON objects that belong to a conversation and are erased with it.

A service keeps more than what was said: what it answered to which request, who may ask, what was done. Kept elsewhere,
that outlives an erasure; kept as documents, it goes with the conversation. What decides where a document may stand is
here, the same for every store.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import Any

from minutebook.errors import DocumentExists, InvalidMessage, InvalidSetting
from minutebook.record.frozen import FrozenDict, frozen
from minutebook.store.codec import json_from_bytes, json_to_bytes, microseconds, moment
from minutebook.store.rules import require_name


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to be put into a conversation."""

    kind: str
    id: str
    """Tells it from all others of its kind, in whichever of the tenant's conversations they are."""
    body: Mapping[str, Any] = field(hash=False)
    expires_at: datetime | None = None
    """From when on it is not found any more; None for as long as the conversation lives."""
    replace: bool = False
    """Whether it may take the place of one that is there, in the same conversation; it keeps its number and its time."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object that belongs to a conversation."""

    conversation: str
    kind: str
    id: str
    body: Mapping[str, Any] = field(hash=False)
    number: int
    """Its place among those of its kind in its conversation: later ones have higher numbers, which are never used twice."""
    created_at: datetime
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, FrozenDict):
            object.__setattr__(self, "body", frozen(self.body))


class Verdict(Enum):
    """What becomes of a document that is put where there may be one."""

    NEW = "new"
    REPLACE = "replace"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class PackedDocument:
    """A new document, checked and ready to be written."""

    kind: str
    id: str
    body: bytes
    expires_at: int | None
    """Microseconds since 1970, UTC, as every time in a store."""
    replace: bool

    def stored(self, conversation: str, number: int, created_at: datetime) -> Document:
        """The document that it becomes."""
        return document_of(
            conversation, self.kind, self.id, self.body, number, microseconds(created_at), self.expires_at
        )

    def verdict(self, known: Document | None, conversation: str, at: datetime) -> Verdict:
        """What is to be done, given what is there under its kind and id.

        Raises:
            DocumentExists: what is there must stay.
        """
        if known is None or has_expired(known, at):
            return Verdict.NEW
        if known.conversation == conversation:
            if self.replace:
                return Verdict.REPLACE
            if _canonical(json_to_bytes(known.body)) == _canonical(self.body):
                return Verdict.SAME
        raise DocumentExists(self.kind, self.id, known.conversation)


def require_document(new: NewDocument) -> PackedDocument:
    """A document, if it can be one.

    Raises:
        InvalidSetting: a name cannot be one, or the time has no zone.
        InvalidMessage: the body is not a JSON object.
    """
    require_name("kind", new.kind)
    require_name("document id", new.id)
    if new.expires_at is not None and new.expires_at.tzinfo is None:
        raise InvalidSetting("expires_at", new.expires_at, "a time with its zone, such as datetime.now(UTC)")
    if not isinstance(new.body, Mapping):
        raise InvalidMessage("body", f"is a {type(new.body).__name__}; a document is a JSON object")
    try:
        body = json_to_bytes(new.body)
    except RecursionError as problem:
        raise InvalidMessage("body", "cannot be stored as JSON: it is nested too deeply") from problem
    expires_at = None if new.expires_at is None else microseconds(new.expires_at)
    return PackedDocument(new.kind, new.id, body, expires_at, new.replace)


def require_documents(new: Sequence[NewDocument]) -> tuple[PackedDocument, ...]:
    """Documents that are written together, if they can be."""
    if not new:
        return ()
    packed = tuple(require_document(one) for one in new)
    if len({(one.kind, one.id) for one in packed}) != len(packed):
        raise InvalidSetting("documents", [(one.kind, one.id) for one in packed], "each kind and id once")
    return packed


def document_of(
    conversation: str, kind: str, name: str, body: bytes, number: int, created_at: int, expires_at: int | None
) -> Document:
    """A document as a store keeps it: its body as bytes, its times as microseconds."""
    until = None if expires_at is None else moment(expires_at)
    return Document(conversation, kind, name, json_from_bytes(body), number, moment(created_at), until)


def has_expired(document: Document, at: datetime) -> bool:
    return document.expires_at is not None and document.expires_at <= at


def document_key(kind: str, name: str) -> bytes:
    """What a kind and an id are found by where names would be too long, or must not stay."""
    return sha256(f"{len(kind)}:{kind}{name}".encode()).digest()[:16]


def kind_key(kind: str) -> bytes:
    """What a kind is found by."""
    return sha256(kind.encode()).digest()[:16]


def _canonical(body: bytes) -> str:
    """The same text for the same object, in whichever order its keys came."""
    return json.dumps(json_from_bytes(body), sort_keys=True)
