"""Expiry by age: conversations that got no append for some time are removed.

A conversation has expired when the last append to it and to all its forks, at any depth, is older than `expire_after`. A
fork may share entries with the conversation it comes from, so a conversation stays as long as one of its forks is in use. A
new fork counts as an append; documents, folds, labels and the status do not. Unlike an erasure, expiry leaves no tombstone:
the id may be used again.

`ExpiringBackend` wraps the backend of any database. Before it uses a conversation that may have expired, it has the
database remove it. So an expired conversation is never visible, even if `expire` was never called.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Self, TypeVar
from uuid import uuid4

from minutebook.errors import (
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    InvalidSetting,
    StoreReadOnly,
)
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import cursor_of, microseconds
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

T = TypeVar("T")
BATCH: Final = 200
"""Number of headers that are read at a time. Opening a store removes the expired ones among the first batch."""
MAX_CACHED: Final = 10_000
"""Maximum number of conversations whose last known append is cached."""
MAX_AGE: Final = timedelta(days=36_500)
_AGE: Final = re.compile(r"([0-9]{1,8})\s*([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str, *, name: str = "expire_after") -> timedelta:
    """The time that a text such as `30d` means; the units are m (minutes), h, d and w. `name` is for the error.

    Raises:
        InvalidSetting: it is not such a text, or the time is 0 or longer than 100 years.
    """
    match = _AGE.fullmatch(text.strip())
    age = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < age <= MAX_AGE:
        raise InvalidSetting(name, text, "a time such as 30d, 12h or 90m, at most 100 years")
    return age


def require_age(age: object) -> timedelta:
    """Return the age, or raise `InvalidSetting` if conversations cannot expire after it."""
    if not isinstance(age, timedelta) or not timedelta() < age <= MAX_AGE:
        raise InvalidSetting("expire_after", age, "a timedelta of more than 0 and at most 100 years, or None")
    return age


def sum_of_receipts(first: ErasureReceipt, second: ErasureReceipt) -> ErasureReceipt:
    """The first receipt with the counts of both."""
    return replace(
        first,
        conversations=first.conversations + second.conversations,
        entries=first.entries + second.entries,
        folds=first.folds + second.folds,
        pins=first.pins + second.pins,
    )


class ExpiringBackend(Backend):
    """Another backend, without the conversations that have expired."""

    def __init__(self, inner: Backend, expire_after: timedelta) -> None:
        super().__init__(tenant=inner.tenant)
        self._inner = inner
        self.expire_after = self._age = require_age(expire_after)
        self._last_appends: dict[tuple[str, str], datetime] = {}
        """A cache: (tenant, conversation) → the last known append. Other processes may have appended later."""

    def for_tenant(self, tenant: str) -> Self:
        other = type(self)(self._inner.for_tenant(tenant), self._age)
        other._last_appends = self._last_appends  # noqa: SLF001 - one cache for all tenants
        return other

    def with_expiry(self, expire_after: timedelta | None) -> Backend:
        return self._inner.with_expiry(expire_after)

    def now(self) -> datetime:
        return self._inner.now()

    def set_clock(self, clock: Callable[[], datetime]) -> None:
        self._inner.set_clock(clock)

    async def open(self) -> None:
        """Open the store, and remove the expired conversations of one batch."""
        await self._inner.open()
        try:
            with suppress(StoreReadOnly):  # a read-only copy of a database that others write to
                await self._expire_batch(self._first_cursor())
        except BaseException:
            await self._inner.close()  # `async with` does not close a store that failed to open
            raise

    async def close(self) -> None:
        await self._inner.close()

    async def statistics(self) -> StoreStatistics:
        return await self._inner.statistics()

    async def vacuum(self, *, rewrite: bool = False) -> None:
        await self._inner.vacuum(rewrite=rewrite)

    async def expire(self) -> ErasureReceipt:
        cursor: str | None = self._first_cursor()
        total = ErasureReceipt(str(uuid4()), self.now(), 0, 0, 0, 0)
        while cursor is not None:
            receipt, cursor = await self._expire_batch(cursor)
            total = sum_of_receipts(total, receipt)
        return total

    async def remove_expired(self, conversation: str, before: datetime) -> ErasureReceipt:
        return await self._inner.remove_expired(conversation, before)

    async def append(self, command: AppendCommand) -> int:
        at = self.now()
        await self._remove_if_expired(command.conversation)
        version = await self._without_expired_documents(lambda: self._inner.append(command))
        self._remember(command.conversation, at)
        return version

    async def header(self, conversation: str) -> ConversationHeader:
        await self._remove_if_expired(conversation)
        return await self._inner.header(conversation)

    async def load(self, query: LoadQuery) -> LoadedConversation:
        await self._remove_if_expired(query.conversation)
        return await self._inner.load(query)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        await self._remove_if_expired(conversation)
        return await self._inner.folds(conversation)

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        await self._remove_if_expired(conversation)
        return await self._inner.add_fold(conversation, fold, replacing)

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        await self._remove_if_expired(conversation)
        return await self._inner.undo_fold(conversation, fold_id)

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        await self._remove_if_expired(conversation)
        await self._inner.set_pin(conversation, position, pinned=pinned)

    async def purge(self, conversation: str, before: int) -> int:
        await self._remove_if_expired(conversation)
        return await self._inner.purge(conversation, before)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        await self._remove_if_expired(conversation)
        return await self._inner.trim(conversation, changes)

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        await self._remove_if_expired(conversation)
        await self._remove_if_expired(new_id)
        return await self._inner.fork(conversation, new_id, at)

    async def rewind(self, conversation: str, to: int, expected_version: int | None, reason: str) -> ConversationHeader:
        await self._remove_if_expired(conversation)
        return await self._inner.rewind(conversation, to, expected_version, reason)

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        await self._remove_if_expired(conversation)
        return await self._inner.set_status(conversation, status)

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        await self._remove_if_expired(conversation)
        return await self._inner.set_labels(conversation, labels)

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        page = await self._inner.list(query)
        return Page(tuple([header for header in page.items if await self._remove_unless_in_use(header)]), page.cursor)

    async def search_mode(self) -> str:
        return await self._inner.search_mode()

    def use_keys(self, key_ids: Sequence[str]) -> None:
        self._inner.use_keys(key_ids)

    async def set_setting(self, name: str, value: str) -> None:
        await self._inner.set_setting(name, value)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        if query.conversation is not None:
            await self._remove_if_expired(query.conversation)
        page = await self._inner.search(query)
        expired = {name for name in {hit.conversation for hit in page.items} if await self._remove_if_expired(name)}
        return Page(tuple(hit for hit in page.items if hit.conversation not in expired), page.cursor)

    async def erase(self, conversation: str | None, recipient: str | None, *, block: bool = False) -> ErasureReceipt:
        """Erase conversations, also expired ones that were not removed yet."""
        return await self._inner.erase(conversation, recipient, block=block)

    async def readmit(self, recipient: str) -> bool:
        return await self._inner.readmit(recipient)

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        await self._remove_if_expired(conversation)
        return await self._without_expired_documents(lambda: self._inner.put_document(conversation, document))

    async def document(self, kind: str, document_id: str) -> Document:
        document = await self._inner.document(kind, document_id)
        if await self._remove_if_expired(document.conversation):
            raise DocumentNotFound(kind, document_id)
        return document

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        await self._remove_if_expired(query.conversation)
        return await self._inner.documents(query)

    async def requests_before(self, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
        """The minutes before a time, also those of expired conversations that were not removed yet."""
        return await self._inner.requests_before(before, cursor, limit)

    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        if len(document_ids) > 1:
            return await self._inner.delete_documents(kind, document_ids)
        try:
            await self.document(kind, document_ids[0])
        except DocumentNotFound:
            return 0
        return await self._inner.delete_documents(kind, document_ids)

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return await self._inner.acquire_lease(conversation, holder, seconds)

    async def acquire_and_load(self, holder: str, seconds: float, query: LoadQuery) -> LeasedConversation:
        await self._remove_if_expired(query.conversation)
        return await self._inner.acquire_and_load(holder, seconds, query)

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease | None]:
        return await self._inner.renew_leases(leases, seconds)

    async def release_lease(self, lease: Lease) -> None:
        await self._inner.release_lease(lease)

    def _cutoff(self) -> datetime:
        """A conversation has expired if its last append was before this time."""
        return self.now() - self._age

    def _first_cursor(self) -> str:
        """The cursor of a list of the conversations that are old enough to have expired, newest first."""
        return cursor_of(microseconds(self._cutoff()), "")

    async def _expire_batch(self, cursor: str) -> tuple[ErasureReceipt, str | None]:
        """Remove the expired conversations of one page; return their counts and the cursor of the next page.

        Each conversation is removed in its own transaction, so that appends need not wait long.
        """
        before = self._cutoff()
        page = await self._inner.list(ListQuery(None, None, cursor, BATCH))
        total = ErasureReceipt(str(uuid4()), self.now(), 0, 0, 0, 0)
        for header in page.items:
            if header.updated_at < before:
                total = sum_of_receipts(total, await self._inner.remove_expired(header.id, before))
        return total, page.cursor

    async def _remove_if_expired(self, conversation: str) -> bool:
        """Remove a conversation if it has expired; return whether it does not exist. Reads nothing if the cache suffices."""
        last_append = self._last_appends.get((self.tenant, conversation))
        if last_append is not None and last_append >= self._cutoff():
            return False
        try:
            header = await self._inner.header(conversation)
        except ConversationNotFound:
            return True
        return not await self._remove_unless_in_use(header)

    async def _remove_unless_in_use(self, header: ConversationHeader) -> bool:
        """Remove a conversation if it has expired; return whether it is still in use."""
        before = self._cutoff()
        if header.updated_at >= before:
            self._remember(header.id, header.updated_at)
            return True
        try:
            removed = await self._inner.remove_expired(header.id, before)
        except StoreReadOnly:  # whether a fork is in use is not known here
            return False
        if removed.conversations:
            return False
        try:
            await self._inner.header(header.id)  # a fork is in use, or it was just removed or appended to
        except ConversationNotFound:
            return False
        return True

    def _remember(self, conversation: str, last_append: datetime) -> None:
        if len(self._last_appends) >= MAX_CACHED:
            self._last_appends.clear()
        self._last_appends[self.tenant, conversation] = last_append

    async def _without_expired_documents(self, write: Callable[[], Awaitable[T]]) -> T:
        """Call a function that writes documents, again if their ids belong to documents of expired conversations."""
        while True:
            try:
                return await write()
            except DocumentExists as error:
                if not await self._remove_if_expired(error.conversation):
                    raise
