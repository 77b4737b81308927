"""Where a driver's errors become ours.

Connecting to a database, and the steps that bring an older one up to date.

One transaction of one tenant.

A few connections to one database, and transactions on them. All of it belongs to one event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from minutebook.errors import (
    InvalidSetting,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from minutebook.store.sql.transaction import Again, Query

AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""What a transaction may meet through no fault of its own: it is carried out again."""

UNWRITABLE: Final = (psycopg.DataError, errors.ProgramLimitExceeded)
"""What the server says of values that it cannot store."""

_OURS: Final[tuple[tuple[type[psycopg.Error], type[StoreUnavailable]], ...]] = (
    (errors.DiskFull, StoreFull),
    (errors.ReadOnlySqlTransaction, StoreReadOnly),
    (errors.DataCorrupted, StoreDamaged),
    (errors.IndexCorrupted, StoreDamaged),
    (psycopg.Error, StoreUnavailable),
)


def translated(error: psycopg.Error, store: str) -> StoreUnavailable:
    """Our error for one of the driver's. Only the first line is kept: the others may quote what was written."""
    kind = next(ours for theirs, ours in _OURS if isinstance(error, theirs))
    problem = error.diag.message_primary or str(error).strip().partition("\n")[0]
    return kind(store, problem or type(error).__name__)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, store) from error


def address_of(url: str) -> str:
    """A URL without its secrets, to be named in errors.

    Raises:
        InvalidSetting: it is not one that the driver can read.
    """
    try:
        known = conninfo_to_dict(url)
    except psycopg.Error:  # which quotes the URL with its password
        hidden = f"{url.partition(':')[0]}://…"
        raise InvalidSetting("store", hidden, "a URL that PostgreSQL takes: postgresql://user@host/database") from None
    where = known.get("host") or known.get("hostaddr") or ""
    port = f":{known['port']}" if known.get("port") else ""
    return f"postgresql://{where}{port}/{known.get('dbname') or ''}"


