"""Encryption for any store: `encrypted(store, key)`.

Entries, the messages and reasons of folds, and the bodies of documents are encrypted with AES-256-GCM and a data key of the
recipient. Each ciphertext is bound to its position: moved elsewhere, it cannot be decrypted. The master key only encrypts
the data keys, so it can be changed without rewriting the data.

The data that the store itself needs is not encrypted: the ids of tenants, recipients, conversations and folds; labels,
statuses, the times of headers; the role and approximate size of each entry, which result belongs to which call, the ranges
of folds, and pins; kinds, ids, expiry times and approximate sizes of documents; the holders of leases. The application
chooses fold ids, labels, kinds and ids: do not put secrets into them.

Erasing a recipient destroys the data key. With `keys`, data keys are in a separate store. Only then are the recipient's
conversations in a backup of the first store unreadable after the erasure. Erasing a single conversation does not destroy
the key.

A search decrypts all entries that it reads, because an index of words would reveal them. An export is not encrypted.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from minutebook.errors import MissingExtra
from minutebook.store.base import ConversationStore

if TYPE_CHECKING:
    from minutebook.store.encryption.store import EncryptedStore


def encrypted(
    store: ConversationStore,
    key: bytes,
    *,
    old_keys: Iterable[bytes] = (),
    keys: ConversationStore | None = None,
) -> "EncryptedStore":
    """A store that encrypts its data and stores it in another one.

    `key` is the master key, 32 random bytes. `old_keys` are earlier master keys, for data keys that are still encrypted with
    them. Data keys are stored in `keys`, by default in the store itself. Closing the store closes both.

    Raises:
        MissingExtra: `cryptography` is not installed.
        InvalidSetting: a key is not 32 bytes.
    """
    try:
        from minutebook.store.encryption.cipher import MasterKeys
        from minutebook.store.encryption.store import EncryptedBackend, EncryptedStore
    except ModuleNotFoundError as error:
        raise MissingExtra("cryptography", "encryption") from error
    encrypted_store = EncryptedStore(EncryptedBackend(store.backend, keys or store, MasterKeys(key, old_keys)))
    encrypted_store.inner = store
    return encrypted_store
