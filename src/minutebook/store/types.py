"""The values of a store: conversation headers, loaded conversations, documents, leases, pages.

A document is a JSON object that belongs to a conversation and is erased with it. A service keeps its own data about a
conversation as documents (answers by request, permissions, usage), so that nothing outlives an erasure. The rules for
writing a document are here, because they are the same for every store.

A lease lets one run at a time work on a conversation, across processes. A process may be suspended until after the end of its
lease. So each lease has a fencing token (`fence`), a number that increases with every new lease. Once another holder has
acquired the lease, an append with the old one is rejected, whatever the clock of the process shows.
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
    require_type,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold, pinned_offsets, set_system_prompts
from minutebook.record.message import FrozenDict, Message, frozen_copy
from minutebook.record.transcript import Transcript
from minutebook.store.codec import is_storable, json_from_bytes, json_to_bytes, microseconds, moment
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import entry_to_provider_message

T = TypeVar("T")


class ConversationStatus(StrEnum):
    """The state of a conversation. A new one is idle; every transition is allowed."""

    ACTIVE = "active"
    AWAITING_ANSWER = "awaiting_answer"
    CLOSED = "closed"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The conversation that a fork was made from."""

    conversation: str
    position: int
    """Number of shared entries: the fork's own entries start here."""


@dataclass(frozen=True, slots=True)
class ConversationHeader:
    """The metadata of a conversation, which is read without its entries."""

    tenant: str
    id: str
    recipient: str
    """The person or system that the conversation is with; `erase(recipient=…)` erases it. Default: the conversation's id."""
    created_at: datetime
    updated_at: datetime
    """When entries were last appended."""
    status_updated_at: datetime
    status: ConversationStatus = ConversationStatus.IDLE
    version: int = 0
    """Number of appends, rewinds and undone rewinds; being created by a fork counts as one. Other folds, pins, labels and
    status do not change it."""
    length: int = 0
    """Number of entries ever appended, purged ones too: the position of the next entry."""
    turns: int = 0
    """Number of user messages among them."""
    lead: int = 0
    """The position after the leading system messages. Entries that were hidden by a rewind may come before these."""
    first: int = 0
    """The position of the first entry that was not purged."""
    open_calls: tuple[str, ...] = ()
    """Ids of the tool calls of the last exchange that have no result yet."""
    open_at: int | None = None
    """The position of the message with these calls."""
    labels: Mapping[str, str] = field(default_factory=FrozenDict, hash=False)
    """Short texts by name, for the application. A fork has the same labels."""
    origin: ForkOrigin | None = None
    revision: int = 0
    """Number of times that stored entries were changed by `trim`. While it, `first` and `created_at` are the same,
    entries that were read before are still those of the record."""
    requests: int = 0
    """The highest number of a request whose minutes were stored, also if they were removed since."""

    def __post_init__(self) -> None:
        if not isinstance(self.labels, FrozenDict):
            object.__setattr__(self, "labels", frozen_copy(self.labels))


@dataclass(frozen=True, slots=True)
class StoredFold:
    """A fold as it is stored. It is never deleted, only marked as undone."""

    fold: Fold
    created_at: datetime
    undone_at: datetime | None = None
    sealed: bool = False
    """Whether it cannot be undone: entries that it covers were purged, or a call that it hides has no result."""


@dataclass(frozen=True, slots=True)
class LoadedConversation:
    """A part of a conversation, read from one snapshot."""

    conversation: ConversationHeader
    start: int
    """The position where the requested part starts."""
    entries: tuple[ConversationEntry, ...]
    positions: Sequence[int]
    """The position of each entry in the record."""
    folds: tuple[Fold, ...]
    """The active folds, by start: without those that are undone or covered by a later fold."""
    pins: frozenset[int]
    """The pinned positions of the whole conversation: every view must include them."""

    @property
    def messages(self) -> list[Message]:
        """The entries as messages, without folds."""
        return [entry_to_provider_message(entry) for entry in self.entries]

    def shown(self) -> list[tuple[int | None, Message]]:
        """The messages with the folds applied, each with its position. The messages of a fold have position None."""
        ranges = _FoldedRanges(self.folds)
        parts: list[tuple[int, int | None, Message]] = [  # sort key, position, message
            (position, position, entry_to_provider_message(entry))
            for position, entry in zip(self.positions, self.entries, strict=True)
            if not ranges.contains(position)
        ]
        parts += [(fold.start, None, message) for fold in self.folds for message in fold.shown]
        parts.sort(key=lambda part: part[0])  # a stable sort: the messages of a fold stay in order
        return [(position, message) for _, position, message in parts]

    def transcript(self, *, counter: TokenCounter | None = None) -> Transcript:
        """The messages of `shown` as a transcript with pins, for `view_of`."""
        shown = self.shown()
        transcript = Transcript.of([message for _, message in shown], counter=counter)
        set_system_prompts(transcript, self.folds, self.conversation.lead)
        pinned_messages = {id(fold.shown[offset]) for fold in self.folds for offset in pinned_offsets(fold, self.pins)}
        for index, (position, message) in enumerate(shown):
            if position in self.pins or (position is None and id(message) in pinned_messages):
                transcript.pin(index)
        return transcript


