"""PostgreSQL connections: errors, migrations, transactions of one tenant, and the pool.

A pool and its connections belong to one event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, TypeVar
from weakref import WeakSet

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
    StoreRejected,
    StoreUnavailable,
)
from minutebook.store.postgres.settings import DEFAULT_ROLE, DatabaseSettings, PostgresSettings, with_role
from minutebook.store.sql.migrations import Migration, load_migrations, require_unchanged
from minutebook.store.sql.transaction import Query, TransactionConflict

RETRYABLE_ERRORS: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""Conflicts with other transactions. The transaction is run again."""

INVALID_VALUE_ERRORS: Final = (psycopg.DataError, errors.ProgramLimitExceeded)
"""Raised for values that the server cannot store."""

_ERROR_CLASSES: Final[tuple[tuple[type[psycopg.Error], type[StoreUnavailable]], ...]] = (
    (errors.DiskFull, StoreFull),
    (errors.ReadOnlySqlTransaction, StoreReadOnly),
    (errors.DataCorrupted, StoreDamaged),
    (errors.IndexCorrupted, StoreDamaged),
    (errors.IdleInTransactionSessionTimeout, StoreUnavailable),
    *((error, StoreRejected) for error in INVALID_VALUE_ERRORS),
    (errors.InvalidAuthorizationSpecification, StoreRejected),
    (errors.InvalidPassword, StoreRejected),
    (psycopg.OperationalError, StoreUnavailable),
    *((error, StoreUnavailable) for error in RETRYABLE_ERRORS),
    (psycopg.Error, StoreRejected),
)
_LASTING_CONNECTION_PROBLEMS: Final = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
)
"""Texts in the error of a failed connection, which has no error code."""


def store_error(error: psycopg.Error, store: str) -> StoreUnavailable:
    """The `StoreUnavailable` for a driver error. It has only the first line, because the others may quote stored text."""
    error_class = next(store_class for driver_class, store_class in _ERROR_CLASSES if isinstance(error, driver_class))
    problem = error.diag.message_primary or str(error).strip().partition("\n")[0]
    if error.sqlstate is None and any(text in problem for text in _LASTING_CONNECTION_PROBLEMS):
        error_class = StoreRejected
    return error_class(store, problem or type(error).__name__)


@contextmanager
def map_errors(store: str) -> Iterator[None]:
    """Raise driver errors as `StoreUnavailable`."""
    try:
        yield
    except psycopg.Error as error:
        raise store_error(error, store) from error


def address_of(url: str) -> str:
    """The URL without user, password and options, for error messages.

    Raises:
        InvalidSetting: the driver cannot parse the URL.
    """
    try:
        options = conninfo_to_dict(url)
    except psycopg.Error:  # its message quotes the URL with the password
        redacted_url = f"{url.partition(':')[0]}://…"
        raise InvalidSetting("store", redacted_url, "a PostgreSQL URL: postgresql://user@host/database") from None
    host = options.get("host") or options.get("hostaddr") or ""
    port = f":{options['port']}" if options.get("port") else ""
    return f"postgresql://{host}{port}/{options.get('dbname') or ''}"


CONNECTION_OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,  # BEGIN and COMMIT are sent explicitly, together with other statements
    "prepare_threshold": None,  # pgbouncer may give the session with the prepared statement to another client
    "client_encoding": "utf8",
    "keepalives_idle": 30,  # detects a lost server within a minute
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
SCHEMA_LOCK: Final = 0x6D626B31
"""Advisory lock for schema changes, so that only one of several processes migrates."""

SCHEMA: Final = "minutebook"
_VERSION: Final = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"
"""Reads the table because `to_regnamespace` may use a cache from before this connection waited for the lock."""


async def connect(url: str, store: str, timeout_seconds: float) -> AsyncConnection:
    """Open a connection outside the pool."""
    with map_errors(store):
        return await AsyncConnection.connect(url, connect_timeout=max(2, int(timeout_seconds)), **CONNECTION_OPTIONS)


