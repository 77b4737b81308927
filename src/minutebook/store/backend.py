"""The interface that each database implements. The arguments of its methods are already checked.

`ConversationStore` has the public methods, their documentation and the checks of their arguments; a backend reads and
writes rows. The backend reads the clock itself, within its transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Self

from minutebook.errors import ConversationErased, ConversationNotFound, MissingSetting
from minutebook.record.fold import Fold
from minutebook.record.message import Message, MessageRole
from minutebook.record.transcript import OnBroken
from minutebook.store.codec import Packed
from minutebook.store.rules import now
from minutebook.store.search import Alternative
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    Document,
    ErasureReceipt,
    Lease,
    LeasedConversation,
    LoadedConversation,
    PackedDocument,
    Page,
    SearchHit,
    StoredFold,
    StoreStatistics,
)


@dataclass(frozen=True, slots=True)
class AppendCommand:
    """The checked arguments of `ConversationStore.append`."""

    conversation: str
    packed: tuple[Packed, ...]
    messages: tuple[Message, ...]
    recipient: str | None = None
    labels: Mapping[str, str] | None = None
    expected_version: int | None = None
    idempotency_key: str | None = None
    digest: bytes = b""
    """A hash of the messages, to detect an idempotency key that is reused for other messages."""
    on_broken_exchange: OnBroken = "raise"
    documents: tuple[PackedDocument, ...] = ()
    lease: Lease | None = None
    """The lease that must be active."""
    release: bool = False
    """Whether the lease is released by the append."""

    @property
    def idempotency_hash(self) -> bytes:
        """A hash of the idempotency key; only the hash is stored. Empty without a key."""
        return b"" if self.idempotency_key is None else sha256(self.idempotency_key.encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class LoadQuery:
    """The checked arguments of `ConversationStore.load`."""

    conversation: str
    last_turns: int | None = None
    last_messages: int | None = None
    since: int | None = None
    limit: int | None = None
    folded: bool = False


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The checked arguments of `ConversationStore.list`."""

    recipient: str | None
    status: ConversationStatus | None
    cursor: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The checked arguments of `ConversationStore.search`."""

    alternatives: tuple[Alternative, ...]
    conversation: str | None
    recipient: str | None
    cursor: str | None
    limit: int
    roles: frozenset[MessageRole] = frozenset()
    """Roles of the entries to find; empty for all."""
    since: datetime | None = None
    until: datetime | None = None
    """Entries created from `since` on and before `until`."""


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """The checked arguments of `ConversationStore.documents`."""

    conversation: str
    kind: str
    cursor: str | None
    limit: int
    newest_first: bool


class Backend(ABC):
    """Reads and writes the conversations of one tenant. `ConversationStore` documents the methods."""

    expire_after: timedelta | None = None
    """The time without an append after which a conversation expires; None for never."""

    def __init__(self, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self.tenant = tenant
        self._clock = clock

    def for_tenant(self, tenant: str) -> Self:
        other = copy(self)
        other.tenant = tenant
        return other

    def with_expiry(self, expire_after: timedelta | None) -> "Backend":
        """This backend with another `expire_after`."""
        from minutebook.store.expiry import ExpiringBackend

        return self if expire_after is None else ExpiringBackend(self, expire_after)

    def now(self) -> datetime:
        return self._clock().astimezone(UTC)

    def set_clock(self, clock: Callable[[], datetime]) -> None:
        """Use another clock, for imports and for tests of expiry."""
        self._clock = clock

    @abstractmethod
    def use_keys(self, key_ids: Sequence[str]) -> None:
        """Expect a database that is encrypted with one of these master keys. A new database is encrypted with the first."""

    @abstractmethod
    async def set_setting(self, name: str, value: str) -> None:
        """Set a setting that all processes and tenants of the database share."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, so that a problem with the store is reported now and not by the first operation."""

    @abstractmethod
    async def close(self) -> None:
        """Finish running operations and close files and connections, for every tenant."""

    async def statistics(self) -> StoreStatistics:
        """Figures for metrics."""
        return StoreStatistics()

    @abstractmethod
    async def vacuum(self, *, rewrite: bool = False) -> None: ...

    @abstractmethod
    async def append(self, command: AppendCommand) -> int: ...

    @abstractmethod
    async def header(self, conversation: str) -> ConversationHeader: ...

    @abstractmethod
    async def load(self, query: LoadQuery) -> LoadedConversation: ...

    @abstractmethod
    async def folds(self, conversation: str) -> tuple[StoredFold, ...]: ...

    @abstractmethod
    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold: ...

    @abstractmethod
    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold: ...

    @abstractmethod
    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None: ...

    @abstractmethod
    async def purge(self, conversation: str, before: int) -> int: ...

    @abstractmethod
    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int: ...

    @abstractmethod
    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader: ...

    @abstractmethod
    async def rewind(
        self, conversation: str, to: int, expected_version: int | None, reason: str
    ) -> ConversationHeader: ...

    @abstractmethod
    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader: ...

    @abstractmethod
    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader: ...

    @abstractmethod
    async def list(self, query: ListQuery) -> Page[ConversationHeader]: ...

    @abstractmethod
    async def search_mode(self) -> str:
        """The database's setting `search`: "off", "words", or the language of its stems."""

    @abstractmethod
    async def search(self, query: SearchQuery) -> Page[SearchHit]: ...

    @abstractmethod
    async def erase(self, conversation: str | None, recipient: str | None, *, block: bool = False) -> ErasureReceipt:
        """Exactly one of the first two arguments is not None. `block` needs a recipient."""

    @abstractmethod
    async def readmit(self, recipient: str) -> bool: ...

    async def expire(self) -> ErasureReceipt:
        """Remove all conversations of the tenant that have expired."""
        raise MissingSetting("expire_after", "set it: store.with_expiry(timedelta(days=30)).expire()")

    @abstractmethod
    async def remove_expired(self, conversation: str, before: datetime) -> ErasureReceipt:
        """Remove a conversation and its forks if the last append to each of them was before this time, else do nothing.

        Other conversations that meet the condition may be removed too. No tombstone is left. The check and the removal
        are atomic: a conversation that is appended to or forked meanwhile stays.
        """

    @abstractmethod
    async def put_document(self, conversation: str, document: PackedDocument) -> Document: ...

    @abstractmethod
    async def document(self, kind: str, document_id: str) -> Document: ...

    @abstractmethod
    async def documents(self, query: DocumentQuery) -> Page[Document]: ...

    @abstractmethod
    async def requests_before(self, before: datetime, cursor: str | None, limit: int) -> Page[Document]: ...

    @abstractmethod
    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        """Delete documents; return how many existed and had not expired."""

    @abstractmethod
    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease: ...

    async def acquire_and_load(self, holder: str, seconds: float, query: LoadQuery) -> LeasedConversation:
        lease = await self.acquire_lease(query.conversation, holder, seconds)
        try:
            return LeasedConversation(lease, await self.load(query))
        except ConversationErased:
            raise
        except ConversationNotFound:
            return LeasedConversation(lease, None)

    @abstractmethod
    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease | None]: ...

    @abstractmethod
    async def release_lease(self, lease: Lease) -> None: ...