class _FoldedRanges:
    """The positions that folds cover. Positions must be looked up in ascending order."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self._ranges = [range(fold.start, fold.stop) for fold in folds]
        self._index = 0

    def contains(self, position: int) -> bool:
        while self._index < len(self._ranges) and self._ranges[self._index].stop <= position:
            self._index += 1
        return self._index < len(self._ranges) and position in self._ranges[self._index]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An entry, or the summary of a fold, that matches a search query."""

    conversation: str
    position: int
    """The position of the entry, or the start of the fold."""
    entry: ConversationEntry
    """For a fold, an entry with the text of the messages that it shows."""
    snippet: str = ""
    """An excerpt of the text on one line, around the first match."""
    highlights: tuple[tuple[int, int], ...] = ()
    """Start and stop of each match in the snippet."""
    fold: Fold | None = None
    """The fold, if its summary was found."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: tuple[T, ...]
    cursor: str | None
    """Pass it to the same method to get the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Figures of a store in this process, for metrics. None if the store has no such thing."""

    waiting_writes: int | None = None
    """Writes that wait for their transaction."""
    connections: int | None = None
    """Open connections of the pools; those of appends are not counted."""
    idle_connections: int | None = None
    waiting_for_connection: int | None = None
    """Operations that wait for a connection of a pool."""
    connection_requests: int | None = None
    """Operations that used a connection of a pool, since the start."""
    connection_wait_seconds: float | None = None
    """Time that operations waited for a connection of a pool, in all, since the start."""
    queued_jobs: int | None = None
    """Background jobs that wait for a worker, of all processes."""


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """Counts of what an erasure removed. It has no names and no content, so it may be stored."""

    id: str
    erased_at: datetime
    conversations: int
    """Number of conversations, including all their forks."""
    entries: int
    folds: int
    pins: int


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of an import, including the entries that an earlier attempt of the same import had added."""

    conversations: int
    entries: int


MAX_NAME_BYTES: Final = 512
"""PostgreSQL indexes rows of up to 2,704 bytes, and one index has the names of tenant, recipient and conversation."""


def require_name(kind: str, value: object) -> str:
    """Check a tenant, an id, a recipient or a key, and return it. `kind` names it in the error.

    Raises:
        InvalidSetting: it is empty, too long, or has characters that not every database can store.
    """
    if not isinstance(value, str) or not is_storable(value) or not 0 < len(value.encode()) <= MAX_NAME_BYTES:
        raise InvalidSetting(kind, value, f"1 to {MAX_NAME_BYTES} bytes in UTF-8, without NUL or lone surrogates")
    return value


RESERVED_TENANT: Final = "_minutebook"
"""The tenant that owns API keys, token counts, usage totals and the audit log. Keys and configurations cannot use it."""
KEY_TENANT_PREFIX: Final = "data keys "
"""Start of the names of the tenants that own the data keys of an encrypted store."""
REQUEST_KIND: Final = "request"
"""The document kind of the minutes of requests, which the databases also index by their age. The header has the highest
`number` of their bodies."""
MAX_REQUEST_NUMBER: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to write."""

    kind: str
    id: str
    """Unique among the tenant's documents of this kind, across conversations."""
    body: Mapping[str, Any] = field(hash=False)
    expires_at: datetime | None = None
    """When it expires; None if it lasts as long as the conversation."""
    replace: bool = False
    """Whether it may replace a document of the same conversation, whose number and creation time stay."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object that belongs to a conversation."""

    conversation: str
    kind: str
    id: str
    body: Mapping[str, Any] = field(hash=False)
    number: int
    """Increases with every new document of the conversation; a number is never used twice."""
    created_at: datetime
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, FrozenDict):
            object.__setattr__(self, "body", frozen_copy(self.body))


class WriteAction(Enum):
    """How to write a document, given the stored one with the same kind and id. SAME: nothing is written."""

    NEW = "new"
    REPLACE = "replace"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class PackedDocument:
    """A new document, checked and encoded."""

    kind: str
    id: str
    body: bytes
    expires_at: int | None
    """Microseconds since 1970, UTC."""
    replace: bool
    request: int = 0
    """The number of the request, of minutes that have one."""

    def stored(self, conversation: str, number: int, created_at: datetime) -> Document:
        """The document as it is stored."""
        return document_of(
            conversation, self.kind, self.id, self.body, number, microseconds(created_at), self.expires_at
        )

    def write_action(self, existing: Document | None, conversation: str, at: datetime) -> WriteAction:
        """How to write it, given the stored document with the same kind and id.

        Raises:
            DocumentExists: the stored document is a different one and must not be replaced.
        """
        if existing is None or has_expired(existing, at):
            return WriteAction.NEW
        if existing.conversation == conversation:
            if self.replace:
                return WriteAction.REPLACE
            if _canonical_json(json_to_bytes(existing.body)) == _canonical_json(self.body):
                return WriteAction.SAME
        raise DocumentExists(self.kind, self.id, existing.conversation)


