from minutebook.store.base import (
    ConversationStore as ConversationStore,
)
from minutebook.store.encryption import (
    encrypted as encrypted,
)
from minutebook.store.memory import (
    MemoryStore as MemoryStore,
)
from minutebook.store.postgres.store import (
    PostgresStore as PostgresStore,
)
from minutebook.store.redis.store import (
    RedisStore as RedisStore,
)
from minutebook.store.sqlite.store import (
    SqliteStore as SqliteStore,
)
from minutebook.store.types import (
    Conversation as Conversation,
    ConversationStatus as ConversationStatus,
    Document as Document,
    Hit as Hit,
    Imported as Imported,
    Lease as Lease,
    Loaded as Loaded,
    NewDocument as NewDocument,
    Origin as Origin,
    Page as Page,
    Receipt as Receipt,
    StoredFold as StoredFold,
)
from minutebook.store.url import (
    open_store as open_store,
)

__all__ = [
    "Conversation",
    "ConversationStatus",
    "ConversationStore",
    "Document",
    "Hit",
    "Imported",
    "Lease",
    "Loaded",
    "MemoryStore",
    "NewDocument",
    "Origin",
    "Page",
    "PostgresStore",
    "Receipt",
    "RedisStore",
    "SqliteStore",
    "StoredFold",
    "encrypted",
    "open_store",
]
