"""A backend that seals what goes to another one and opens what comes from there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary
from zlib import error

from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    IdempotencyConflict,
    InvalidSetting,
    StoreDamaged,
    VersionConflict,
)
from minutebook.record.finding import Finding
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import pack
from minutebook.store.encryption.cipher import (
    Cipher,
    Masters,
    opened_document,
    opened_entry,
    opened_fold,
    sealed_document,
    sealed_entry,
    sealed_fold,
)
from minutebook.store.encryption.keyring import Keyring
from minutebook.store.rules import require_position, require_version, trimmed_entry
from minutebook.store.search import scan
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    Document,
    ErasureReceipt,
    Lease,
    LoadedConversation,
    PackedDocument,
    Page,
    SearchHit,
    StoredFold,
)
from minutebook.wire.chat import entry_to_provider_message

P = ParamSpec("P")
T = TypeVar("T")
NAME: Final = "encrypted store"
KEY_LABEL: Final = "minutebook.key"
"""The label that says which data key a conversation is encrypted with."""


async def cipher_of(ring: Keyring, header: ConversationHeader) -> Cipher:
    """What opens a conversation.

    Raises:
        ConversationErased: the key was destroyed.
    """
    try:
        return await ring.cipher(key_of(header))
    except ConversationNotFound as problem:
        raise ConversationErased(header.id) from problem


def key_of(header: ConversationHeader) -> str:
    """The id of the data key."""
    try:
        return header.labels[KEY_LABEL]
    except KeyError:
        raise StoreDamaged(NAME, f"conversation {header.id!r} was not written by an encrypted store") from None


def require_free_labels(labels: Mapping[str, object]) -> None:
    """Raises `InvalidSetting` if one of them is ours."""
    if KEY_LABEL in labels:
        raise InvalidSetting("label", KEY_LABEL, "another name: that one says which key a conversation has")


def _in_the_clear(finding: Finding, cipher: Cipher) -> Finding:
    """A finding that names the call as its maker knows it."""
    return replace(finding, call_id=cipher.call_id(finding.call_id)) if finding.call_id else finding


MOST_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """A conversation and what it was forked from."""

    root: str
    """The first of them all."""
    stretches: tuple[tuple[int, str], ...]
    """Up to which position, in which conversation; the oldest first."""
    own: str

    def home(self, position: int) -> str:
        """The conversation in which an entry was said."""
        return next((name for stop, name in self.stretches if position < stop), self.own)


class Lineage:
    """Finds lines by walking up from fork to origin. They never change, so each is walked once."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._known: dict[tuple[str, datetime], Line] = {}

    async def of(self, header: ConversationHeader) -> Line:
        if header.origin is None:
            return Line(header.id, (), header.id)
        name = (header.id, header.created_at)
        known = self._known.get(name)
        if known is None:
            origin, cut = await self._inner.header(header.origin.conversation), header.origin.position
            above = await self.of(origin)
            shared = [(min(stop, cut), where) for stop, where in (*above.stretches, (cut, origin.id))]
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[name] = Line(above.root, tuple(shared), header.id)
        return known