async def migrate(db: AsyncConnection, store: str, role: str = DEFAULT_ROLE, *, last: int | None = None) -> None:
    """Run the migrations that this database does not have yet. Takes no lock if there are none.

    `role` is the role of transactions in a new database, and `last` the number of the last migration to run.
    """
    with map_errors(store):
        await _require_unicode(db, store)
        if await _is_current(db, store):
            return
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            if await _is_current(db, store):
                return
            version = await schema_version(db, store)
            role = await read_role(db) if version else role
            for migration in migrations():
                if version < migration.number <= (last or migration.number):
                    await _run_migration(db, store, migration, role)


async def _run_migration(db: AsyncConnection, store: str, migration: Migration, role: str) -> None:
    try:
        await db.execute(with_role(migration.script, role).encode())
        record = "INSERT INTO minutebook.setting (name, value) VALUES (%s, %s) ON CONFLICT DO NOTHING"
        for setting in (migration.setting, ("role", role)):
            await db.execute(record, setting)
        await db.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{SCHEMA} schema {migration.number}'")
    except psycopg.errors.InsufficientPrivilege as error:
        problem = f"this user may not run migration {migration.name} ({error.diag.message_primary})"
        advice = (
            "open the store once as the owner of the tables, with the right to create roles; if another owner in this"
            f" server uses the role {role}, choose another name with ?role=NAME in the URL"
        )
        raise StoreRejected(store, f"{problem}; {advice}") from error


async def _require_unicode(db: AsyncConnection, store: str) -> None:
    encoding = db.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        problem = f"the database has encoding {encoding}, but UTF8 is required; create it with ENCODING 'UTF8'"
        raise StoreRejected(store, problem)


async def _is_current(db: AsyncConnection, store: str) -> bool:
    newest = migrations()[-1].number
    version = await schema_version(db, store, newest=newest)
    if version:
        recorded = await (await db.execute("SELECT name, value FROM minutebook.setting")).fetchall()
        require_unchanged(store, migrations(), version, dict(recorded))
    return version == newest


async def schema_version(db: AsyncConnection, store: str, schema: str = SCHEMA, *, newest: int | None = None) -> int:
    """The number of the last migration of a schema of the database; 0 if it does not exist.

    Raises:
        StoreDamaged: the schema is not ours.
        StoreRejected: the number is greater than `newest`.
    """
    row = await (await db.execute(_VERSION, (schema,))).fetchone()
    if row is None:
        return 0
    prefix, comment = f"{schema} schema ", row[0]
    if comment is None or not comment.startswith(prefix):
        raise StoreDamaged(store, f"the database has a schema named {schema} that another program created")
    version = int(comment.removeprefix(prefix))
    if newest is not None and version > newest:
        problem = f"has {prefix.rstrip()} version {version}, but this version supports up to {newest}"
        raise StoreRejected(store, f"the database {problem}; upgrade minutebook")
    return version


async def read_role(db: AsyncConnection) -> str:
    """The role of transactions that was chosen when the tables were created."""
    row = await (await db.execute("SELECT value FROM minutebook.setting WHERE name = 'role'")).fetchone()
    return DEFAULT_ROLE if row is None else str(row[0])


def migrations() -> Sequence[Migration]:
    """The migrations, in order."""
    return load_migrations("minutebook.store.postgres")


NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The database's time, in microseconds since 1970."""
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_CONFIGURE: Final = (
    "SELECT set_config('role', %s, true), set_config('minutebook.tenant', %s, true), set_config('lock_timeout', %s, true),"
    " set_config('search_path', 'minutebook', true),"
    " set_config('idle_in_transaction_session_timeout', '60s', true),"  # releases the locks of a client that hangs
    " set_config('enable_seqscan', 'off', true)"  # every query has an index
)


T = TypeVar("T")


