"""One transaction of one tenant, on SQLite or PostgreSQL.

The functions of this package are coroutines that take a `SqlTransaction`. On PostgreSQL they await the server. On SQLite
they never suspend, so one `send` runs a coroutine to its end in the thread of the connection.

Statements have `?` for their values. The tables `fold`, `pin`, `idempotency_key`, `lease`, `tombstone` and `blocked_recipient` are not queried
by tenant: PostgreSQL adds it by a column default and a row-level policy, and on SQLite their keys (a conversation's number,
or a hash of tenant and id) are unique across tenants.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from minutebook.record.entry import ConversationEntry
from minutebook.store.codec import Packed
from minutebook.store.search import WORDS, IndexQuery
from minutebook.store.types import ConversationHeader

Query: TypeAlias = tuple[str, tuple[Any, ...]]
"""A statement and its values."""
KEY_SHIFT: Final = 32
"""Number of bits of the position in the key of an entry, which begins with its conversation's number. In the search index, a
fold has the position `FIRST_FOLD_POSITION` + its number."""


class EntrySpan(NamedTuple):
    """Where consecutive entries are stored."""

    number: int
    """The number of the conversation that stores them."""
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as the database stores it."""

    number: int
    """The primary key."""
    conversation: ConversationHeader
    lineage: tuple[tuple[int, int], ...] = ()
    """For a fork: (number, stop) of each conversation whose entries it reads, in order of position."""

    def spans(self, start: int, stop: int) -> list[EntrySpan]:
        """Where the entries of a range of positions are stored."""
        spans: list[EntrySpan] = []
        for number, source_stop in (*self.lineage, (self.number, self.conversation.length)):
            span_stop = min(source_stop, stop)
            if start < span_stop:
                spans.append(EntrySpan(number, start, span_stop))
                start = span_stop
        return spans

    def span(self, position: int) -> EntrySpan:
        """Where the entry at a position is stored."""
        number = next((number for number, stop in self.lineage if position < stop), self.number)
        return EntrySpan(number, position, position + 1)

    @property
    def own_start(self) -> int:
        """The position of the first entry that is stored in this conversation, not read from another."""
        return self.lineage[-1][1] if self.lineage else 0


class TransactionConflict(Exception):
    """A concurrent transaction created or erased the same row; the transaction must be retried."""


class TooManyEntries(Exception):
    """The query reads more than `SqlTransaction.max_entries`; it must run in another thread."""


class SqlTransaction(ABC):
    """Executes statements, and reads and writes entries, whose rows differ between the databases."""

    FOR_UPDATE: ClassVar[str] = ""
    """SQL at the end of a SELECT that locks its rows until the transaction ends."""
    SKIP_LOCKED: ClassVar[str] = ""
    """The same, but rows that another transaction has locked are left out."""
    BEFORE_ORDERED_QUERY: ClassVar[tuple[Query, ...]] = ()
    """Statements to run before a query that must read an index in its order."""
    ENTRY_KEY: ClassVar[str]
    """The column that orders the entries of a conversation; its low 32 bits are the position."""

    tenant: str
    max_entries: int | None = None
    """Maximum number of entries that `load` may read in this transaction; None for no limit."""
    last_document_sweep: MutableMapping[tuple[str, str], datetime]
    """(tenant, kind of document) → when expired documents were last removed."""

    @abstractmethod
    async def query(self, *queries: Query) -> list[list[Any]]:
        """The rows of each query, in one round trip."""

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        return (await self.query((statement, values)))[0]

    async def search_mode(self) -> str:
        """The database's setting `search`."""
        rows = await self.rows("SELECT value FROM setting WHERE name = 'search'")
        return str(rows[0][0]) if rows else WORDS

    @abstractmethod
    async def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement that changes rows; return the number of changed rows."""

    @abstractmethod
    async def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute a statement for each of these values; return the total number of changed rows."""

    async def lock_recipient(self, recipient: str) -> None:  # noqa: B027 - SQLite has one writer
        """Wait until no other transaction creates a conversation with a recipient, and let none begin to."""

    @abstractmethod
    def entry_condition(self, span: EntrySpan) -> Query:
        """The WHERE condition on table `entry` for a span, and its values."""

    @abstractmethod
    def entry_query(self, span: EntrySpan) -> Query:
        """The query for the entries of a span."""

    @abstractmethod
    async def unpack(self, results: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        """The positions and entries of the results of `entry_query`."""

    @abstractmethod
    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        """Insert entries from a position on, and index them; `turns` is the number of user messages before them."""

    @abstractmethod
    async def replace_entries(self, row: ConversationRow, replacements: Mapping[int, tuple[int, Packed]]) -> None:
        """Replace a conversation's own entries, in the search index too, in few round trips.

        Each position has the number of user messages up to it, and the new entry.
        """

    @abstractmethod
    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        """Delete a range of a conversation's own entries, from the search index too."""

    @abstractmethod
    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        """Delete all entries of erased conversations, and all rows of theirs in tables that only this database has."""

    @abstractmethod
    async def write_tokens(self, header: ConversationHeader, key: int, tokens: Sequence[str]) -> None:
        """Add the tokens of an entry or a fold, of which `key` is the key, to the search index."""

    @abstractmethod
    async def find_keys(self, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
        """The last keys before `stop` whose tokens match, from last to first, at most `limit` and none before `start`.

        An index may also return keys whose texts do not match. The caller compares the texts.
        """
