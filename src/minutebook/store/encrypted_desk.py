"""What an encrypted store keeps beside the record: documents, sealed, and leases; and the trimming of single entries."""

import asyncio
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary
from zlib import error

from minutebook.errors import ConversationNotFound, DocumentExists, DocumentNotFound, StoreDamaged
from minutebook.record.message import Message
from minutebook.store.base import Handle
from minutebook.store.cipher import Masters
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document, NewDocument, PackedDocument, require_document
from minutebook.store.encrypted_append import NAME, cipher_of
from minutebook.store.keyring import Keyring
from minutebook.store.leases import Lease
from minutebook.store.lineage import Lineage
from minutebook.store.rules import require_position
from minutebook.store.seal import opened_document, opened_entry, sealed_document, sealed_entry
from minutebook.store.trimming import trimmed
from minutebook.store.types import Conversation, Page
from minutebook.wire.chat import entry_to_provider_message

P = ParamSpec("P")
T = TypeVar("T")


class EncryptedDesk(Handle):
    """The part of an encrypted store that is not the record."""

    def __init__(self, store: ConversationStore, keys: ConversationStore, masters: Masters) -> None:
        super().__init__(tenant=store.tenant)
        self._store = store
        self._keys = keys
        self._masters = masters
        self._ring = Keyring(keys, store.tenant, masters)
        self._lineage = Lineage(store)
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there; its kind and id stay readable."""
        wanted = require_document(document)
        header = await self._store.header(conversation)
        cipher = await cipher_of(self._ring, header)
        try:
            kept = await self._store.put_document(
                conversation, sealed_document(cipher, wanted, self.tenant, conversation)
            )
        except DocumentExists as problem:
            known = await self._same(conversation, wanted)
            if known is None:
                raise problem from None
            return known
        return await self._opened_document(kept)

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id."""
        try:
            return await self._opened_document(await self._store.document(kind, document_id))
        except ConversationNotFound as problem:  # it was erased in the meantime
            raise DocumentNotFound(kind, document_id) from problem

    async def documents(
        self, conversation: str, kind: str, *, cursor: str | None = None, limit: int = 20, newest_first: bool = False
    ) -> Page[Document]:
        """The documents of a kind in a conversation, by their number."""
        page = await self._store.documents(conversation, kind, cursor=cursor, limit=limit, newest_first=newest_first)
        return Page(tuple([await self._opened_document(one) for one in page.items]), page.cursor)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        return await self._store.delete_document(kind, document_id)

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time; the holder's name stays readable."""
        return await self._store.acquire_lease(conversation, holder, seconds=seconds)

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on."""
        return await self._store.renew_lease(lease, seconds=seconds)

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        await self._store.release_lease(lease)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones. What may change is checked here, in the clear."""
        header = await self._store.header(conversation)
        cipher, line = await cipher_of(self._ring, header), await self._lineage.of(header)
        less: dict[int, Message] = {}
        for at, message in changes.items():
            part = await self._store.load(conversation, since=require_position(header, at), limit=1)
            require_position(part.conversation, at)
            home = line.home(at)
            entry = self._opened(header, f"entry {at}", opened_entry, cipher, part.entries[0], self.tenant, home, at)
            made = trimmed(entry, message, at)
            if made is not None:
                less[at] = entry_to_provider_message(sealed_entry(cipher, *made, self.tenant, home, at))
        return await self._store.trim(conversation, less)

    async def _same(self, conversation: str, wanted: PackedDocument) -> Document | None:
        """The document that is there already, if it says the same as the one that is wanted."""
        try:
            known = await self.document(wanted.kind, wanted.id)
            wanted.verdict(known, conversation, self._now())
        except (DocumentNotFound, DocumentExists):
            return None
        return known

    async def _opened_document(self, document: Document) -> Document:
        header = await self._store.header(document.conversation)
        cipher = await cipher_of(self._ring, header)
        what = f"document {document.id!r} of kind {document.kind!r}"
        return self._opened(header, what, opened_document, cipher, document, self.tenant)

    def _opened(self, header: Conversation, what: str, opened: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """What something opens to.

        Raises:
            StoreDamaged: it was changed, or moved here from another place.
        """
        try:
            return opened(*args, **more)
        except (ValueError, KeyError, TypeError, IndexError, error) as problem:
            damage = f"{what} of conversation {header.id!r} was changed, or moved here from another place"
            raise StoreDamaged(NAME, damage) from problem
