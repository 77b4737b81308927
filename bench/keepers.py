"""Our store and bare databases, as keepers, and the places where databases are made."""

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

from bench.keeping import Contender, Said
from minutebook import ConversationEntry, open_store
from minutebook.record import MessageRole


class Ours:
    """minutebook, on a file or on a server."""

    async def open(self, place: str) -> str:
        self._store: Any = open_store(place if "://" in place else f"sqlite:///{place}")
        await self._store.__aenter__()
        if "://" in place:
            return await server_durability(place)
        engine: Any = vars(self._store)["_engine"]  # whose connection writes
        settings = await engine.write(
            lambda unit: [unit.db.execute(f"PRAGMA {name}").get for name in ("journal_mode", "synchronous")]
        )
        return sqlite_durability(*settings)

    async def append(self, conversation: str, said: Said) -> None:
        await self._store.append(conversation, [entry_of(said)])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        await self._store.append(conversation, [entry_of(said) for said in many])

    async def last(self, conversation: str, count: int) -> int:
        return len((await self._store.load(conversation, last_messages=count)).entries)

    async def settle(self) -> None:
        """The search index follows when there is nothing else to do, or somebody searches."""
        await self._store.search("anything", limit=1)

    async def close(self) -> None:
        await self._store.close()


def entry_of(said: Said) -> ConversationEntry:
    role, text = said
    return ConversationEntry(
        evaluation_id=uuid4(), sequence=0, created_at=datetime.now(UTC), role=MessageRole(role), content=text
    )


