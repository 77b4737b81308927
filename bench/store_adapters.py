"""Adapters for our store and for plain databases, and the sources of new databases."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.store_contest import Contender, TextMessage
from minutebook import ConversationEntry, open_store
from minutebook.record import MessageRole


class MinutebookAdapter:
    """minutebook, on SQLite or PostgreSQL."""

    search = True

    async def open(self, location: str) -> str:
        url = location if "://" in location else f"sqlite:///{location}"
        self._store: Any = open_store(url, search=self.search)
        await self._store.__aenter__()
        if "://" in location:
            return await server_durability(location)
        engine: Any = vars(self._store)["_engine"]  # has the connection that writes
        settings = await engine.write(
            lambda writable: [writable.db.execute(f"PRAGMA {name}").get for name in ("journal_mode", "synchronous")]
        )
        return sqlite_durability(*settings)

    async def append(self, conversation: str, message: TextMessage) -> None:
        await self._store.append(conversation, [entry_of(message)])

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        await self._store.append(conversation, [entry_of(message) for message in messages])

    async def load_last(self, conversation: str, count: int) -> int:
        return len((await self._store.load(conversation, last_messages=count)).entries)

    async def close(self) -> None:
        await self._store.close()


class MinutebookWithoutSearch(MinutebookAdapter):
    """The same without a search index, as the plain databases and the peers' stores are."""

    search = False


def entry_of(message: TextMessage) -> ConversationEntry:
    role, text = message
    return ConversationEntry(
        evaluation_id=uuid4(), sequence=0, created_at=datetime.now(UTC), role=MessageRole(role), content=text
    )


