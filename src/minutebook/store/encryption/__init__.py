"""Any store, with what was said encrypted: `encrypted(store, key)`.

Texts, tool calls and their ids, what folds show and why, the bodies of documents, times, models and all else that an entry holds are encrypted by
AES-256-GCM with a data key of the recipient's, for the one place where they stand: moved elsewhere, they cannot be read.
The master key wraps the data keys and nothing else, so it can be changed without touching what was written.

Visible stays what the store works with: the ids of tenants, recipients, conversations and folds, labels, statuses, the times
of headers, the role of each entry and about how long it is, which calls belong to which results, what folds cover, and
pins; kinds and ids of documents, when they expire and about how long they are; who holds a lease. Fold ids, labels, kinds
and ids are the owner's own words: put nothing into them that must stay secret.

Erasing a recipient destroys the data key. With `keys`, another store, data keys are kept apart from what they open; only then
is a backup of the first store unreadable once the recipient is erased. Erasing a single conversation leaves the key.

A search decrypts what it reads and costs as much; there is no index that others could read. An export is in the clear.
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
    """A store that encrypts what it hands to another.

    `key` is the master key, 32 random bytes. `old_keys` open what is still wrapped by them. Data keys are kept in `keys`,
    or in the store itself. Closing it closes both.

    Raises:
        MissingExtra: `cryptography` is not installed.
        InvalidSetting: a key is not 32 bytes.
    """
    try:
        from minutebook.store.encryption.cipher import Masters
        from minutebook.store.encryption.store import EncryptedBackend, EncryptedStore
    except ModuleNotFoundError as problem:
        raise MissingExtra("cryptography", "encryption") from problem
    return EncryptedStore(EncryptedBackend(store.backend, keys or store, Masters(key, old_keys)))
