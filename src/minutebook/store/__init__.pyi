from minutebook.store.base import (
    ConversationStore as ConversationStore,
)
from minutebook.store.encryption import (
    encrypted as encrypted,
)
from minutebook.store.encryption.store import (
    EncryptedStore as EncryptedStore,
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
    ConversationHeader as ConversationHeader,
    ConversationStatus as ConversationStatus,
    Document as Document,
    ErasureReceipt as ErasureReceipt,
    ForkOrigin as ForkOrigin,
    ImportCounts as ImportCounts,
    Lease as Lease,
    LeasedConversation as LeasedConversation,
    LoadedConversation as LoadedConversation,
    NewDocument as NewDocument,
    Page as Page,
    SearchHit as SearchHit,
    StoreStatistics as StoreStatistics,
    StoredFold as StoredFold,
)
from minutebook.store.url import (
    open_store as open_store,
)

__all__ = [
    "ConversationHeader",
    "ConversationStatus",
    "ConversationStore",
    "Document",
    "EncryptedStore",
    "ErasureReceipt",
    "ForkOrigin",
    "ImportCounts",
    "Lease",
    "LeasedConversation",
    "LoadedConversation",
    "MemoryStore",
    "NewDocument",
    "Page",
    "PostgresStore",
    "RedisStore",
    "SearchHit",
    "SqliteStore",
    "StoreStatistics",
    "StoredFold",
    "encrypted",
    "open_store",
]