class RawSqlite:
    """The simplest durable store: one table, one row and one commit per message. A commit blocks the event loop."""

    async def open(self, location: str) -> str:
        self._db = sqlite3.connect(location, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, conversation TEXT, role TEXT, text TEXT)")
        self._db.execute("CREATE INDEX by_conversation ON message (conversation, number)")
        return sqlite_durability(
            *(self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
        )

    async def append(self, conversation: str, message: TextMessage) -> None:
        self._insert(conversation, [message])

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        self._insert(conversation, messages)

    async def load_last(self, conversation: str, count: int) -> int:
        return len(self._select(conversation, count))

    async def close(self) -> None:
        self._db.close()

    def _insert(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        rows = [(conversation, *message) for message in messages]
        self._db.executemany("INSERT INTO message (conversation, role, text) VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _select(self, conversation: str, count: int) -> list[Any]:
        query = "SELECT role, text FROM message WHERE conversation = ? ORDER BY number DESC LIMIT ?"
        return self._db.execute(query, (conversation, count)).fetchall()


class RawSqliteInThread(RawSqlite):
    """The same in another thread, so that the event loop is not blocked."""

    async def open(self, location: str) -> str:
        self._lock = asyncio.Lock()
        return await super().open(location)

    async def append(self, conversation: str, message: TextMessage) -> None:
        async with self._lock:
            await asyncio.to_thread(self._insert, conversation, [message])

    async def load_last(self, conversation: str, count: int) -> int:
        async with self._lock:
            return len(await asyncio.to_thread(self._select, conversation, count))


class RawPostgres:
    """One table, one row and one commit per message, on a connection pool."""

    async def open(self, location: str) -> str:
        from psycopg_pool import AsyncConnectionPool

        self._pool = AsyncConnectionPool(location, kwargs={"autocommit": True}, min_size=1, max_size=10, open=False)
        await self._pool.open(wait=True)
        async with self._pool.connection() as db:
            await db.execute(
                "CREATE TABLE message (number bigserial PRIMARY KEY, conversation text, role text, text text)"
            )
            await db.execute("CREATE INDEX ON message (conversation, number)")
        return await server_durability(location)

    async def append(self, conversation: str, message: TextMessage) -> None:
        async with self._pool.connection() as db:
            await db.execute(self._INSERT, (conversation, *message))

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        async with self._pool.connection() as db, db.transaction():
            await db.cursor().executemany(self._INSERT, [(conversation, *message) for message in messages])

    async def load_last(self, conversation: str, count: int) -> int:
        query = "SELECT role, text FROM message WHERE conversation = %s ORDER BY number DESC LIMIT %s"
        async with self._pool.connection() as db:
            return len(await (await db.execute(query, (conversation, count))).fetchall())

    async def close(self) -> None:
        await self._pool.close()

    _INSERT = "INSERT INTO message (conversation, role, text) VALUES (%s, %s, %s)"


class SyncedFile:
    """An upper bound for stores that do not block the event loop: a file, and one sync for all waiting appends."""

    async def open(self, location: str) -> str:
        self._file = os.open(location, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(self._file, bytes(_FILE_BYTES))
        os.fsync(self._file)
        self._offset = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        return "fdatasync"

    async def append(self, conversation: str, message: TextMessage) -> None:
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        self._waiting.append((f"{conversation}\0{message[0]}\0{message[1]}\n".encode(), written))
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        await written

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            await asyncio.to_thread(self._sync, b"".join(line for line, _ in group))
            for _, written in group:
                written.set_result(None)
        self._writer = None

    def _sync(self, lines: bytes) -> None:
        if self._offset + len(lines) > _FILE_BYTES:
            self._offset = 0
        os.pwrite(self._file, lines, self._offset)
        os.fdatasync(self._file)
        self._offset += len(lines)

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None: ...

    async def load_last(self, conversation: str, count: int) -> int:
        raise NotImplementedError("messages cannot be loaded")

    async def close(self) -> None:
        os.close(self._file)


class GroupedInserts(RawPostgres):
    """The same on PostgreSQL: one table, and one insert and commit for all waiting appends, without any checks."""

    async def open(self, location: str) -> str:
        self._waiting: list[tuple[tuple[str, str, str], asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        return await super().open(location)

    async def append(self, conversation: str, message: TextMessage) -> None:
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        self._waiting.append(((conversation, *message), written))
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        await written

    async def _write(self) -> None:
        insert = (
            "INSERT INTO message (conversation, role, text) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])"
        )
        while self._waiting:
            group, self._waiting = self._waiting, []
            async with self._pool.connection() as db:
                await db.execute(insert, list(map(list, zip(*(row for row, _ in group), strict=True))))
            for _, written in group:
                written.set_result(None)
        self._writer = None


_FILE_BYTES = 4 << 20


class SqliteFiles:
    """SQLite databases in separate temporary folders."""

    async def new(self) -> str:
        return str(Path(tempfile.mkdtemp(prefix="minutebook-bench-")) / "chat.db")

    async def size(self, location: str) -> int:
        return sum(file.stat().st_size for file in Path(location).parent.iterdir())

    async def remove(self, location: str) -> None:
        shutil.rmtree(Path(location).parent)


class PostgresDatabases:
    """Databases on one PostgreSQL server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._numbers = count(1)

    async def new(self) -> str:
        name = f"bench_{next(self._numbers)}"
        await _query_value(self._server, f"CREATE DATABASE {name}")
        return f"{self._server.rpartition('/')[0]}/{name}"

    async def size(self, location: str) -> int:
        """The size of its tables and indexes, without the system catalog."""
        size = await _query_value(
            location,
            "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
        )
        return int(size)

    async def remove(self, location: str) -> None:
        await _query_value(self._server, f"DROP DATABASE {location.rpartition('/')[2]} WITH (FORCE)")


async def server_durability(url: str) -> str:
    """The server's settings for durable commits. No contender changes them."""
    names = ("fsync", "synchronous_commit")
    return ", ".join([f"{name} {await _query_value(url, f'SHOW {name}')}" for name in names])


async def _query_value(url: str, statement: str) -> Any:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        cursor = await db.execute(statement)
        row = await cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def sqlite_durability(journal: str, synchronous: int) -> str:
    return f"{journal}, {('OFF', 'NORMAL', 'FULL', 'EXTRA')[synchronous]}"


OURS = "minutebook"
OURS_WITHOUT_SEARCH = "minutebook, ?search=off"
RAW = "raw sqlite3, blocks the loop"
RAW_IN_THREAD = "raw sqlite3, in a thread"
RAW_POSTGRES = "raw psycopg, async"
SYNCED_FILE = "no database: a file, one sync per group"
GROUPED_INSERTS = "no store: one insert per group"


def our_contenders(*, server: bool) -> list[Contender]:
    if server:
        return [
            Contender(OURS, MinutebookAdapter),
            Contender(OURS_WITHOUT_SEARCH, MinutebookWithoutSearch),
            Contender(RAW_POSTGRES, RawPostgres),
            Contender(GROUPED_INSERTS, GroupedInserts),
        ]
    return [
        Contender(OURS, MinutebookAdapter),
        Contender(OURS_WITHOUT_SEARCH, MinutebookWithoutSearch),
        Contender(RAW, RawSqlite),
        Contender(RAW_IN_THREAD, RawSqliteInThread),
        Contender(SYNCED_FILE, SyncedFile, only_appends=True),
    ]
