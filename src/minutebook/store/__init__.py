"""Stores: append-only conversations in memory, SQLite, PostgreSQL and Redis, optionally encrypted.

`base` has the store class, `backend` what it asks of a backend, `rules` what every backend checks, `url` opens a store. What a stored conversation is
used for is in `conversation`. Start with `base`, then `sqlite/store`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "encryption": ("encrypted",),
    "memory": ("MemoryStore",),
    "postgres.store": ("PostgresStore",),
    "base": ("ConversationStore",),
    "redis.store": ("RedisStore",),
    "sqlite.store": ("SqliteStore",),
    "types": (
        "Conversation",
        "ConversationStatus",
        "Document",
        "Hit",
        "Imported",
        "Lease",
        "Loaded",
        "NewDocument",
        "Origin",
        "Page",
        "Receipt",
        "StoredFold",
    ),
    "url": ("open_store",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