class TenantConnection:
    """A connection within one transaction, which sees the rows of one tenant.

    The transaction begins with the first query, in the same message: BEGIN, then the unprivileged role, the tenant and
    the timeouts, all of which end with the transaction. The queries of one `query` call are one message.
    The driver quotes their values into the text, because a message of several statements cannot have parameters.
    A statement may write a value as `?` or `%s`.
    """

    def __init__(self, db: AsyncConnection, role: str, tenant: str, begin: str, lock_milliseconds: int) -> None:
        self._db = db
        self.tenant = tenant
        self._begin_queries = ((begin, ()), (_CONFIGURE, (role, tenant, str(lock_milliseconds))))
        self._opening: Sequence[Query] = self._begin_queries
        """Sent before the next query; empty while the transaction is open."""
        self.commits_each_query = False
        """Each call of `query` is a transaction, in one round trip."""

    async def query(self, *queries: Query) -> list[list[Any]]:
        """Run queries in one round trip; return the rows of each."""
        if not queries:
            return []
        opening, self._opening = self._opening, ()
        closing: Sequence[Query] = ()
        if self.commits_each_query:
            self._opening, closing = self._begin_queries, (("COMMIT", ()),)
        async with AsyncClientCursor(self._db) as cursor:
            all_queries = (*opening, *queries, *closing)
            texts = [cursor.mogrify(_native(statement), values) for statement, values in all_queries]
            await cursor.execute("; ".join(texts).encode())
            results = [await _fetch_rows(cursor)]
            while cursor.nextset():
                results.append(await _fetch_rows(cursor))
        return results[len(opening) : len(opening) + len(queries)]

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        """Run one query; return its rows."""
        return (await self.query((statement, values)))[0]

    async def row(self, statement: str, *values: Any) -> Any:
        """Run one query; return its first row, or None."""
        rows = await self.rows(statement, *values)
        return rows[0] if rows else None

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with its values as parameters, for many or large values; return the number of rows."""
        await self._begin()
        async with self._db.cursor() as cursor:
            await cursor.execute(_native(statement), values)
            return cursor.rowcount

    async def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement once per row of values, in one round trip; return the number of rows changed."""
        await self._begin()
        async with self._db.cursor() as cursor:
            await cursor.executemany(_native(statement), rows)
            return cursor.rowcount

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Call `work` with the driver's connection, within the transaction."""
        await self._begin()
        return await work(self._db)

    async def commit(self, *queries: Query) -> None:
        """Run the last queries and commit, in one round trip."""
        await self.query(*queries, ("COMMIT", ()))

    async def _begin(self) -> None:
        if self._opening:
            await self.query(("SELECT", ()))

    @property
    def is_open(self) -> bool:
        """Whether the transaction has begun and not ended."""
        return (
            self.commits_each_query or not self._opening
        ) and self._db.info.transaction_status != TransactionStatus.IDLE


@asynccontextmanager
async def transaction(
    db: AsyncConnection, role: str, tenant: str, begin: str, lock_milliseconds: int
) -> AsyncIterator[TenantConnection]:
    """Run the block in one transaction. It is rolled back if the block raises."""
    conn = TenantConnection(db, role, tenant, begin, lock_milliseconds)
    try:
        yield conn
        if conn.is_open:
            await db.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):  # on a broken connection the server rolls back, and the pool discards it
            if conn.is_open:
                await db.execute("ROLLBACK")
        raise


@lru_cache
def _native(statement: str) -> bytes:
    """The statement with the driver's placeholders."""
    return statement.replace("?", "%s").encode()


async def _fetch_rows(cursor: AsyncClientCursor[Any]) -> list[Any]:
    return await cursor.fetchall() if cursor.description is not None else []


MAX_ATTEMPTS: Final = 10
"""Attempts to run a transaction that conflicts with others."""