class Raw:
    """The least that keeps a message: one table, one row, one commit. Whoever waits for the disk, the loop waits too."""

    async def open(self, place: str) -> str:
        self._db = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, conversation TEXT, role TEXT, text TEXT)")
        self._db.execute("CREATE INDEX by_conversation ON message (conversation, number)")
        return sqlite_durability(
            *(self._db.execute(f"PRAGMA {one}").fetchone()[0] for one in ("journal_mode", "synchronous"))
        )

    async def append(self, conversation: str, said: Said) -> None:
        self._insert(conversation, [said])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        self._insert(conversation, many)

    async def last(self, conversation: str, count: int) -> int:
        return len(self._select(conversation, count))

    async def settle(self) -> None: ...

    async def close(self) -> None:
        self._db.close()

    def _insert(self, conversation: str, many: Sequence[Said]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        rows = [(conversation, *said) for said in many]
        self._db.executemany("INSERT INTO message (conversation, role, text) VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _select(self, conversation: str, count: int) -> list[Any]:
        query = "SELECT role, text FROM message WHERE conversation = ? ORDER BY number DESC LIMIT ?"
        return self._db.execute(query, (conversation, count)).fetchall()


class RawInThread(Raw):
    """The same, where the loop goes on meanwhile: what an async program must do."""

    async def open(self, place: str) -> str:
        self._turn = asyncio.Lock()
        return await super().open(place)

    async def append(self, conversation: str, said: Said) -> None:
        async with self._turn:
            await asyncio.to_thread(self._insert, conversation, [said])

    async def last(self, conversation: str, count: int) -> int:
        async with self._turn:
            return len(await asyncio.to_thread(self._select, conversation, count))


class RawPostgres:
    """One table, one row, one commit, on a pool of connections."""

    async def open(self, place: str) -> str:
        from psycopg_pool import AsyncConnectionPool

        self._pool = AsyncConnectionPool(place, kwargs={"autocommit": True}, min_size=1, max_size=10, open=False)
        await self._pool.open(wait=True)
        async with self._pool.connection() as db:
            await db.execute(
                "CREATE TABLE message (number bigserial PRIMARY KEY, conversation text, role text, text text)"
            )
            await db.execute("CREATE INDEX ON message (conversation, number)")
        return await server_durability(place)

    async def append(self, conversation: str, said: Said) -> None:
        async with self._pool.connection() as db:
            await db.execute(self._INSERT, (conversation, *said))

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        async with self._pool.connection() as db, db.transaction():
            await db.cursor().executemany(self._INSERT, [(conversation, *said) for said in many])

    async def last(self, conversation: str, count: int) -> int:
        query = "SELECT role, text FROM message WHERE conversation = %s ORDER BY number DESC LIMIT %s"
        async with self._pool.connection() as db:
            return len(await (await db.execute(query, (conversation, count))).fetchall())

    async def settle(self) -> None: ...

    async def close(self) -> None:
        await self._pool.close()

    _INSERT = "INSERT INTO message (conversation, role, text) VALUES (%s, %s, %s)"


class BareLog:
    """What hardly anybody can be quicker than who keeps the loop going: a file, and one sync for all who wait. No database."""

    async def open(self, place: str) -> str:
        self._file = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(self._file, bytes(_LOG))
        os.fsync(self._file)
        self._at = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        return "fdatasync"

    async def append(self, conversation: str, said: Said) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((f"{conversation}\0{said[0]}\0{said[1]}\n".encode(), done))
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        await done

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            await asyncio.to_thread(self._sync, b"".join(line for line, _ in group))
            for _, done in group:
                done.set_result(None)
        self._writer = None

    def _sync(self, lines: bytes) -> None:
        if self._at + len(lines) > _LOG:
            self._at = 0
        os.pwrite(self._file, lines, self._at)
        os.fdatasync(self._file)
        self._at += len(lines)

    async def fill(self, conversation: str, many: Sequence[Said]) -> None: ...

    async def last(self, conversation: str, count: int) -> int:
        raise NotImplementedError("it cannot be read")

    async def settle(self) -> None: ...

    async def close(self) -> None:
        os.close(self._file)


class BareGroup(RawPostgres):
    """The same on a server: one table, and one insert with one commit for all who wait, of what nothing is known."""

    async def open(self, place: str) -> str:
        self._waiting: list[tuple[tuple[str, str, str], asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        return await super().open(place)

    async def append(self, conversation: str, said: Said) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append(((conversation, *said), done))
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        await done

    async def _write(self) -> None:
        insert = (
            "INSERT INTO message (conversation, role, text) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])"
        )
        while self._waiting:
            group, self._waiting = self._waiting, []
            async with self._pool.connection() as db:
                await db.execute(insert, list(map(list, zip(*(row for row, _ in group), strict=True))))
            for _, done in group:
                done.set_result(None)
        self._writer = None


_LOG = 4 << 20


class Files:
    """Databases in folders of their own, on the disk that temporary files are on."""

    async def new(self) -> str:
        return str(Path(tempfile.mkdtemp(prefix="minutebook-bench-")) / "chat.db")

    async def size(self, place: str) -> int:
        return sum(file.stat().st_size for file in Path(place).parent.iterdir())

    async def remove(self, place: str) -> None:
        shutil.rmtree(Path(place).parent)


class Databases:
    """Databases on one server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._numbers = count(1)

    async def new(self) -> str:
        name = f"bench_{next(self._numbers)}"
        await _asked(self._server, f"CREATE DATABASE {name}")
        return f"{self._server.rpartition('/')[0]}/{name}"

    async def size(self, place: str) -> int:
        """What its tables and indexes take; the catalogue, which every database has, is left out."""
        found = await _asked(
            place,
            "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')",
        )
        return int(found)

    async def remove(self, place: str) -> None:
        await _asked(self._server, f"DROP DATABASE {place.rpartition('/')[2]} WITH (FORCE)")


async def server_durability(url: str) -> str:
    """What a commit waits for: the server's setting, which none of the contenders changes."""
    names = ("fsync", "synchronous_commit")
    return ", ".join([f"{name} {await _asked(url, f'SHOW {name}')}" for name in names])


async def _asked(url: str, statement: str) -> Any:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        answer = await db.execute(statement)
        row = await answer.fetchone() if answer.description else None
    return row[0] if row else None


def sqlite_durability(journal: str, synchronous: int) -> str:
    return f"{journal}, {('OFF', 'NORMAL', 'FULL', 'EXTRA')[synchronous]}"


OURS = "minutebook"
RAW = "raw sqlite3, the loop waits"
RAW_IN_THREAD = "raw sqlite3, in a thread"
RAW_POSTGRES = "raw psycopg, async"
BARE_LOG = "no database: a file, one sync for all who wait"
BARE_GROUP = "no store: one insert for all who wait"


def our_contenders(*, server: bool) -> list[Contender]:
    if server:
        return [Contender(OURS, Ours), Contender(RAW_POSTGRES, RawPostgres), Contender(BARE_GROUP, BareGroup)]
    return [
        Contender(OURS, Ours),
        Contender(RAW, Raw),
        Contender(RAW_IN_THREAD, RawInThread),
        Contender(BARE_LOG, BareLog, only_appends=True),
    ]
