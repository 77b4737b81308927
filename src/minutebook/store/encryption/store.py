"""A store that encrypts data before it writes it to another store, and decrypts the data that it reads from there."""

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary

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
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import Finding
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.base import ConversationStore
from minutebook.store.codec import pack
from minutebook.store.encryption import marker
from minutebook.store.encryption.cipher import (
    Cipher,
    MasterKeys,
    decrypted_document,
    decrypted_entry,
    decrypted_fold,
    encrypted_document,
    encrypted_entry,
    encrypted_fold,
)
from minutebook.store.encryption.keyring import KEY_LABEL, STORE_NAME, Keyring, data_key_id, require_no_key_label
from minutebook.store.encryption.lineage import Lineage, LineageCache
from minutebook.store.expiry import sum_of_receipts
from minutebook.store.rules import require_position, require_version, trimmed_entry
from minutebook.store.scan import scan
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
    StoreStatistics,
)
from minutebook.wire.chat import entry_to_provider_message

P = ParamSpec("P")
T = TypeVar("T")


class EncryptedBackend(Backend):
    """Encrypts the data that it writes to another backend, and decrypts the data that it reads from there."""

    def __init__(
        self,
        inner: Backend,
        key_store: ConversationStore,
        master_keys: MasterKeys,
        *,
        has_separate_key_store: bool | None = None,
    ) -> None:
        super().__init__(tenant=inner.tenant)
        self._inner = inner
        self._key_store = key_store
        self._has_separate_key_store = (
            key_store.backend is not inner if has_separate_key_store is None else has_separate_key_store
        )
        self._master_keys = master_keys
        inner.use_keys(master_keys.ids)
        self.keyring = Keyring(key_store, inner.tenant, master_keys)
        self._lineages = LineageCache(inner)
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    def for_tenant(self, tenant: str) -> Self:
        return self._with_inner(self._inner.for_tenant(tenant))

    def _with_inner(self, inner: Backend) -> Self:
        return type(self)(
            inner, self._key_store, self._master_keys, has_separate_key_store=self._has_separate_key_store
        )

    @property
    def expire_after(self) -> timedelta | None:  # type: ignore[override]
        return self._inner.expire_after

    def with_expiry(self, expire_after: timedelta | None) -> Self:
        return self._with_inner(self._inner.with_expiry(expire_after))

    def now(self) -> datetime:
        return self._inner.now()

    def set_clock(self, clock: Callable[[], datetime]) -> None:
        self._inner.set_clock(clock)

    def use_keys(self, key_ids: Sequence[str]) -> None:
        raise InvalidSetting("encryption key", key_ids[0], "no key, because the store is already encrypted")

    async def set_setting(self, name: str, value: str) -> None:
        await self._inner.set_setting(name, value)

    async def rotate(self, new_key: bytes) -> int:
        """Encrypt the tenant's data keys with another master key, and record it as that of the database."""
        count = await self.keyring.rotate(new_key)
        self._inner.use_keys(self._master_keys.ids)
        await self._inner.set_setting(marker.SETTING, self._master_keys.current_id)
        return count

    async def open(self) -> None:
        await self._inner.open()
        if self._has_separate_key_store:
            await self._key_store.backend.open()
        await self.keyring.check()

    async def close(self) -> None:
        await self._inner.close()
        if self._has_separate_key_store:
            await self._key_store.close()

    async def statistics(self) -> StoreStatistics:
        return await self._inner.statistics()

    async def vacuum(self, *, rewrite: bool = False) -> None:
        """Vacuum the store, and the store of the keys if it is a separate one."""
        await self._inner.vacuum(rewrite=rewrite)
        if self._has_separate_key_store:
            await self._key_store.vacuum(rewrite=rewrite)

    async def append(self, command: AppendCommand) -> int:
        """Append entries, encrypted for the positions at the end of the record. Retry if the record has grown meanwhile."""
        require_no_key_label(command.labels or {})
        async with self._lock(command.conversation):
            while True:
                try:
                    version = await self._append(command)
                except DocumentExists as error:  # the inner store cannot see that two ciphertexts have the same body
                    name = (error.kind, error.document_id)
                    conflicting = next(
                        document for document in command.documents if (document.kind, document.id) == name
                    )
                    if await self._find_same_document(command.conversation, conflicting) is None:
                        raise
                    other_documents = tuple(document for document in command.documents if document is not conflicting)
                    command = replace(command, documents=other_documents)
                    continue
                if version is not None:
                    return version

    async def _append(self, command: AppendCommand) -> int | None:
        """Append at the current end of the record; return None if it has grown meanwhile and a retry is necessary."""
        conversation, expected = command.conversation, command.expected_version
        header = await self._find(conversation)
        if header is None:
            require_version(None, conversation, expected)
            key_id, cipher = await self.keyring.find_or_create(command.recipient or conversation)
            inner_expected, position, labels = 0, 0, {**(command.labels or {}), KEY_LABEL: key_id}
        else:
            key_id, cipher = data_key_id(header), await self.keyring.cipher_of(header)
            # On a version mismatch, the inner store gets expected_version=0, which no existing conversation has. It then
            # returns the earlier version if the idempotency key is repeated, and otherwise raises VersionConflict.
            inner_expected = header.version if expected in {None, header.version} else 0
            position, labels = header.length, dict(command.labels or {})
        encrypted = replace(
            self._encrypted_command(command, cipher, position), labels=labels, expected_version=inner_expected
        )
        try:
            new_version = await self._inner.append(encrypted)
        except VersionConflict as error:
            if expected is None or (header is None and command.idempotency_key is not None):
                return None
            raise VersionConflict(conversation, error.actual, expected) from error
        except IdempotencyConflict:
            current_header = await self._find(conversation)
            if current_header is not None and data_key_id(current_header) != key_id:
                return None  # another process has created the conversation meanwhile, with another data key
            raise
        except BrokenConversation as error:
            raise BrokenConversation(
                [_with_decrypted_call_id(finding, cipher) for finding in error.findings], error.advice
            ) from error
        if header is None:
            await self._require_key(conversation, key_id)
        return new_version

    def _encrypted_command(self, command: AppendCommand, cipher: Cipher, start: int) -> AppendCommand:
        """The command with its entries encrypted for the positions from `start` on."""
        conversation = command.conversation
        pairs = [
            pack(encrypted_entry(cipher, packed, message, self.tenant, conversation, position))
            for position, (packed, message) in enumerate(zip(command.packed, command.messages, strict=True), start)
        ]
        documents = (encrypted_document(cipher, document, self.tenant, conversation) for document in command.documents)
        return replace(
            command,
            packed=tuple(packed for packed, _ in pairs),
            messages=tuple(message for _, message in pairs),
            digest=sha256(cipher.fingerprint(command.digest)).digest()[:16] if command.digest else b"",
            documents=tuple(documents),
        )

    async def header(self, conversation: str) -> ConversationHeader:
        return await self._decrypt_header(await self._inner.header(conversation))

    async def load(self, query: LoadQuery) -> LoadedConversation:
        loaded = await self._inner.load(query)
        header = loaded.conversation
        cipher, lineage = await self._cipher_and_lineage(header)
        entries = [
            self._decrypt_entry(header, cipher, lineage, entry, position)
            for position, entry in zip(loaded.positions, loaded.entries, strict=True)
        ]
        folds = tuple(self._decrypt_fold(header, cipher, lineage, fold) for fold in loaded.folds)
        return replace(loaded, conversation=await self._decrypt_header(header), entries=tuple(entries), folds=folds)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        header = await self._inner.header(conversation)
        return tuple(
            [await self._decrypt_stored_fold(header, stored) for stored in await self._inner.folds(conversation)]
        )

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        header = await self._inner.header(conversation)
        cipher, lineage = await self._cipher_and_lineage(header)
        encrypted = encrypted_fold(cipher, fold, self.tenant, lineage.root)
        return await self._decrypt_stored_fold(header, await self._inner.add_fold(conversation, encrypted, replacing))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        stored = await self._inner.undo_fold(conversation, fold_id)
        return await self._decrypt_stored_fold(await self._inner.header(conversation), stored)

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        await self._inner.set_pin(conversation, position, pinned=pinned)

    async def purge(self, conversation: str, before: int) -> int:
        return await self._inner.purge(conversation, before)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Trim messages. The changes are checked here, because the inner store cannot compare ciphertexts."""
        header = await self._inner.header(conversation)
        cipher, lineage = await self._cipher_and_lineage(header)
        encrypted_changes: dict[int, Message] = {}
        for position, message in changes.items():
            query = LoadQuery(conversation, since=require_position(header, position), limit=1)
            loaded = await self._inner.load(query)
            require_position(loaded.conversation, position)
            entry = self._decrypt_entry(header, cipher, lineage, loaded.entries[0], position)
            replacement = trimmed_entry(entry, message, position)
            if replacement is not None:
                original_conversation = lineage.conversation_at(position)
                encrypted = encrypted_entry(cipher, *replacement, self.tenant, original_conversation, position)
                encrypted_changes[position] = entry_to_provider_message(encrypted)
        return await self._inner.trim(conversation, encrypted_changes)

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        """Fork a conversation. The fork has the same data key."""
        return await self._decrypt_header(await self._inner.fork(conversation, new_id, at))

    async def rewind(self, conversation: str, to: int, expected_version: int | None, reason: str) -> ConversationHeader:
        return await self._decrypt_header(await self._inner.rewind(conversation, to, expected_version, reason))

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        return await self._decrypt_header(await self._inner.set_status(conversation, status))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        """Set labels. The maximum is one less than without encryption, because one label has the id of the data key."""
        require_no_key_label(labels)
        return await self._decrypt_header(await self._inner.set_labels(conversation, labels))

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        page = await self._inner.list(query)
        items: list[ConversationHeader] = []
        for header in page.items:
            with suppress(ConversationNotFound):  # the recipient was erased meanwhile
                items.append(await self._decrypt_header(header))
        return Page(tuple(items), page.cursor)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        return await scan(self, query, await self.search_mode())

    async def search_mode(self) -> str:
        return await self._inner.search_mode()

    async def erase(self, conversation: str | None, recipient: str | None, *, block: bool = False) -> ErasureReceipt:
        """Erase conversations. Erasing a recipient also destroys the data key."""
        first_receipt = await self._inner.erase(conversation, recipient, block=block)
        if recipient is None:
            return first_receipt
        await self.keyring.destroy(recipient)
        # Again, for conversations that were created after the first erasure with the key that is now destroyed.
        late_receipt = await self._inner.erase(None, recipient)
        return sum_of_receipts(first_receipt, late_receipt)

    async def readmit(self, recipient: str) -> bool:
        return await self._inner.readmit(recipient)

    async def expire(self) -> ErasureReceipt:
        return await self._inner.expire()

    async def remove_expired(self, conversation: str, before: datetime) -> ErasureReceipt:
        return await self._inner.remove_expired(conversation, before)

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        cipher = await self.keyring.cipher_of(await self._inner.header(conversation))
        encrypted = encrypted_document(cipher, document, self.tenant, conversation)
        try:
            stored = await self._inner.put_document(conversation, encrypted)
        except DocumentExists as error:
            existing = await self._find_same_document(conversation, document)
            if existing is None:
                raise error from None
            return existing
        return await self._decrypt_document(stored)

    async def document(self, kind: str, document_id: str) -> Document:
        try:
            return await self._decrypt_document(await self._inner.document(kind, document_id))
        except ConversationNotFound as error:  # the conversation was erased meanwhile
            raise DocumentNotFound(kind, document_id) from error

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        page = await self._inner.documents(query)
        return Page(tuple([await self._decrypt_document(document) for document in page.items]), page.cursor)

    async def requests_before(self, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
        page = await self._inner.requests_before(before, cursor, limit)
        documents: list[Document] = []
        for document in page.items:
            with suppress(ConversationNotFound):  # the conversation was erased meanwhile
                documents.append(await self._decrypt_document(document))
        return Page(tuple(documents), page.cursor)

    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        return await self._inner.delete_documents(kind, document_ids)

    async def acquire_lease(self, conversation: str, holder: str, seconds: float) -> Lease:
        return await self._inner.acquire_lease(conversation, holder, seconds)

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease | None]:
        return await self._inner.renew_leases(leases, seconds)

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
        """Erase a new conversation if its data key was destroyed while it was created."""
        try:
            await self.keyring.require_key(key_id)
        except ConversationNotFound as error:
            await self._inner.erase(conversation, None)
            raise ConversationErased(conversation) from error

    async def _find_same_document(self, conversation: str, document: PackedDocument) -> Document | None:
        """The existing document with the same kind and id, if it also has the same body."""
        try:
            existing = await self.document(document.kind, document.id)
            document.write_action(existing, conversation, self.now())  # raises DocumentExists if the bodies differ
        except (DocumentNotFound, DocumentExists):
            return None
        return existing

    def _lock(self, conversation: str) -> asyncio.Lock:
        """The lock for appends on this event loop, so that they do not encrypt for the same positions."""
        key = (id(asyncio.get_running_loop()), conversation)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def _cipher_and_lineage(self, header: ConversationHeader) -> tuple[Cipher, Lineage]:
        return await self.keyring.cipher_of(header), await self._lineages.find(header)

    async def _decrypt_header(self, header: ConversationHeader) -> ConversationHeader:
        """The header with plain call ids, and without the label of the data key."""
        labels = {name: value for name, value in header.labels.items() if name != KEY_LABEL}
        if not header.open_calls:
            return replace(header, labels=labels)
        cipher = await self.keyring.cipher_of(header)
        calls = tuple(self._decrypt(header, "a call", cipher.decrypt_call_id, call_id) for call_id in header.open_calls)
        return replace(header, labels=labels, open_calls=calls)

    def _decrypt_entry(
        self, header: ConversationHeader, cipher: Cipher, lineage: Lineage, entry: ConversationEntry, position: int
    ) -> ConversationEntry:
        original_conversation = lineage.conversation_at(position)
        return self._decrypt(
            header, f"entry {position}", decrypted_entry, cipher, entry, self.tenant, original_conversation, position
        )

    def _decrypt_fold(self, header: ConversationHeader, cipher: Cipher, lineage: Lineage, fold: Fold) -> Fold:
        return self._decrypt(header, f"fold {fold.id!r}", decrypted_fold, cipher, fold, self.tenant, lineage.root)

    async def _decrypt_stored_fold(self, header: ConversationHeader, stored: StoredFold) -> StoredFold:
        cipher, lineage = await self._cipher_and_lineage(header)
        return replace(stored, fold=self._decrypt_fold(header, cipher, lineage, stored.fold))

    async def _decrypt_document(self, document: Document) -> Document:
        header = await self._inner.header(document.conversation)
        cipher = await self.keyring.cipher_of(header)
        name = f"document {document.id!r} of kind {document.kind!r}"
        return self._decrypt(header, name, decrypted_document, cipher, document, self.tenant)

    def _decrypt(
        self, header: ConversationHeader, name: str, decrypt: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function that decrypts. `name` describes the data in the error.

        Raises:
            StoreDamaged: the data was changed, or moved here from elsewhere.
        """
        try:
            return decrypt(*args, **kwargs)
        except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
            problem = f"{name} of conversation {header.id!r} was changed, or moved here from elsewhere"
            raise StoreDamaged(STORE_NAME, problem) from error


def _with_decrypted_call_id(finding: Finding, cipher: Cipher) -> Finding:
    return replace(finding, call_id=cipher.decrypt_call_id(finding.call_id)) if finding.call_id else finding


class EncryptedStore(ConversationStore):
    """Encrypts conversations, and stores them in another store."""

    backend: EncryptedBackend
    inner: ConversationStore
    """The store with the encrypted conversations."""

    async def rotate(self, new_key: bytes) -> int:
        """Encrypt this tenant's data keys with another master key; return the number of data keys changed.

        First give the new key to all other processes that use the store, as `key` with the old one in `old_keys`. After
        the keys of every tenant are rotated, the old master key is no longer needed.
        """
        return await self.backend.rotate(new_key)
