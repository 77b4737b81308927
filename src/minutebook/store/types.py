"""What a store says about a conversation: values, with no store in them.

Documents: JSON objects that belong to a conversation and are erased with it.

A service keeps more than what was said: what it answered to which request, who may ask, what was done. Kept elsewhere,
that outlives an erasure; kept as documents, it goes with the conversation. What decides where a document may stand is
here, the same for every store.

Leases: one run per conversation, across processes.

A lease is a promise for a time, and a process may sleep through its end. So each has a fence, a number that rises with
every new holder: an append that shows its lease is refused once another was given, whatever the clock of its process says.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

from minutebook.errors import (
    ConversationBusy,
    DocumentExists,
    InvalidMessage,
    InvalidSetting,
    LeaseLost,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import FrozenDict, Message, frozen
from minutebook.record.transcript import Transcript
from minutebook.store.codec import is_plain, json_from_bytes, json_to_bytes, microseconds, moment
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import entry_to_provider_message

T = TypeVar("T")


class ConversationStatus(StrEnum):
    """What a conversation is doing. Any may follow any other; a new one is idle."""

    ACTIVE = "active"
    AWAITING_ANSWER = "awaiting_answer"
    CLOSED = "closed"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork left the conversation it was made from."""

    conversation: str
    position: int
    """How many entries they share: the fork's own begin here."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The header of a conversation: what is known of it without reading an entry."""

    tenant: str
    id: str
    recipient: str
    """Whom it is with: the one whose wish to be forgotten reaches it. Its own id, where nobody was named."""
    created_at: datetime
    updated_at: datetime
    """When entries were last appended."""
    status_updated_at: datetime
    status: ConversationStatus = ConversationStatus.IDLE
    version: int = 0
    """How many appends it has seen; the fork that made it counts as one. Folds, pins and status do not count."""
    length: int = 0
    """How many entries were ever appended: the position of the next one."""
    turns: int = 0
    """How many of them are user messages."""
    lead: int = 0
    """How many system messages stand at the front."""
    first: int = 0
    """The position of the first entry that was not purged."""
    open_calls: tuple[str, ...] = ()
    """The calls of the last exchange that wait for their results."""
    open_at: int | None = None
    """The position of the message that made them."""
    labels: Mapping[str, str] = field(default_factory=FrozenDict, hash=False)
    """A few short words that its owner keeps with it; a fork begins with the same."""
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, FrozenDict):
            object.__setattr__(self, "labels", frozen(self.labels))


@dataclass(frozen=True, slots=True)
class StoredFold:
    """A fold as the store keeps it: it is never removed, only marked undone."""

    fold: Fold
    created_at: datetime
    undone_at: datetime | None = None
    sealed: bool = False
    """Whether entries that it covers were purged, so that it can no longer be undone."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A part of a conversation, as it was at one moment."""

    conversation: Conversation
    start: int
    """Where the part that was asked for begins."""
    entries: tuple[ConversationEntry, ...]
    positions: Sequence[int]
    """Where each of the entries stands in the record."""
    folds: tuple[Fold, ...]
    """The folds that stand, by their place: undone ones and those that a later one covers are not among them."""
    pins: frozenset[int]
    """The positions that every view must hold; those of the whole conversation."""

    @property
    def messages(self) -> list[Message]:
        """The entries as messages, no fold applied."""
        return [entry_to_provider_message(entry) for entry in self.entries]

    def shown(self) -> list[tuple[int | None, Message]]:
        """The messages with the folds applied, each with its position; None for what a fold shows."""
        hidden = _Hidden(self.folds)
        parts: list[tuple[int, int | None, Message]] = [
            (position, position, entry_to_provider_message(entry))
            for position, entry in zip(self.positions, self.entries, strict=True)
            if not hidden.holds(position)
        ]
        parts += [(fold.start, None, message) for fold in self.folds for message in fold.shown]
        parts.sort(key=lambda part: part[0])  # stable: what one fold shows stays in its order
        return [(position, message) for _, position, message in parts]

    def transcript(self, *, counter: TokenCounter | None = None) -> Transcript:
        """What `shown` gives, as a transcript with its pins: ready for `view_of`."""
        shown = self.shown()
        made = Transcript.of([message for _, message in shown], counter=counter)
        for index, (position, _) in enumerate(shown):
            if position in self.pins:
                made.pin(index)
        return made


class _Hidden:
    """Which positions a set of folds covers, asked in rising order."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self._ranges = [(fold.start, fold.stop) for fold in folds]
        self._at = 0

    def holds(self, position: int) -> bool:
        while self._at < len(self._ranges) and self._ranges[self._at][1] <= position:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= position


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that holds every word that was searched for."""

    conversation: str
    position: int
    entry: ConversationEntry


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the answers, and where to go on."""

    items: tuple[T, ...]
    cursor: str | None
    """Give it back to get the next page; None when there is none."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed. It names nobody and quotes nothing, so it may be kept."""

    id: str
    erased_at: datetime
    conversations: int
    """The ones that were named and every fork made from them."""
    entries: int
    folds: int
    pins: int


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import added; what an earlier try of the same import had added already is counted too."""

    conversations: int
    entries: int


LONGEST_NAME: Final = 512


def require_name(kind: str, value: object) -> str:
    """A tenant, an id, a recipient or a key, if it can be one everywhere.

    Raises:
        InvalidSetting: it is empty, too long, or not text that every database takes.
    """
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not is_plain(value):
        raise InvalidSetting(kind, value, f"1 to {LONGEST_NAME} characters, without NUL and lone surrogates")
    return value


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


LONGEST_SECONDS: Final = 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a conversation for a time. It stands until then, or until it is released."""

    conversation: str
    holder: str
    """Who has it: a name of the process, or of the run."""
    fence: int
    """Higher than that of every lease on this conversation before it."""
    until: datetime


def require_lease(conversation: str, holder: str, seconds: float) -> None:
    """Raises `InvalidSetting` unless a lease may be asked for like this."""
    require_name("conversation", conversation)
    require_name("holder", holder)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidSetting("seconds", seconds, f"more than 0, and {LONGEST_SECONDS} at most")


def require_own_lease(conversation: str, lease: Lease | None) -> Lease | None:
    """The lease, if it is on this conversation."""
    if lease is not None and lease.conversation != conversation:
        raise InvalidSetting("lease", lease.conversation, f"a lease on {conversation!r}, which is to be appended to")
    return lease


def stands(known: Lease | None, lease: Lease, at: datetime) -> bool:
    """Whether a lease is the one that is known, and has not run out; when it was to end before it was renewed is no matter."""
    return known is not None and (known.holder, known.fence) == (lease.holder, lease.fence) and at < known.until


def require_standing(known: Lease | None, lease: Lease, at: datetime) -> None:
    """Raises `LeaseLost` unless the lease stands."""
    if not stands(known, lease, at):
        raise LeaseLost(lease.conversation, lease.holder, lease.fence)


def kept_fence(known: Lease | None, conversation: str, holder: str, at: datetime) -> int | None:
    """The fence that the holder has already; None if a new one is due.

    Raises:
        ConversationBusy: another holds the conversation.
    """
    if known is None or known.until <= at:
        return None
    if known.holder != holder:
        raise ConversationBusy(conversation, known.until)
    return known.fence


def end_of(at: datetime, seconds: float) -> datetime:
    """When a lease that begins at a time runs out."""
    return at + timedelta(seconds=seconds)
