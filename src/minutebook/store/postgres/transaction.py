"""A transaction on a PostgreSQL database, which sees the rows of one tenant."""

from collections.abc import Iterable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Final

from minutebook.record.entry import ConversationEntry
from minutebook.store.codec import Packed, moment
from minutebook.store.postgres import entries, search
from minutebook.store.postgres.connection import NOW, Work
from minutebook.store.sql.transaction import ConversationRow, Query, Span, SqlTransaction

_LOCK: Final = "SELECT pg_advisory_xact_lock(?)"


class PostgresTransaction(SqlTransaction):
    """The shared statements by `Work`, and the entries as PostgreSQL stores them."""

    FOR_UPDATE = " FOR UPDATE"
    SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"
    IN_ORDER = ((search.IN_ORDER, ()),)
    ENTRY_KEY = "position"

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tenant = work.tenant
        self.swept: MutableMapping[tuple[str, str], datetime] = {}

    async def rows_of(self, *queries: Query) -> list[list[Any]]:
        return await self.work.ask(*queries)

    async def put(self, statement: str, *values: Any) -> int:
        return await self.work.put(statement, *values)

    async def put_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        return await self.work.put_each(statement, rows) if rows else 0

    async def rows_locked(
        self,
        key: bytes,
        at: datetime,  # noqa: ARG002 - the database has a clock of its own
        query: Query,
    ) -> tuple[list[Any], datetime]:
        lock = (_LOCK, (int.from_bytes(key[:8], signed=True),))
        _, rows, ((now,),) = await self.rows_of(lock, query, (NOW, ()))
        return rows, moment(now)

    def entry_range(self, span: Span) -> Query:
        return "conversation = ?::bigint AND position >= ? AND position < ?", span

    def entry_query(self, span: Span) -> Query:
        return entries.READ, span

    async def unpack(self, answers: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
        return await entries.unpacked(self.work, answers)

    async def write_entries(self, row: ConversationRow, position: int, turns: int, packed: Sequence[Packed]) -> None:
        rows = entries.Rows()
        rows.add(row.number, position, turns, packed, [entries.Kept(one) for one in packed])
        await rows.write(self.work)

    async def replace_entry(self, row: ConversationRow, position: int, turns: int, packed: Packed) -> None:
        await entries.delete(self.work, [row.number], position, position + 1)
        await self.write_entries(row, position, turns, [packed])
        await search.renew(self.work, row, position)

    async def delete_entries(self, row: ConversationRow, start: int, stop: int) -> None:
        await entries.delete(self.work, [row.number], start, stop)
        await search.forget(self.work, row, start, stop)

    async def delete_all_entries(self, rows: Sequence[ConversationRow]) -> None:
        """With what would find their words, and the jobs that wait for them; the next vacuum writes their table anew."""
        await entries.delete(self.work, [row.number for row in rows], 0, entries.EVERYTHING)
        await self.put_each("DELETE FROM word WHERE conversation = ?", [(row.number,) for row in rows])
        await self.put("SELECT mark_removed(ARRAY['minutebook.conversation'::regclass::oid])")
        if (await self.rows("SELECT to_regprocedure('minutebook_jobs.forget(text[])') IS NOT NULL"))[0][0]:
            await self.put("SELECT minutebook_jobs.forget(?::text[])", [row.conversation.id for row in rows])

    async def index(self, row: ConversationRow, start: int, stop: int) -> None:
        await search.index(self.work, row, start, stop)
