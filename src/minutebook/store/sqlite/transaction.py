"""A transaction on a SQLite database: nothing in it waits."""

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.store.codec import Packed
from minutebook.store.sql.transaction import ConversationRow, Query, Span, SqlTransaction
from minutebook.store.sqlite import search
from minutebook.store.sqlite.entries import READ, WRITE, delete, entry_rows, place, unpacked


@dataclass(slots=True, eq=False)
class SqliteTransaction(SqlTransaction):
    """What is done on one connection between a BEGIN and its end."""

    db: apsw.Connection
    tenant: str
    swept: MutableMapping[tuple[str, str], datetime] = field(default_factory=dict)
    most_entries: int | None = None

    ENTRY_KEY = "place"

    async def rows_of(self, *queries: Query) -> list[list[Any]]:
        return [self.db.execute(statement, values).fetchall() for statement, values in queries]

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        return self.db.execute(statement, values).fetchall()

    async def put(self, statement: str, *values: Any) -> int:
        self.db.execute(statement, values)
        return self.db.changes()

    async def put_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        before = self.db.total_changes()
        self.db.executemany(statement, rows)
        return self.db.total_changes() - before

    async def rows_locked(
        self,
        key: bytes,  # noqa: ARG002 - whoever writes has the database to itself
        at: datetime,
        query: Query,
    ) -> tuple[list[Any], datetime]:
        return await self.rows(query[0], *query[1]), at

    def entry_range(self, span: Span) -> Query:
        number, start, stop = span
        return "place >= ? AND place < ?", (place(number, start), place(number, stop))

    def entry_query(self, span: Span) -> Query:
        return READ, self.entry_range(span)[1]

    async def unpack(self, answers: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        return unpacked(self.db, chain.from_iterable(answers))

    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        self.db.executemany(WRITE, entry_rows(self.db, row, position, turns, packed, {}))

    async def replace_entry(self, row: ConversationRow, position: int, turns: int, packed: Packed) -> None:
        start, stop = place(row.number, position), place(row.number, position + 1)
        stretches = search.forget(self.db, start, stop)
        delete(self.db, start, stop)
        await self.write_entries(row, position, turns, [packed])
        search.index_again(self.db, stretches)

    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        """What shared a stretch of the search index with them is indexed anew."""
        self._delete(place(row.number, start), place(row.number, stop))

    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        for row in rows:
            self._delete(place(row.number, 0), place(row.number + 1, 0))
            self.db.execute("DELETE FROM unindexed WHERE conversation = ?", (row.number,))

    def _delete(self, start: int, stop: int) -> None:
        stretches = search.forget(self.db, start, stop)
        delete(self.db, start, stop)
        search.index_again(self.db, stretches)

    async def index(self, row: ConversationRow, start: int, stop: int) -> None:
        search.index(self.db, row.number, start, stop)
