"""One transaction of one tenant, on SQLite or PostgreSQL.

The functions of this package are coroutines over it. PostgreSQL awaits its server in them; SQLite never waits, so one
`send` runs a coroutine to its end in the thread that has the connection. Statements have `?` for their values. On
PostgreSQL the tenant of `fold`, `pin`, `answer`, `lease` and `tombstone` is a default of the column and a row-level
policy; on SQLite these tables are found by the number of a conversation or by a hash of tenant and id.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

from minutebook.record.entry import ConversationEntry
from minutebook.store.codec import Packed
from minutebook.store.types import Conversation

Query: TypeAlias = tuple[str, tuple[Any, ...]]
"""A statement and its values."""
Span: TypeAlias = tuple[int, int, int]
"""The number of a conversation, and the positions from and up to which its entries are meant."""


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation with its place in the database."""

    number: int
    conversation: Conversation
    lineage: tuple[tuple[int, int], ...] = ()
    """For a fork: the number of the conversation that a stretch is read from, and where that stretch ends."""
    indexed: int = 0
    """The words of its entries before this position can be searched."""

    def spans(self, start: int, stop: int) -> list[Span]:
        """Where the entries of a range are stored."""
        found: list[Span] = []
        for number, end in (*self.lineage, (self.number, self.conversation.length)):
            until = min(end, stop)
            if start < until:
                found.append((number, start, until))
                start = until
        return found

    def span(self, position: int) -> Span:
        """Where the entry of one position is stored."""
        number = next((number for number, end in self.lineage if position < end), self.number)
        return number, position, position + 1

    @property
    def own(self) -> int:
        """The position of the first entry that is not read from another conversation."""
        return self.lineage[-1][1] if self.lineage else 0


class Again(Exception):
    """Another transaction made or erased the same thing at the same moment: this one has to be repeated."""


class TakesLong(Exception):
    """There are more entries to read than the caller's own thread should."""


class SqlTransaction(ABC):
    """Statements that any table takes, and the table of entries, whose rows differ between the databases."""

    FOR_UPDATE: ClassVar[str] = ""
    """The end of a SELECT whose rows nobody else changes before the transaction ends."""
    SKIP_LOCKED: ClassVar[str] = ""
    """The same for rows that nobody else has locked; the others are left out."""
    IN_ORDER: ClassVar[tuple[Query, ...]] = ()
    """What comes before a query that has to follow the order of an index."""
    ENTRY_KEY: ClassVar[str]
    """The column that orders the entries of a conversation; its low 32 bits are the position."""

    tenant: str
    most_entries: int | None = None
    """How many entries `load` may read here."""
    swept: MutableMapping[tuple[str, str], datetime]
    """Tenant and kind of document → when expired ones were last removed."""

    @abstractmethod
    async def rows_of(self, *queries: Query) -> list[list[Any]]:
        """The rows of each query, in one round trip."""

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        return (await self.rows_of((statement, values)))[0]

    @abstractmethod
    async def put(self, statement: str, *values: Any) -> int:
        """Change rows; return how many."""

    @abstractmethod
    async def put_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Change rows by one statement for each of some values; return how many rows in all."""

    @abstractmethod
    async def rows_locked(self, key: bytes, at: datetime, query: Query) -> tuple[list[Any], datetime]:
        """The rows of a query under the lock of a key, and the time by which leases go: `at`, or the database's own."""

    @abstractmethod
    def entry_range(self, span: Span) -> Query:
        """The condition on `entry` for a stretch, and its values."""

    @abstractmethod
    def entry_query(self, span: Span) -> Query:
        """The query for the entries of a stretch."""

    @abstractmethod
    async def unpack(self, answers: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        """The positions and entries of answers to `entry_query`."""

    @abstractmethod
    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        """Write entries of a conversation from a position on; `turns` is the number of user messages before them."""

    @abstractmethod
    async def replace_entry(self, row: ConversationRow, position: int, turns: int, packed: Packed) -> None:
        """Put an entry in the place of another, in the search index as well."""

    @abstractmethod
    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        """Delete some of a conversation's own entries, with their words in the search index."""

    @abstractmethod
    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        """Delete all entries of conversations that are erased, and what only this database has of them."""

    @abstractmethod
    async def index(self, row: ConversationRow, start: int, stop: int) -> None:
        """Add a range of a conversation's own entries to the search index."""
