"""Stores: append-only conversations in memory, SQLite, PostgreSQL and Redis, optionally encrypted.

`base` has the store class, `backend` the interface that each database implements, `rules` the checks that all backends
share, and `url` opens a store. Start with `base`, then `sqlite/store`. `minutebook.conversation` is built on stores.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "encryption": ("encrypted",),
    "encryption.store": ("EncryptedStore",),
    "memory": ("MemoryStore",),
    "postgres.store": ("PostgresStore",),
    "base": ("ConversationStore",),
    "redis.store": ("RedisStore",),
    "sqlite.store": ("SqliteStore",),
    "types": (
        "ConversationHeader",
        "ConversationStatus",
        "Document",
        "SearchHit",
        "ImportCounts",
        "Lease",
        "LeasedConversation",
        "LoadedConversation",
        "NewDocument",
        "ForkOrigin",
        "Page",
        "ErasureReceipt",
        "StoredFold",
        "StoreStatistics",
    ),
    "url": ("open_store",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
