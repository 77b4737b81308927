"""A transaction on a PostgreSQL database, which sees the rows of one tenant."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Any

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.codec import Packed, unpack
from minutebook.store.postgres import entries, search
from minutebook.store.postgres.append import recipient_lock
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.rules import merged_ranges, recipient_hash
from minutebook.store.search import OFF, IndexQuery, message_tokens
from minutebook.store.sql.transaction import KEY_SHIFT, ConversationRow, EntrySpan, Query, SqlTransaction
from minutebook.store.types import ConversationHeader
from minutebook.wire.chat import entry_to_provider_message


class PostgresTransaction(SqlTransaction):
    """Runs the shared SQL on a `TenantConnection`, and reads and writes entries as PostgreSQL stores them."""

    FOR_UPDATE = " FOR UPDATE"
    SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"
    BEFORE_ORDERED_QUERY = ((search.READ_INDEX_IN_ORDER, ()),)
    ENTRY_KEY = "position"

    def __init__(
        self, conn: TenantConnection, last_document_sweep: MutableMapping[tuple[str, str], datetime] | None = None
    ) -> None:
        self.conn = conn
        self.tenant = conn.tenant
        self.last_document_sweep = {} if last_document_sweep is None else last_document_sweep

    async def query(self, *queries: Query) -> list[list[Any]]:
        return await self.conn.query(*queries)

    async def execute(self, statement: str, *values: Any) -> int:
        return await self.conn.execute(statement, *values)

    async def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        return await self.conn.execute_many(statement, rows) if rows else 0

    def entry_condition(self, span: EntrySpan) -> Query:
        return "conversation = ?::bigint AND position >= ? AND position < ?", span

    def entry_query(self, span: EntrySpan) -> Query:
        return entries.SELECT_ENTRIES, span

    async def unpack(self, results: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        return await entries.unpack_rows(self.conn, results)

    async def lock_recipient(self, recipient: str) -> None:
        await self.rows("SELECT pg_advisory_xact_lock(?)", recipient_lock(recipient_hash(self.tenant, recipient)))

    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        rows = entries.EntryRows()
        rows.add(row.number, position, turns, packed, [entries.StoredPieces(entry) for entry in packed])
        await rows.write(self.conn)
        mode = await self.search_mode()
        await self._index(row, [dict(enumerate(map(unpack, packed), position))], mode)

    async def replace_entries(self, row: ConversationRow, replacements: Mapping[int, tuple[int, Packed]]) -> None:
        rows = entries.EntryRows()
        for position, (turn, packed) in replacements.items():
            turns_before = turn - (packed.role is MessageRole.USER)
            rows.add(row.number, position, turns_before, [packed], [entries.StoredPieces(packed)])
        await entries.delete(self.conn, [row.number], 0, entries.MAX_POSITION, list(replacements))
        await rows.write(self.conn)
        await self._index_again(row, [range(position, position + 1) for position in replacements])

    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        await entries.delete(self.conn, [row.number], start, stop)
        await self._index_again(row, [range(start, stop)])

    async def _index_again(self, row: ConversationRow, parts: Sequence[range]) -> None:
        """Replace the rows of the index that have tokens of some entries. They may have tokens of others too."""
        mode = await self.search_mode()
        if mode == OFF:
            return
        first_key = row.number << KEY_SHIFT
        keys = [(first_key + part.start, first_key + part.stop) for part in parts]
        deleted = await self.query(
            *((search.DELETE_OVERLAPPING, (self.tenant, start, stop, start)) for start, stop in keys)
        )
        deleted_parts = [range(start - first_key, stop - first_key) for rows in deleted for start, stop in rows]
        changed = merged_ranges([*parts, *deleted_parts])
        results = await self.query(
            *(self.entry_query(EntrySpan(row.number, part.start, part.stop)) for part in changed)
        )
        found = dict(zip(*await self.unpack(results), strict=True))
        await self._index(row, [{at: found[at] for at in part if at in found} for part in changed], mode)

    async def _index(self, row: ConversationRow, parts: Iterable[Mapping[int, ConversationEntry]], mode: str) -> None:
        """Add entries to the index. Those of one part, by position, may share rows."""
        rows: list[tuple[int, int, int, str]] = []
        for part in parts:
            if part and mode != OFF:
                start, stop = min(part), max(part) + 1
                tokens: list[list[str]] = [[] for _ in range(start, stop)]
                for position, entry in part.items():
                    tokens[position - start] = message_tokens(entry_to_provider_message(entry), entry.role, mode)
                rows += search.index_rows(row.conversation, (row.number << KEY_SHIFT) + start, tokens)
        await self.execute_many(search.INSERT, rows)

    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        """Also deletes their search index and pending jobs, and marks the table of headers for the next vacuum."""
        await entries.delete(self.conn, [row.number for row in rows], 0, entries.MAX_POSITION)
        ranges = [(self.tenant, row.number << KEY_SHIFT, (row.number + 1) << KEY_SHIFT) for row in rows]
        await self.query(
            *((search.DELETE, values) for values in ranges),
            ("SELECT mark_removed(ARRAY['minutebook.conversation'::regclass::oid])", ()),
            ("SELECT cancel_jobs(?::text[])", ([row.conversation.id for row in rows],)),
        )

    async def write_tokens(self, header: ConversationHeader, key: int, tokens: Sequence[str]) -> None:
        await self.execute_many(search.INSERT, list(search.index_rows(header, key, [tokens])))

    async def find_keys(self, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
        rows = await self.rows(search.FIND, search.tsquery(query), start, stop, limit)
        return [key for low, high in rows for key in reversed(range(max(low, start), min(high, stop)))]