class EncryptedBackend(Backend):
    """Seals what goes to another backend and opens what comes from there."""

    def __init__(self, inner: Backend, keys: ConversationStore, masters: Masters) -> None:
        super().__init__(tenant=inner.tenant)
        self._inner = inner
        self._keys = keys
        self._keys_apart = keys.backend is not inner
        self._masters = masters
        self.ring = Keyring(keys, inner.tenant, masters)
        self._lineage = Lineage(inner)
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    def for_tenant(self, tenant: str) -> Self:
        """Its data keys are others."""
        return type(self)(self._inner.for_tenant(tenant), self._keys, self._masters)

    def now(self) -> datetime:
        return self._inner.now()

    async def open(self) -> None:
        await self._inner.open()
        if self._keys_apart:
            await self._keys.backend.open()
        try:
            await self.ring.check()
        except BaseException:
            await self.close()  # whom nobody entered, nobody leaves
            raise

    async def close(self) -> None:
        await self._inner.close()
        if self._keys_apart:
            await self._keys.close()

    async def vacuum(self) -> None:
        """Leave no trace of what was removed, nor of destroyed keys."""
        await self._inner.vacuum()
        if self._keys_apart:
            await self._keys.vacuum()

    async def append(self, command: AppendCommand) -> int:
        """Sealed for the place where the record ends, and again if it no longer ends there."""
        require_free_labels(command.labels or {})
        async with self._lock(command.conversation):
            while True:
                try:
                    version = await self._append(command)
                except DocumentExists as problem:  # the same, sealed twice, looks different to the store
                    name = (problem.kind, problem.document_id)
                    known = next(one for one in command.documents if (one.kind, one.id) == name)
                    if await self._same(command.conversation, known) is None:
                        raise
                    command = replace(command, documents=tuple(one for one in command.documents if one is not known))
                    continue
                if version is not None:
                    return version

    async def _append(self, command: AppendCommand) -> int | None:
        """Append where the record ends now; None if somebody else was faster, and it is to be tried again."""
        name, expected = command.conversation, command.expected_version
        header = await self._find(name)
        if header is None:
            require_version(None, name, expected)
            key_id, cipher = await self.ring.for_recipient(command.recipient or name)
            version, position, labels = 0, 0, {**(command.labels or {}), KEY_LABEL: key_id}
        else:
            key_id, cipher = key_of(header), await cipher_of(self.ring, header)
            # 0 cannot be its version: what is not at the caller's is answered if the key is known, and refused if not.
            version = header.version if expected in {None, header.version} else 0
            position, labels = header.length, dict(command.labels or {})
        sealed = replace(self._sealed(command, cipher, position), labels=labels, expected_version=version)
        try:
            answer = await self._inner.append(sealed)
        except VersionConflict as problem:
            if expected is None or (header is None and command.idempotency_key is not None):
                return None
            raise VersionConflict(name, problem.actual, expected) from problem
        except IdempotencyConflict:
            now = await self._find(name)
            if now is not None and key_of(now) != key_id:
                return None  # it was made in the meantime, with another data key
            raise
        except BrokenConversation as problem:
            raise BrokenConversation([_in_the_clear(one, cipher) for one in problem.findings]) from problem
        if header is None:
            await self._require_key(name, key_id)
        return answer

    def _sealed(self, command: AppendCommand, cipher: Cipher, position: int) -> AppendCommand:
        """The command for entries that begin at a position."""
        name = command.conversation
        pairs = [
            pack(sealed_entry(cipher, packed, message, self.tenant, name, at))
            for at, (packed, message) in enumerate(zip(command.packed, command.messages, strict=True), position)
        ]
        return replace(
            command,
            packed=tuple(packed for packed, _ in pairs),
            messages=tuple(message for _, message in pairs),
            digest=sha256(cipher.fingerprint(command.digest)).digest()[:16] if command.digest else b"",
            documents=tuple(sealed_document(cipher, one, self.tenant, name) for one in command.documents),
        )

    async def header(self, conversation: str) -> ConversationHeader:
        return await self._shown(await self._inner.header(conversation))

    async def load(self, query: LoadQuery) -> LoadedConversation:
        part = await self._inner.load(query)
        header = part.conversation
        cipher, line = await self._reader(header)
        entries = [
            self._opened(header, f"entry {at}", opened_entry, cipher, entry, self.tenant, line.home(at), at)
            for at, entry in zip(part.positions, part.entries, strict=True)
        ]
        folds = tuple(self._opened_fold(header, cipher, fold, line) for fold in part.folds)
        return replace(part, conversation=await self._shown(header), entries=tuple(entries), folds=folds)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        header = await self._inner.header(conversation)
        return tuple([await self._opened_stored(header, one) for one in await self._inner.folds(conversation)])

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        header = await self._inner.header(conversation)
        cipher, line = await self._reader(header)
        sealed = sealed_fold(cipher, fold, self.tenant, line.root)
        return await self._opened_stored(header, await self._inner.add_fold(conversation, sealed, replacing))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        stored = await self._inner.undo_fold(conversation, fold_id)
        return await self._opened_stored(await self._inner.header(conversation), stored)

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        await self._inner.set_pin(conversation, position, pinned=pinned)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._inner.purge(conversation, before)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """What may change is checked here, in the clear."""
        header = await self._inner.header(conversation)
        cipher, line = await self._reader(header)
        less: dict[int, Message] = {}
        for at, message in changes.items():
            part = await self._inner.load(LoadQuery(conversation, since=require_position(header, at), limit=1))
            require_position(part.conversation, at)
            home = line.home(at)
            entry = self._opened(header, f"entry {at}", opened_entry, cipher, part.entries[0], self.tenant, home, at)
            made = trimmed_entry(entry, message, at)
            if made is not None:
                less[at] = entry_to_provider_message(sealed_entry(cipher, *made, self.tenant, home, at))
        return await self._inner.trim(conversation, less)

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        """It has the same data key."""
        return await self._shown(await self._inner.fork(conversation, new_id, at))

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        return await self._shown(await self._inner.set_status(conversation, status))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        """There is room for one less than without encryption."""
        require_free_labels(labels)
        return await self._shown(await self._inner.set_labels(conversation, labels))

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        page = await self._inner.list(query)
        items: list[ConversationHeader] = []
        for header in page.items:
            with suppress(ConversationNotFound):  # its recipient was just erased
                items.append(await self._shown(header))
        return Page(tuple(items), page.cursor)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        """It decrypts what it reads."""
        return await scan(self, query)

    async def erase(self, conversation: str | None, recipient: str | None) -> ErasureReceipt:
        """A recipient's data key goes with the conversations."""
        first = await self._inner.erase(conversation, recipient)
        if recipient is None:
            return first
        await self.ring.destroy(recipient)
        # Whoever began a conversation while the key was going has one that cannot be read: it goes, too.
        late = await self._inner.erase(None, recipient)
        return replace(
            first,
            conversations=first.conversations + late.conversations,
            entries=first.entries + late.entries,
            folds=first.folds + late.folds,
            pins=first.pins + late.pins,
        )

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        """Its kind and id stay readable."""
        cipher = await cipher_of(self.ring, await self._inner.header(conversation))
        try:
            kept = await self._inner.put_document(
                conversation, sealed_document(cipher, document, self.tenant, conversation)
            )
        except DocumentExists as problem:
            known = await self._same(conversation, document)
            if known is None:
                raise problem from None
            return known
        return await self._opened_document(kept)

    async def document(self, kind: str, document_id: str) -> Document:
        try:
            return await self._opened_document(await self._inner.document(kind, document_id))
        except ConversationNotFound as problem:  # it was erased in the meantime
            raise DocumentNotFound(kind, document_id) from problem

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        page = await self._inner.documents(query)
        return Page(tuple([await self._opened_document(one) for one in page.items]), page.cursor)

    async def delete_document(self, kind: str, document_id: str) -> bool:
        return await self._inner.delete_document(kind, document_id)

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        """The holder's name stays readable."""
        return await self._inner.acquire_lease(conversation, holder, seconds)

    async def renew_lease(self, lease: Lease, seconds: float) -> Lease:
        return await self._inner.renew_lease(lease, seconds)

    async def release_lease(self, lease: Lease) -> None:
        await self._inner.release_lease(lease)

    async def _find(self, conversation: str) -> ConversationHeader | None:
        try:
            return await self._inner.header(conversation)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None

    async def _require_key(self, conversation: str, key_id: str) -> None:
        """Make sure that the key outlived the making of a conversation: its recipient may just have been erased."""
        try:
            await self.ring.require(key_id)
        except ConversationNotFound as problem:
            await self._inner.erase(conversation, None)
            raise ConversationErased(conversation) from problem

    async def _same(self, conversation: str, wanted: PackedDocument) -> Document | None:
        """The document that is there already, if it says the same as the one that is wanted."""
        try:
            known = await self.document(wanted.kind, wanted.id)
            wanted.verdict(known, conversation, self.now())
        except (DocumentNotFound, DocumentExists):
            return None
        return known

    def _lock(self, conversation: str) -> asyncio.Lock:
        """Who appends on this loop takes turns, so that they do not outrun each other's positions."""
        name = (id(asyncio.get_running_loop()), conversation)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _reader(self, header: ConversationHeader) -> tuple[Cipher, Line]:
        return await cipher_of(self.ring, header), await self._lineage.of(header)

    async def _shown(self, header: ConversationHeader) -> ConversationHeader:
        """A header as its owner knows it."""
        labels = {name: value for name, value in header.labels.items() if name != KEY_LABEL}
        if not header.open_calls:
            return replace(header, labels=labels)
        cipher = await cipher_of(self.ring, header)
        calls = tuple(self._opened(header, "a call", cipher.call_id, token) for token in header.open_calls)
        return replace(header, labels=labels, open_calls=calls)

    def _opened_fold(self, header: ConversationHeader, cipher: Cipher, fold: Fold, line: Line) -> Fold:
        return self._opened(header, f"fold {fold.id!r}", opened_fold, cipher, fold, self.tenant, line.root)

    async def _opened_stored(self, header: ConversationHeader, stored: StoredFold) -> StoredFold:
        cipher, line = await self._reader(header)
        return replace(stored, fold=self._opened_fold(header, cipher, stored.fold, line))

    async def _opened_document(self, document: Document) -> Document:
        header = await self._inner.header(document.conversation)
        cipher = await cipher_of(self.ring, header)
        what = f"document {document.id!r} of kind {document.kind!r}"
        return self._opened(header, what, opened_document, cipher, document, self.tenant)

    def _opened(
        self, header: ConversationHeader, what: str, opened: Callable[P, T], *args: P.args, **more: P.kwargs
    ) -> T:
        """What something opens to.

        Raises:
            StoreDamaged: it was changed, or moved here from another place.
        """
        try:
            return opened(*args, **more)
        except (ValueError, KeyError, TypeError, IndexError, error) as problem:
            damage = f"{what} of conversation {header.id!r} was changed, or moved here from another place"
            raise StoreDamaged(NAME, damage) from problem


class EncryptedStore(ConversationStore):
    """Hands another store what nobody can read there."""

    backend: EncryptedBackend

    async def rotate(self, new_key: bytes) -> int:
        """Wrap this tenant's data keys with another master key; return how many were wrapped anew.

        Others that use the store must know the new key by then: give it to them as `key`, with the old one in `old_keys`.
        Afterwards the old one is needed no more, once it was done for every tenant.
        """
        return await self.backend.ring.rotate(new_key)
