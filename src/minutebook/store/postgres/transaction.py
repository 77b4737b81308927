"""A transaction on a PostgreSQL database, which sees the rows of one tenant."""

from collections.abc import Iterable, MutableMapping, Sequence
from datetime import datetime
from typing import Any

from minutebook.record.entry import ConversationEntry
from minutebook.store.codec import Packed, unpack
from minutebook.store.postgres import entries, search
from minutebook.store.postgres.append import recipient_lock
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.rules import recipient_hash
from minutebook.store.search import IndexQuery
from minutebook.store.sql.tokens import KEY_SHIFT, entry_tokens, load_mode
from minutebook.store.sql.transaction import ConversationRow, EntrySpan, Query, SqlTransaction
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
        mode = await load_mode(self)
        for key, entry in enumerate(map(unpack, packed), (row.number << KEY_SHIFT) + position):
            await self.write_tokens(key, entry_tokens(row, entry_to_provider_message(entry), entry.role, mode))

    async def replace_entry(self, row: ConversationRow, position: int, turns: int, packed: Packed) -> None:
        await self.delete_entries(row, position, position + 1)
        await self.write_entries(row, position, turns, [packed])

    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        await entries.delete(self.conn, [row.number], start, stop)
        await self.execute(
            search.DELETE, self.tenant, *((row.number << KEY_SHIFT) + position for position in (start, stop))
        )

    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        """Also deletes their search index and pending jobs, and marks the table of headers for the next vacuum."""
        await entries.delete(self.conn, [row.number for row in rows], 0, entries.MAX_POSITION)
        ranges = [(self.tenant, row.number << KEY_SHIFT, (row.number + 1) << KEY_SHIFT) for row in rows]
        await self.query(
            *((search.DELETE, values) for values in ranges),
            ("SELECT mark_removed(ARRAY['minutebook.conversation'::regclass::oid])", ()),
            ("SELECT cancel_jobs(?::text[])", ([row.conversation.id for row in rows],)),
        )

    async def write_tokens(self, key: int, tokens: str) -> None:
        await self.execute_many(search.INSERT, [(key, *part) for part in enumerate(search.parts(tokens))])

    async def find_keys(self, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
        return [key for (key,) in await self.rows(search.FIND, search.tsquery(query), start, stop, limit)]
