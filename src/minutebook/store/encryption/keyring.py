"""The data keys of an encrypted store. They are stored in a store, each as the label of an empty conversation.

A store can already list the conversations of a recipient and erase them permanently. So a data key is the label of a
conversation with the recipient, under a tenant that is used for nothing else.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationErased, ConversationNotFound, InvalidSetting, StoreDamaged
from minutebook.store.base import ConversationStore
from minutebook.store.encryption.cipher import Cipher, DecryptionFailed, MasterKeys, new_data_key
from minutebook.store.types import KEY_TENANT_PREFIX, ConversationHeader

WRAPPED: Final = "wrapped"
"""The label with the encrypted data key."""
MASTER: Final = "master"
"""The label with the id of the master key that it is encrypted with."""
BATCH: Final = 200
"""Number of keys that are read at a time."""
MAX_CACHED: Final = 10_000
"""Maximum number of ciphers in the cache."""
STORE_NAME: Final = "encrypted store"
"""The name of the store in errors."""
KEY_LABEL: Final = "minutebook.key"
"""The label of a conversation with the id of the data key that it is encrypted with."""


def data_key_id(header: ConversationHeader) -> str:
    try:
        return header.labels[KEY_LABEL]
    except KeyError:
        raise StoreDamaged(STORE_NAME, f"conversation {header.id!r} was not written by an encrypted store") from None


def require_no_key_label(labels: Mapping[str, object]) -> None:
    if KEY_LABEL in labels:
        raise InvalidSetting("label", KEY_LABEL, "another name; encrypted stores use this label for the id of the key")


class Keyring:
    """The data keys of one tenant's recipients."""

    def __init__(self, store: ConversationStore, tenant: str, master_keys: MasterKeys) -> None:
        key_tenant = f"{KEY_TENANT_PREFIX}{sha256(tenant.encode()).hexdigest()[:32]}"
        self._store = store.for_tenant(key_tenant).with_expiry(None)  # nothing is appended to a key, so it would expire
        self._tenant = tenant
        self._master_keys = master_keys
        self._ciphers: dict[str, Cipher] = {}
        """A cache, by key id."""

    async def check(self) -> None:
        """Decrypt one of the data keys, if there are any.

        Raises:
            WrongKey: it is encrypted with another master key.
        """
        for header in (await self._store.list(limit=1)).items:
            self._data_key(header)

    async def find_or_create(self, recipient: str) -> tuple[str, Cipher]:
        """The id and cipher of the recipient's data key, which is created if there is none."""
        for header in (await self._store.list(recipient=recipient, limit=1)).items:
            return header.id, self._cipher(header)
        key_id, data_key = uuid4().hex, new_data_key()
        await self._store.append(
            key_id, [], recipient=recipient, labels=self._labels(data_key, recipient, key_id), expected_version=0
        )
        return key_id, self._cached_cipher(key_id, data_key)

    async def cipher(self, key_id: str) -> Cipher:
        """The cipher of a data key.

        Raises:
            ConversationErased: the key was destroyed.
        """
        return self._ciphers.get(key_id) or self._cipher(await self._store.header(key_id))

    async def cipher_of(self, header: ConversationHeader) -> Cipher:
        """The cipher of a conversation.

        Raises:
            ConversationErased: its data key was destroyed.
        """
        try:
            return await self.cipher(data_key_id(header))
        except ConversationNotFound as error:
            raise ConversationErased(header.id) from error

    async def require_key(self, key_id: str) -> None:
        """Raise `ConversationErased` if the key was destroyed."""
        await self._store.header(key_id)

    async def destroy(self, recipient: str) -> None:
        """Destroy all data keys of a recipient."""
        await self._store.erase(recipient=recipient)
        self._ciphers.clear()

    async def rotate(self, key: bytes) -> int:
        """Encrypt all data keys with this master key; return the number that were encrypted with another one."""
        self._master_keys.use(key)
        total = 0
        while count := await self._rewrap_all():  # again, until no key was added with the old master key meanwhile
            total += count
        return total

    async def _rewrap_all(self) -> int:
        count, cursor = 0, None
        while True:
            page = await self._store.list(cursor=cursor, limit=BATCH)
            for header in page.items:
                if header.labels.get(MASTER) != self._master_keys.current_id:
                    labels = self._labels(self._data_key(header), header.recipient, header.id)
                    with suppress(ConversationNotFound):  # destroyed in the meantime
                        await self._store.set_labels(header.id, labels)
                        count += 1
            cursor = page.cursor
            if cursor is None:
                return count

    def _labels(self, data_key: bytes, recipient: str, key_id: str) -> dict[str, str]:
        wrapped = self._master_keys.wrap(data_key, self._context(recipient, key_id))
        return {WRAPPED: wrapped, MASTER: self._master_keys.current_id}

    def _cipher(self, header: ConversationHeader) -> Cipher:
        return self._ciphers.get(header.id) or self._cached_cipher(header.id, self._data_key(header))

    def _data_key(self, header: ConversationHeader) -> bytes:
        wrapped, master_id = header.labels.get(WRAPPED, ""), header.labels.get(MASTER, "")
        try:
            return self._master_keys.unwrap(wrapped, master_id, self._context(header.recipient, header.id))
        except DecryptionFailed as error:
            raise StoreDamaged(STORE_NAME, f"data key {header.id} was changed") from error

    def _cached_cipher(self, key_id: str, data_key: bytes) -> Cipher:
        if len(self._ciphers) > MAX_CACHED:
            self._ciphers.clear()
        return self._ciphers.setdefault(key_id, Cipher(data_key))

    def _context(self, recipient: str, key_id: str) -> bytes:
        return json.dumps(["data key", self._tenant, recipient, key_id]).encode()
