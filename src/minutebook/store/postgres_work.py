"""One transaction of one tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.pq import TransactionStatus

ROLE: Final = "minutebook_app"
READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITING: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_AS: Final = (
    "SELECT set_config('role', %s, true), set_config('minutebook.tenant', %s, true), set_config('lock_timeout', %s, true),"
    " set_config('idle_in_transaction_session_timeout', '60s', true),"  # a client that hangs lets go of what it holds
    " set_config('enable_seqscan', 'off', true)"  # every question has its index
)
Query = tuple[str, tuple[Any, ...]]
"""A statement and its values."""


class Work:
    """What an operation is given: a way to ask, within a transaction that sees one tenant.

    It begins with the first thing that is asked, in the same message: as the role that owns nothing, and for this
    tenant. None of that outlives the transaction. What is asked together travels together; the values are written into
    it, quoted by the driver, since a message of several statements can carry none beside it.
    """

    def __init__(self, db: AsyncConnection, tenant: str, kind: str, lock_milliseconds: int) -> None:
        self._db = db
        self.tenant = tenant
        self._opening: list[Query] = [(kind, ()), (_AS, (ROLE, tenant, str(lock_milliseconds)))]

    async def ask(self, *queries: Query) -> list[list[Any]]:
        """The rows of each answer. What a column holds is our own affair, so its type is not checked."""
        if not queries:
            return []
        opening, self._opening = self._opening, []
        async with AsyncClientCursor(self._db) as cursor:
            texts = [cursor.mogrify(statement.encode(), values) for statement, values in (*opening, *queries)]
            await cursor.execute("; ".join(texts).encode())
            answers = [await _rows(cursor)]
            while cursor.nextset():
                answers.append(await _rows(cursor))
        return answers[len(opening) :]

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        """All rows of one answer."""
        return (await self.ask((statement, values)))[0]

    async def row(self, statement: str, *values: Any) -> Any:
        """The first row of an answer, or None."""
        rows = await self.rows(statement, *values)
        return rows[0] if rows else None

    async def put(self, statement: str, *values: Any) -> int:
        """Change something that takes many or large values, which travel beside it as they are; return how many rows."""
        if self._opening:
            await self.ask(("SELECT", ()))
        async with self._db.cursor() as cursor:
            await cursor.execute(statement.encode(), values)
            return cursor.rowcount

    async def commit(self, *queries: Query) -> None:
        """Change some last things and commit."""
        await self.ask(*queries, ("COMMIT", ()))

    @property
    def is_open(self) -> bool:
        """Whether the transaction is still to be ended."""
        return not self._opening and self._db.info.transaction_status != TransactionStatus.IDLE


@asynccontextmanager
async def working(db: AsyncConnection, tenant: str, kind: str, lock_milliseconds: int) -> AsyncIterator[Work]:
    """A transaction that ends with the block: committed, or undone if it raises."""
    work = Work(db, tenant, kind, lock_milliseconds)
    try:
        yield work
        if work.is_open:
            await db.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):  # what cannot even do this is undone by the server, and not used again
            if work.is_open:
                await db.execute("ROLLBACK")
        raise


async def _rows(cursor: AsyncClientCursor[Any]) -> list[Any]:
    return await cursor.fetchall() if cursor.description is not None else []
