"""What the memory store keeps beside the record: documents and leases; and the trimming of single entries."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from minutebook.errors import ConversationErased, ConversationNotFound, DocumentNotFound, StoreUnavailable
from minutebook.record.message import Message
from minutebook.store.base import Handle
from minutebook.store.book import Book
from minutebook.store.codec import unpack
from minutebook.store.cursor import cursor_of, place_of
from minutebook.store.documents import Document, NewDocument, PackedDocument, Verdict, has_expired, require_document
from minutebook.store.leases import Lease, end_of, kept_fence, require_lease, require_standing, stands
from minutebook.store.request import tombstone
from minutebook.store.rules import now, require_limit, require_name, require_position
from minutebook.store.trimming import trimmed
from minutebook.store.types import Page


@dataclass(slots=True)
class Shelf:
    """What all handles on one memory store share."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    books: dict[tuple[str, str], Book] = field(default_factory=dict)
    tombstones: set[bytes] = field(default_factory=set)
    documents: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    """Tenant, kind and id → the document; each book has its own, too."""
    leases: dict[bytes, Lease] = field(default_factory=dict)
    fences: Iterator[int] = field(default_factory=lambda: count(1))
    closed: bool = False


class MemoryDesk(Handle):
    """The part of a memory store that is not the record."""

    def __init__(
        self, *, tenant: str = "default", clock: Callable[[], datetime] = now, _shelf: Shelf | None = None
    ) -> None:
        super().__init__(tenant=tenant, clock=clock)
        self._shelf = _shelf or Shelf()

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there."""
        wanted = require_document(document)
        with self._open():
            book, at = self._book(conversation), self._now()
            return self._put(book, wanted, self._verdict(conversation, wanted, at), at)

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id."""
        with self._open():
            known = self._known(kind, document_id)
            if known is None or has_expired(known, self._now()):
                raise DocumentNotFound(kind, document_id)
            return known

    async def documents(
        self, conversation: str, kind: str, *, cursor: str | None = None, limit: int = 20, newest_first: bool = False
    ) -> Page[Document]:
        """The documents of a kind in a conversation, by their number."""
        require_name("kind", kind)
        require_limit(limit)
        after = place_of(cursor, int)
        with self._open():
            at = self._now()
            found = [one for one in self._book(conversation).documents.values() if one.kind == kind]
        found = [one for one in found if not has_expired(one, at)]
        found.sort(key=lambda one: one.number, reverse=newest_first)
        if after is not None:
            found = [one for one in found if (one.number < after[0] if newest_first else one.number > after[0])]
        return Page(tuple(found[:limit]), cursor_of(found[limit - 1].number) if len(found) > limit else None)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        with self._open():
            known = self._known(kind, document_id)
            if known is not None:
                self._forget(known)
            return known is not None and not has_expired(known, self._now())

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time."""
        require_lease(conversation, holder, seconds)
        with self._open():
            self._find(conversation)
            at, place = self._now(), tombstone(self.tenant, conversation)
            fence = kept_fence(self._shelf.leases.get(place), conversation, holder, at)
            fence = next(self._shelf.fences) if fence is None else fence
            made = self._shelf.leases[place] = Lease(conversation, holder, fence, end_of(at, seconds))
            return made

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on."""
        require_lease(lease.conversation, lease.holder, seconds)
        with self._open():
            self._find(lease.conversation)
            at = self._now()
            self._require_lease(lease, at)
            made = replace(lease, until=end_of(at, seconds))
            self._shelf.leases[tombstone(self.tenant, lease.conversation)] = made
            return made

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._open():
            self._release(lease)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones."""
        with self._open():
            book = self._book(conversation)
            made = {
                at: trimmed(book.entries[require_position(book.header, at)], message, at)
                for at, message in changes.items()
            }
            less = {at: unpack(one[0]) for at, one in made.items() if one is not None}
            book.entries.update(less)
            return len(less)

    def _known(self, kind: str, document_id: str) -> Document | None:
        require_name("kind", kind)
        require_name("document id", document_id)
        return self._shelf.documents.get((self.tenant, kind, document_id))

    def _verdict(self, conversation: str, wanted: PackedDocument, at: datetime) -> Verdict:
        return wanted.verdict(self._known(wanted.kind, wanted.id), conversation, at)

    def _put(self, book: Book, wanted: PackedDocument, verdict: Verdict, at: datetime) -> Document:
        """Do what was found to be right, and remove what has expired of that kind."""
        for old in [one for one in book.documents.values() if one.kind == wanted.kind and has_expired(one, at)]:
            self._forget(old)
        known = self._known(wanted.kind, wanted.id)
        if known is not None and verdict is Verdict.SAME:
            return known
        if known is not None and verdict is Verdict.REPLACE:
            made = wanted.stored(book.header.id, known.number, known.created_at)
        else:
            if known is not None:
                self._forget(known)
            book.documents_made += 1
            made = wanted.stored(book.header.id, book.documents_made, at)
        self._shelf.documents[self.tenant, made.kind, made.id] = book.documents[made.kind, made.id] = made
        return made

    def _forget(self, document: Document) -> None:
        del self._shelf.documents[self.tenant, document.kind, document.id]
        del self._shelf.books[self.tenant, document.conversation].documents[document.kind, document.id]

    def _erased(self, book: Book) -> None:
        """Forget what stands beside a record that is gone."""
        for kind, name in book.documents:
            del self._shelf.documents[self.tenant, kind, name]
        mark = tombstone(self.tenant, book.header.id)
        self._shelf.leases.pop(mark, None)
        self._shelf.tombstones.add(mark)

    def _sweep(self) -> None:
        """Forget what has expired."""
        at = self._now()
        mine = [one for (tenant, _, _), one in self._shelf.documents.items() if tenant == self.tenant]
        for one in mine:
            if has_expired(one, at):
                self._forget(one)
        self._shelf.leases = {place: one for place, one in self._shelf.leases.items() if at < one.until}

    def _release(self, lease: Lease | None) -> None:
        """Give a lease back, if there is one and it stands."""
        if lease is None:
            return
        place = tombstone(self.tenant, lease.conversation)
        if stands(self._shelf.leases.get(place), lease, self._now()):
            del self._shelf.leases[place]

    def _require_lease(self, lease: Lease, at: datetime) -> None:
        require_standing(self._shelf.leases.get(tombstone(self.tenant, lease.conversation)), lease, at)

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._shelf.lock:
            if self._shelf.closed:
                raise StoreUnavailable("memory:", "is closed")
            yield

    def _find(self, conversation: str) -> Book | None:
        require_name("conversation", conversation)
        if tombstone(self.tenant, conversation) in self._shelf.tombstones:
            raise ConversationErased(conversation)
        return self._shelf.books.get((self.tenant, conversation))

    def _book(self, conversation: str) -> Book:
        book = self._find(conversation)
        if book is None:
            raise ConversationNotFound(conversation)
        return book
