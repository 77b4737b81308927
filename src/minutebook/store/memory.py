"""Conversations in memory: every promise of a store but the one to survive the process."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self
from uuid import uuid4

from minutebook.errors import VersionConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.transcript import Broken
from minutebook.store.book import Book
from minutebook.store.codec import microseconds
from minutebook.store.cursor import cursor_of, place_of
from minutebook.store.documents import NewDocument
from minutebook.store.leases import Lease
from minutebook.store.memory_desk import MemoryDesk
from minutebook.store.request import require_append, require_status
from minutebook.store.rules import (
    created,
    labelled,
    require_labels,
    require_limit,
    require_name,
    require_part,
    require_recipient,
    require_target,
    require_version,
)
from minutebook.store.types import (
    Conversation,
    ConversationStatus,
    Hit,
    Loaded,
    Page,
    Receipt,
    StoredFold,
)
from minutebook.store.words import query_words, words


class MemoryStore(MemoryDesk):
    """Keeps conversations as long as it lives. For tests, trials, and services that need no more."""

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same store."""
        return type(self)(tenant=tenant, clock=self._clock, _shelf=self._shelf)

    async def append(
        self,
        conversation: str,
        entries: Sequence[ConversationEntry],
        *,
        recipient: str | None = None,
        labels: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        fingerprint: bytes | None = None,
        broken: Broken = "raise",
        documents: Sequence[NewDocument] = (),
        lease: Lease | None = None,
        release: bool = False,
    ) -> int:
        """Add entries at the end, all or none; return the new version."""
        request = require_append(
            *(conversation, entries, recipient, labels, expected_version, idempotency_key, fingerprint),
            *(documents, lease, release),
        )
        with self._open():
            at = self._now()
            book = self._find(conversation)
            known = book.answer(idempotency_key, request.digest) if book else None
            if known is not None:
                self._release(lease if release else None)
                return known
            if lease is not None:
                self._require_lease(lease, at)
            require_version(book.header if book else None, conversation, expected_version)
            if book is None:
                book = Book(created(self.tenant, conversation, recipient, labels or {}, at))
            require_recipient(book.header, recipient)
            verdicts = [self._verdict(conversation, one, at) for one in request.documents]
            book.append(request, broken=broken, at=at)
            if idempotency_key is not None:
                book.answers[idempotency_key] = (request.digest, book.header.version)
            self._shelf.books[self.tenant, conversation] = book
            for one, verdict in zip(request.documents, verdicts, strict=True):
                self._put(book, one, verdict, at)
            self._release(lease if release else None)
            return book.header.version

    async def header(self, conversation: str) -> Conversation:
        """What is known of a conversation without reading an entry."""
        with self._open():
            return self._book(conversation).header

    async def load(
        self,
        conversation: str,
        *,
        last_turns: int | None = None,
        last_messages: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        folded: bool = False,
    ) -> Loaded:
        """A part of a conversation."""
        require_part(last_turns, last_messages, since, limit)
        with self._open():
            return self._book(conversation).load(last_turns, last_messages, since, limit, folded=folded)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was."""
        with self._open():
            return tuple(self._book(conversation).folds)

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges."""
        with self._open():
            return self._book(conversation).add_fold(fold, replacing, self._now())

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away."""
        with self._open():
            return self._book(conversation).undo_fold(fold_id, self._now())

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        with self._open():
            self._book(conversation).pin(position)

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        with self._open():
            self._book(conversation).unpin(position)

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all."""
        with self._open():
            return self._book(conversation).purge(before)

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> Conversation:
        """A new conversation that begins with the entries before `at`."""
        require_name("conversation", new_id)
        with self._open():
            book = self._book(conversation)
            taken = self._find(new_id)
            if taken is not None:
                raise VersionConflict(new_id, taken.header.version, 0)
            made = book.fork(new_id, at, self._now())
            self._shelf.books[self.tenant, new_id] = made
            return made.header

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        """Say what the conversation is doing."""
        status = require_status(status)
        with self._open():
            book = self._book(conversation)
            book.header = replace(book.header, status=status, status_updated_at=self._now())
            return book.header

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        """Set some of its labels; None removes one."""
        require_labels(labels)
        with self._open():
            book = self._book(conversation)
            book.header = labelled(book.header, labels)
            return book.header

    async def list(
        self,
        *,
        recipient: str | None = None,
        status: ConversationStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Conversation]:
        """The conversations, newest first by the time they were made."""
        status = None if status is None else require_status(status)
        require_limit(limit)
        after = place_of(cursor, int, str)
        with self._open():
            found = [
                header
                for header in self._newest_first()
                if recipient in {None, header.recipient}
                and status in {None, header.status}
                and (after is None or _rank(header) > (-after[0], after[1]))
            ]
        more = len(found) > limit
        items = found[:limit]
        last = items[-1] if items else None
        return Page(tuple(items), cursor_of(microseconds(last.created_at), last.id) if more and last else None)

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[Hit]:
        """The entries whose text has every word of the query."""
        wanted = set(query_words(query))
        require_limit(limit)
        after = place_of(cursor, int, str, int)
        with self._open():
            if conversation is not None:
                headers = [self._book(conversation).header]
            else:
                headers = [header for header in self._newest_first() if recipient in {None, header.recipient}]
            hits = self._hits(headers, wanted, after, whole=conversation is not None)
            items = [hit for hit, _ in zip(hits, range(limit + 1), strict=False)]
        if len(items) <= limit:
            return Page(tuple(items), None)
        last = items[limit - 1]
        made = self._shelf.books[self.tenant, last.conversation].header.created_at
        return Page(tuple(items[:limit]), cursor_of(microseconds(made), last.conversation, last.position))

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> Receipt:
        """Remove a conversation, or all of a recipient's, and every fork made from them."""
        require_target(conversation, recipient)
        with self._open():
            books = [self._shelf.books.pop((self.tenant, name)) for name in self._reached(conversation, recipient)]
            for book in books:
                self._erased(book)
        return Receipt(
            str(uuid4()),
            self._now(),
            conversations=len(books),
            entries=sum(len(book.entries) for book in books),
            folds=sum(len(book.folds) for book in books),
            pins=sum(len(book.pins) for book in books),
        )

    async def vacuum(self) -> None:
        """Forget the documents that have expired: what was removed is gone anyway."""
        with self._open():
            self._sweep()

    async def close(self) -> None:
        """Forget everything."""
        with self._shelf.lock:
            self._shelf.closed = True
            self._shelf.books.clear()
            self._shelf.documents.clear()

    async def __aenter__(self) -> Self:
        with self._open():
            return self

    def _newest_first(self) -> Sequence[Conversation]:
        mine = (book.header for (tenant, _), book in self._shelf.books.items() if tenant == self.tenant)
        return sorted(mine, key=_rank)

    def _hits(
        self, headers: Sequence[Conversation], wanted: set[str], after: tuple[int, str, int] | None, *, whole: bool
    ) -> Iterator[Hit]:
        for header in headers:
            entries = self._shelf.books[self.tenant, header.id].entries
            own = 0 if whole or header.origin is None else header.origin.position
            for position in reversed(range(max(own, header.first), header.length)):
                passed = after is not None and (*_rank(header), -position) <= (-after[0], after[1], -after[2])
                if not passed and wanted <= words(entries[position].content or ""):
                    yield Hit(header.id, position, entries[position])

    def _reached(self, conversation: str | None, recipient: str | None) -> Sequence[str]:
        """The conversations that an erasure reaches: those named, and what was forked from them, and so on."""
        mine = [book.header for (tenant, _), book in self._shelf.books.items() if tenant == self.tenant]
        found = {header.id for header in mine if conversation == header.id or recipient == header.recipient}
        grew = True
        while grew:
            more = {header.id for header in mine if header.origin is not None and header.origin.conversation in found}
            grew = not more <= found
            found |= more
        return sorted(found)


def _rank(header: Conversation) -> tuple[int, str]:
    return -microseconds(header.created_at), header.id