class ConnectionPool:
    """The connections of one event loop to a database. `start` or the first transaction opens the pool."""

    def __init__(
        self,
        url: str,
        max_size: int,
        timeout_seconds: float,
        settings: PostgresSettings,
        *,
        with_jobs: bool = False,
    ) -> None:
        self.url = url
        self.address = address_of(url)
        self.timeout_seconds = timeout_seconds
        self._max_size = max_size
        self._with_jobs = with_jobs
        """Appends queue background jobs, so `start` creates the tables of the queue."""
        self._settings = settings
        self._recorded: DatabaseSettings | None = None
        """The settings of the database, once `start` has read them."""
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._open_connections: WeakSet[AsyncConnection] = WeakSet()
        self._start_lock = asyncio.Lock()

    async def start(self) -> AsyncConnectionPool[AsyncConnection]:
        """Migrate the database and open the pool, once."""
        if self._pool is not None:
            return self._pool
        async with self._start_lock:
            if self._pool is None:
                await self._run_on_new_connection(self._prepare)
                pool = AsyncConnectionPool(
                    self.url,
                    min_size=0,
                    max_size=self._max_size,
                    open=False,
                    configure=self._add,
                    check=_require_open,
                    timeout=self.timeout_seconds,
                    reconnect_timeout=self.timeout_seconds,
                    kwargs={**CONNECTION_OPTIONS, "connect_timeout": max(2, int(self.timeout_seconds))},
                )
                await pool.open()
                self._pool = pool
        return self._pool

    async def _add(self, db: AsyncConnection) -> None:
        self._open_connections.add(db)

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Call `work` with a connection of the pool, without a transaction."""
        pool = await self.start()
        with map_errors(self.address):
            async with pool.connection() as db:
                return await work(db)

    async def _prepare(self, db: AsyncConnection) -> None:
        await migrate(db, self.address, self._settings.role or DEFAULT_ROLE)
        self._recorded = await self._settings.check(db)
        if self._with_jobs:
            await self._create_job_tables(db)

    async def read_settings(self) -> DatabaseSettings:
        """The settings of the database. They do not change, so they are read once."""
        await self.start()
        assert self._recorded is not None
        return self._recorded

    async def run_transaction(
        self,
        tenant: str,
        begin: str,
        work: Callable[[TenantConnection], Awaitable[T]],
        lock_seconds: float | None = None,
    ) -> T:
        """Run `work` in one transaction, and again if it conflicts with others."""
        pool = await self.start()
        role = (await self.read_settings()).role
        lock_milliseconds = int(1000 * (self.timeout_seconds if lock_seconds is None else lock_seconds))
        with map_errors(self.address):
            for _ in range(MAX_ATTEMPTS):
                try:
                    async with pool.connection() as db, transaction(db, role, tenant, begin, lock_milliseconds) as conn:
                        return await work(conn)
                except (TransactionConflict, *RETRYABLE_ERRORS):
                    continue
        raise StoreUnavailable(
            self.address, f"{MAX_ATTEMPTS} attempts conflicted with other writes to the conversation"
        )

    async def create_job_tables(self) -> None:
        """Create the tables of the job queue, if they do not exist."""
        await self.run_on_new_connection(self._create_job_tables)

    async def _create_job_tables(self, db: AsyncConnection) -> None:
        from minutebook.store.postgres.jobs import migrate_jobs  # imports procrastinate, an optional dependency

        assert self._recorded is not None
        await migrate_jobs(db, self.address, self._recorded.role)

    async def run_on_new_connection(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Call `work` with a new connection: outside any transaction, as the database user that the URL names."""
        await self.start()
        return await self._run_on_new_connection(work)

    async def _run_on_new_connection(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        db = await connect(self.url, self.address, self.timeout_seconds)
        try:
            with map_errors(self.address):
                return await work(db)
        finally:
            await db.close()

    def statistics(self) -> dict[str, int]:
        """The figures of the pool, with the driver's names; empty before `start`."""
        return {} if self._pool is None else self._pool.get_stats()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    def abandon(self) -> None:
        """Close the connections. The event loop need not be running."""
        for db in list(self._open_connections):
            db.pgconn.finish()


async def _require_open(db: AsyncConnection) -> None:
    """Raise if the server has closed the connection. Only reads the socket, so it takes no round trip."""
    db.pgconn.consume_input()
