"""Encrypts an existing SQLite database in place, conversation by conversation.

A conversation that is encrypted has the label of its data key, so an interrupted encryption continues where it stopped.
Until the encryption is complete, the database can be opened for nothing else. Processes that have it open must be stopped
before.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from minutebook.store.codec import compress_document, decompress, fold_from_bytes, fold_to_bytes, pack
from minutebook.store.encryption import marker
from minutebook.store.encryption.cipher import Cipher, MasterKeys, encrypted_document, encrypted_entry, encrypted_fold
from minutebook.store.encryption.keyring import KEY_LABEL, Keyring
from minutebook.store.encryption.lineage import Lineage, LineageCache
from minutebook.store.sql import entries, headers
from minutebook.store.sql.headers import json_of
from minutebook.store.sql.transaction import ConversationRow, EntrySpan, SqlTransaction
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.types import KEY_TENANT_PREFIX, PackedDocument

BATCH: Final = 500
"""Number of entries that are read at a time."""


async def encrypt_in_place(store: SqliteStore, key: bytes, advance: Callable[[int], object]) -> int:
    """Encrypt all conversations of a database, which must not be open yet; return how many were encrypted now.

    `advance` is called with the number of entries of each. The search index is deleted, and the file is rewritten, so that
    no plaintext is left in it.

    Raises:
        WrongKey: its encryption was started with another key.
        StoreUnavailable: another process reads the database, so plaintext could not be removed from the file.
    """
    master_keys = MasterKeys(key)
    store.settings.key_ids, store.settings.resumes_encryption = master_keys.ids, True
    backend = store.sqlite_backend
    await backend.open()
    recorded_value, tenants = await backend.read(_read_state)
    count = 0
    for tenant in tenants:
        tenant_backend = backend.for_tenant(tenant)
        keyring, lineages = Keyring(store, tenant, master_keys), LineageCache(tenant_backend)
        for conversation in await tenant_backend.read(_plain_conversations):
            header = await tenant_backend.header(conversation)
            key_id, cipher = await keyring.find_or_create(header.recipient)
            encryption = _ConversationEncryption(conversation, key_id, cipher, await lineages.find(header))
            advance(await tenant_backend.write(encryption.run))
            count += 1
    if recorded_value != master_keys.current_id:
        await backend.write(_delete_index)
        await backend.vacuum(rewrite=True)
        await backend.set_setting(marker.SETTING, master_keys.current_id)
    return count


async def _read_state(tx: SqlTransaction) -> tuple[str, list[str]]:
    """The recorded state of the encryption, and the tenants whose conversations are to be encrypted."""
    recorded = await tx.rows("SELECT value FROM setting WHERE name = ?", marker.SETTING)
    tenants = await tx.rows("SELECT DISTINCT tenant FROM conversation ORDER BY tenant")
    return recorded[0][0], [tenant for (tenant,) in tenants if not tenant.startswith(KEY_TENANT_PREFIX)]


async def _plain_conversations(tx: SqlTransaction) -> list[str]:
    """The ids of the tenant's conversations that are not encrypted yet, origins before their forks."""
    rows = await tx.rows(f"{headers.SELECT} ORDER BY number", tx.tenant)
    all_headers = (headers.row_of(row).conversation for row in rows)
    return [header.id for header in all_headers if KEY_LABEL not in header.labels]


async def _delete_index(tx: SqlTransaction) -> None:
    await tx.execute("INSERT INTO word (word) VALUES ('delete-all')")


class _ConversationEncryption:
    """Encrypts one conversation in one transaction, as `EncryptedBackend` would have written it."""

    def __init__(self, conversation: str, key_id: str, cipher: Cipher, lineage: Lineage) -> None:
        self._conversation = conversation
        self._key_id = key_id
        self._cipher = cipher
        self._lineage = lineage

    async def run(self, tx: SqlTransaction) -> int:
        """Encrypt it; return the number of its entries."""
        row = await headers.get(tx, self._conversation, lock=True)
        header = row.conversation
        for start in range(0, header.length, BATCH):
            await self._encrypt_entries(tx, row, start, min(start + BATCH, header.length))
        await self._encrypt_folds(tx, row)
        await self._encrypt_documents(tx, row)
        for key, digest in await tx.rows("SELECT key, digest FROM idempotency_key WHERE conversation = ?", row.number):
            fingerprint = sha256(self._cipher.fingerprint(digest)).digest()[:16]
            update = "UPDATE idempotency_key SET digest = ? WHERE conversation = ? AND key = ?"
            await tx.execute(update, fingerprint, row.number, key)
        labels = json_of({**header.labels, KEY_LABEL: self._key_id})
        calls = json_of(tuple(map(self._cipher.encrypt_call_id, header.open_calls)))
        await tx.execute(
            "UPDATE conversation SET labels = ?, open_calls = ? WHERE number = ?", labels, calls, row.number
        )
        return header.length

    async def _encrypt_entries(self, tx: SqlTransaction, row: ConversationRow, start: int, stop: int) -> None:
        """Encrypt the entries that this conversation stores, including purged ones that its forks still read."""
        span = EntrySpan(row.number, start, stop)
        where, values = tx.entry_condition(span)
        turns = await tx.rows(f"SELECT turn FROM entry WHERE {where} ORDER BY {tx.ENTRY_KEY}", *values)  # noqa: S608 - constants
        positions, stored_entries = await entries.read(tx, [span])
        replacements = {}
        for position, entry, (turn,) in zip(positions, stored_entries, turns, strict=True):
            origin = self._lineage.conversation_at(position)
            encrypted = encrypted_entry(self._cipher, *pack(entry), tx.tenant, origin, position)
            replacements[position] = (turn, pack(encrypted)[0])
        await tx.replace_entries(row, replacements)

    async def _encrypt_folds(self, tx: SqlTransaction, row: ConversationRow) -> None:
        query = "SELECT number, id, start, stop, body FROM fold WHERE conversation = ?"
        for number, fold_id, start, stop, body in await tx.rows(query, row.number):
            fold = fold_from_bytes(fold_id, start, stop, body)
            encrypted = fold_to_bytes(encrypted_fold(self._cipher, fold, tx.tenant, self._lineage.root))
            update = "UPDATE fold SET body = ? WHERE conversation = ? AND number = ?"
            await tx.execute(update, encrypted, row.number, number)

    async def _encrypt_documents(self, tx: SqlTransaction, row: ConversationRow) -> None:
        query = "SELECT kind, id, hash, body FROM document WHERE conversation = ?"
        for kind, document_id, key, body in await tx.rows(query, row.number):
            document = PackedDocument(kind, document_id, decompress(body), None, replace=True)
            encrypted = encrypted_document(self._cipher, document, tx.tenant, self._conversation)
            update = "UPDATE document SET body = ? WHERE tenant = ? AND hash = ?"
            await tx.execute(update, compress_document(encrypted.body), tx.tenant, key)
