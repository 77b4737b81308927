"""A transaction on a SQLite database. Its coroutines never suspend."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.codec import Packed, unpack
from minutebook.store.search import IndexQuery, message_tokens
from minutebook.store.sql.transaction import ConversationRow, EntrySpan, Query, SqlTransaction
from minutebook.store.sqlite import search
from minutebook.store.sqlite.entries import INSERT, SELECT, delete, entry_key, entry_rows, unpack_rows
from minutebook.store.types import ConversationHeader
from minutebook.wire.chat import entry_to_provider_message


@dataclass(slots=True, eq=False)
class SqliteTransaction(SqlTransaction):
    """The statements between a BEGIN and its COMMIT on one connection, and the entries as SQLite stores them."""

    db: apsw.Connection
    tenant: str
    last_document_sweep: MutableMapping[tuple[str, str], datetime] = field(default_factory=dict)
    max_entries: int | None = None

    ENTRY_KEY = "key"

    async def query(self, *queries: Query) -> list[list[Any]]:
        return [self.db.execute(statement, values).fetchall() for statement, values in queries]

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        return self.db.execute(statement, values).fetchall()

    async def execute(self, statement: str, *values: Any) -> int:
        self.db.execute(statement, values)
        return self.db.changes()

    async def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        before = self.db.total_changes()
        self.db.executemany(statement, rows)
        return self.db.total_changes() - before

    def entry_condition(self, span: EntrySpan) -> Query:
        number, start, stop = span
        return "key >= ? AND key < ?", (entry_key(number, start), entry_key(number, stop))

    def entry_query(self, span: EntrySpan) -> Query:
        return SELECT, self.entry_condition(span)[1]

    async def unpack(self, results: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        return unpack_rows(self.db, chain.from_iterable(results))

    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        self.db.executemany(INSERT, entry_rows(self.db, row, position, turns, packed, {}))
        mode = await self.search_mode()
        for key, entry in enumerate(map(unpack, packed), entry_key(row.number, position)):
            tokens = message_tokens(entry_to_provider_message(entry), entry.role, mode)
            if tokens:
                await self.write_tokens(row.conversation, key, tokens)

    async def replace_entries(self, row: ConversationRow, replacements: Mapping[int, tuple[int, Packed]]) -> None:
        for position, (turn, packed) in replacements.items():
            await self.delete_entries(row, position, position + 1)
            await self.write_entries(row, position, turn - (packed.role is MessageRole.USER), [packed])

    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        self._delete(entry_key(row.number, start), entry_key(row.number, stop))

    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        for row in rows:
            self._delete(entry_key(row.number, 0), entry_key(row.number + 1, 0))

    def _delete(self, start: int, stop: int) -> None:
        delete(self.db, start, stop)
        search.delete_tokens(self.db, start, stop)

    async def write_tokens(self, header: ConversationHeader, key: int, tokens: Sequence[str]) -> None:
        self.db.execute(search.INSERT, (key, search.row_tokens(header, tokens)))

    async def find_keys(self, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
        return search.find_keys(self.db, query, start, stop, limit)