SETTINGS: Final[dict[str, Any]] = {
    "autocommit": True,  # transactions are begun and ended by hand, with what they need in the same message
    "prepare_threshold": None,  # a prepared statement would belong to a session that pgbouncer hands to others
    "client_encoding": "utf8",
    "keepalives_idle": 30,  # a server that vanished is noticed within a minute
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
LOCK: Final = 0x6D626B31
"""The lock under which the steps are run, so that of many processes one does it."""

_STEP: Final = "minutebook, step "
_VERSION: Final = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'minutebook'"
"""From the table itself: `to_regnamespace` may answer from what this connection knew before it waited for the lock."""


async def connected(url: str, store: str, patience_seconds: float) -> AsyncConnection:
    """A connection of its own, outside of any pool."""
    with errors_of(store):
        return await AsyncConnection.connect(url, connect_timeout=max(2, int(patience_seconds)), **SETTINGS)


async def migrate(db: AsyncConnection, store: str) -> None:
    """Run the numbered steps that this database has not seen. An up-to-date one is only looked at."""
    with errors_of(store):
        await _require_unicode(db, store)
        if await _is_current(db, store):
            return
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if await _is_current(db, store):
                return
            done = await _version(db, store)
            for number, script in steps():
                if number > done:
                    await _run(db, store, number, script)


async def _run(db: AsyncConnection, store: str, number: int, script: str) -> None:
    try:
        await db.execute(script.encode())
        await db.execute(f"COMMENT ON SCHEMA minutebook IS '{_STEP}{number}'")
    except psycopg.errors.InsufficientPrivilege as problem:
        wanted = f"needs step {number} of its tables, which this user may not make ({problem.diag.message_primary})"
        raise StoreUnavailable(store, f"{wanted}; open it once as their owner, who may create roles") from problem


async def _require_unicode(db: AsyncConnection, store: str) -> None:
    encoding = db.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreDamaged(store, f"is a database in {encoding}, which cannot hold every text; make one in UTF8")


async def _is_current(db: AsyncConnection, store: str) -> bool:
    version, known = await _version(db, store), steps()[-1][0]
    if version > known:
        raise StoreUnavailable(store, f"was written by a newer minutebook (step {version}, not {known})")
    return version == known


async def _version(db: AsyncConnection, store: str) -> int:
    row = await (await db.execute(_VERSION)).fetchone()
    if row is None:
        return 0
    mark = row[0]
    if mark is None or not mark.startswith(_STEP):
        raise StoreDamaged(store, "has a schema called minutebook that another program made")
    return int(mark.removeprefix(_STEP))


def steps() -> list[tuple[int, str]]:
    """The numbered scripts, in order."""
    scripts = [
        one for one in files("minutebook.store.postgres").joinpath("migrations").iterdir() if one.name.startswith("0")
    ]
    return sorted((int(one.name.split("_")[0]), one.read_text(encoding="utf-8")) for one in scripts)


ROLE: Final = "minutebook_app"
NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The time of the database, in microseconds since 1970."""
READING: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITING: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_AS: Final = (
    "SELECT set_config('role', %s, true), set_config('minutebook.tenant', %s, true), set_config('lock_timeout', %s, true),"
    " set_config('search_path', 'minutebook', true),"
    " set_config('idle_in_transaction_session_timeout', '60s', true),"  # a client that hangs lets go of what it holds
    " set_config('enable_seqscan', 'off', true)"  # every question has its index
)


T = TypeVar("T")


class Work:
    """What an operation is given: a way to ask, within a transaction that sees one tenant.

    It begins with the first thing that is asked, in the same message: as the role that owns nothing, and for this
    tenant. None of that outlives the transaction. What is asked together travels together; the values are written into
    it, quoted by the driver, since a message of several statements can carry none beside it. In a statement, `?` is a
    value as well as `%s`.
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
            texts = [cursor.mogrify(_native(statement), values) for statement, values in (*opening, *queries)]
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
            await cursor.execute(_native(statement), values)
            return cursor.rowcount

    async def put_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Change something for each of some values, in one round trip; return how many rows."""
        if self._opening:
            await self.ask(("SELECT", ()))
        async with self._db.cursor() as cursor:
            await cursor.executemany(_native(statement), rows)
            return cursor.rowcount

    async def use(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do something with the connection itself, within the transaction."""
        if self._opening:
            await self.ask(("SELECT", ()))
        return await work(self._db)

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


@lru_cache
def _native(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


async def _rows(cursor: AsyncClientCursor[Any]) -> list[Any]:
    return await cursor.fetchall() if cursor.description is not None else []


TRIES: Final = 10
"""How often a transaction that met others is carried out again."""


class Connections:
    """Opened by the first transaction, or by `start`."""

    def __init__(self, url: str, most: int, patience_seconds: float, *, queue: bool = False) -> None:
        self.url = url
        self.store = address_of(url)
        self.patience_seconds = patience_seconds
        self._most = most
        self._queue = queue
        """Whether appends queue jobs, so that the tables for these must be there."""
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening = asyncio.Lock()

    async def start(self) -> AsyncConnectionPool[AsyncConnection]:
        """Connect, and bring the database up to date, once."""
        async with self._opening:
            if self._pool is None:
                await self._alone(self._prepare)
                self._pool = AsyncConnectionPool(
                    self.url,
                    min_size=0,
                    max_size=self._most,
                    open=False,
                    check=_require_open,
                    timeout=self.patience_seconds,
                    reconnect_timeout=self.patience_seconds,
                    kwargs={**SETTINGS, "connect_timeout": max(2, int(self.patience_seconds))},
                )
                await self._pool.open()
        return self._pool

    async def _prepare(self, db: AsyncConnection) -> None:
        await migrate(db, self.store)
        if self._queue:
            await _install(db)

    async def carry_out(
        self, tenant: str, kind: str, work: Callable[[Work], Awaitable[T]], lock_seconds: float | None = None
    ) -> T:
        """Carry out something in one transaction, and again if it met others through no fault of its own."""
        pool = await self.start()
        patience = int(1000 * (self.patience_seconds if lock_seconds is None else lock_seconds))
        with errors_of(self.store):
            for _ in range(TRIES):
                try:
                    async with pool.connection() as db, working(db, tenant, kind, patience) as unit:
                        return await work(unit)
                except (Again, *AGAIN):
                    continue
        raise StoreUnavailable(self.store, "is too busy: others went on changing the same conversation")

    async def install_queue(self) -> None:
        """Have the tables for jobs, too."""
        await self.alone(_install)

    async def alone(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Carry out something outside of any transaction and as the user of the URL, on a connection of its own."""
        await self.start()
        return await self._alone(work)

    async def _alone(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        db = await connected(self.url, self.store, self.patience_seconds)
        try:
            with errors_of(self.store):
                return await work(db)
        finally:
            await db.close()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


async def _install(db: AsyncConnection) -> None:
    from minutebook.store.postgres.jobs import install  # a queue is only loaded where one is used

    await install(db, LOCK)


async def _require_open(db: AsyncConnection) -> None:
    """Raises if the server has hung up while nobody looked; it asks nobody, so it takes no time."""
    db.pgconn.consume_input()