def require_document(new: NewDocument) -> PackedDocument:
    """Check a document and encode it.

    Raises:
        InvalidSetting: its kind or id is invalid, or `expires_at` has no time zone.
        InvalidMessage: the body is not a JSON object.
    """
    require_name("kind", new.kind)
    require_name("document id", new.id)
    if new.expires_at is not None and new.expires_at.tzinfo is None:
        raise InvalidSetting("expires_at", new.expires_at, "a time with a time zone, such as datetime.now(UTC)")
    if not isinstance(new.body, Mapping):
        raise InvalidMessage("document body", f"is of type {type(new.body).__name__}, not a JSON object")
    body = json_to_bytes(new.body)
    expires_at = None if new.expires_at is None else microseconds(new.expires_at)
    return PackedDocument(new.kind, new.id, body, expires_at, new.replace, _request_number(new))


def _request_number(new: NewDocument) -> int:
    number = new.body.get("number") if new.kind == REQUEST_KIND else None
    return number if type(number) is int and 0 < number < MAX_REQUEST_NUMBER else 0


def require_documents(new: Sequence[NewDocument]) -> tuple[PackedDocument, ...]:
    """Check and encode documents that are written together."""
    if not new:
        return ()
    packed = tuple(map(require_document, new))
    names = [(document.kind, document.id) for document in packed]
    if len(set(names)) != len(names):
        raise InvalidSetting("documents", names, "each kind and id only once")
    return packed


def document_of(
    conversation: str, kind: str, document_id: str, body: bytes, number: int, created_at: int, expires_at: int | None
) -> Document:
    """Decode a stored document: its body is JSON in bytes, its times are microseconds."""
    expiry = None if expires_at is None else moment(expires_at)
    return Document(conversation, kind, document_id, json_from_bytes(body), number, moment(created_at), expiry)


def has_expired(document: Document, at: datetime) -> bool:
    return document.expires_at is not None and document.expires_at <= at


def document_key(kind: str, document_id: str) -> bytes:
    """A hash of kind and id: a short key that does not reveal them."""
    return sha256(f"{len(kind)}:{kind}{document_id}".encode()).digest()[:16]


def kind_key(kind: str) -> bytes:
    """A hash of a kind of documents."""
    return sha256(kind.encode()).digest()[:16]


def _canonical_json(body: bytes) -> str:
    """JSON with sorted keys, to compare objects."""
    return json.dumps(json_from_bytes(body), sort_keys=True)


MAX_LEASE_SECONDS: Final = 366 * 24 * 3600
LEASE_GRACE: Final = timedelta(hours=1)
"""A lease can be used and renewed for at least this long after its end, unless another holder has acquired it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The exclusive right to work on a conversation until a time, or until it is released."""

    conversation: str
    holder: str
    """A name for the process or run that has the lease."""
    fence: int
    """The fencing token: higher than that of every earlier lease on this conversation."""
    until: datetime
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class LeasedConversation:
    """A lease, and the conversation as it was when the lease was acquired."""

    lease: Lease
    loaded: LoadedConversation | None
    """None if the conversation does not exist yet."""


def require_lease(conversation: str, holder: str, seconds: float) -> None:
    """Raise `InvalidSetting` if the arguments of a lease are invalid."""
    require_name("conversation", conversation)
    require_name("holder", holder)
    require_type("seconds", seconds, (int, float), "a number of seconds")
    if not 0 < seconds <= MAX_LEASE_SECONDS:
        raise InvalidSetting("seconds", seconds, f"more than 0 and at most {MAX_LEASE_SECONDS}")


def require_lease_on(conversation: str, lease: Lease | None) -> Lease | None:
    """Return the lease. Raise `InvalidSetting` if it is on another conversation."""
    if lease is not None and lease.conversation != conversation:
        raise InvalidSetting(
            "lease.conversation", lease.conversation, f"{conversation!r}, the conversation to append to"
        )
    return lease


def is_same_lease(stored: Lease | None, lease: Lease) -> bool:
    """Whether the stored lease is this one (same holder and fence), expired or not."""
    return stored is not None and (stored.holder, stored.fence) == (lease.holder, lease.fence)


def require_own_lease(stored: Lease | None, lease: Lease) -> None:
    """Raise `LeaseLost` if the lease was released or another holder has it. An expired lease can be used until then."""
    if not is_same_lease(stored, lease):
        raise LeaseLost(lease.conversation, lease.holder, lease.fence)


def fence_of_holder(stored: Lease | None, conversation: str, holder: str, at: datetime) -> int | None:
    """The fence of the active lease if the holder has it; None if a new lease must be created.

    Raises:
        ConversationBusy: another holder has the lease.
    """
    if stored is None or stored.until <= at:
        return None
    if stored.holder != holder:
        raise ConversationBusy(conversation, stored.until)
    return stored.fence


def lease_end(at: datetime, seconds: float) -> datetime:
    return at + timedelta(seconds=seconds)
