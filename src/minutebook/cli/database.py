"""The database of a command: open it, check it, and show its size.

Commands are synchronous and stores are async. `Database.run` runs one store operation and `Database.each` iterates over
one, on a single event loop per command.
"""

import errno
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import apsw

from minutebook.cli.interrupts import InterruptibleRunner
from minutebook.cli.options import default_database_url
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    DocumentNotFound,
    InvalidSetting,
    StoreDamaged,
    closest,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.finding import FindingKind
from minutebook.record.message import MessageRole, is_user
from minutebook.record.pairing import Pairing
from minutebook.store.base import ConversationStore
from minutebook.store.encryption.marker import read_key
from minutebook.store.memory import MemoryStore
from minutebook.store.sqlite.connection import APPLICATION_ID, map_errors, migrations, open_reader
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.types import KEY_TENANT_PREFIX, RESERVED_TENANT, ConversationHeader, ConversationStatus
from minutebook.store.url import open_store

if TYPE_CHECKING:
    from minutebook.store.postgres.store import PostgresStore

T = TypeVar("T")
PAGE_SIZE: Final = 500
"""Conversations per page when all are listed."""
BATCH_SIZE: Final = 500
"""Lines or entries that are fetched at a time."""


class Database:
    """An open store and the event loop that its operations run on."""

    def __init__(self, store: ConversationStore, runner: InterruptibleRunner) -> None:
        self.store = store
        self._runner = runner

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run a store operation and return its result. A `ConversationNotFound` gets a note with a similar id."""
        try:
            return self._runner.run(operation)
        except ConversationErased:
            raise
        except ConversationNotFound as error:
            error.add_note(self._runner.run(_id_hint(self.store, error.conversation)))
            raise
        except DocumentNotFound as error:
            if error.kind == "key":
                error.add_note("'minutebook keys list' lists the keys")
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator, in batches."""
        while batch := self.run(_next_batch(items)):
            yield from batch

    def conversations(
        self, *, recipient: str | None = None, status: ConversationStatus | None = None, limit: int | None = None
    ) -> Iterator[ConversationHeader]:
        """Headers of the conversations, newest first. They are loaded in pages."""
        cursor: str | None = None
        remaining = limit
        while remaining is None or remaining > 0:
            page_size = PAGE_SIZE if remaining is None else min(PAGE_SIZE, remaining)
            page = self.run(self.store.list(recipient=recipient, status=status, cursor=cursor, limit=page_size))
            yield from page.items
            remaining = None if remaining is None else remaining - len(page.items)
            cursor = page.cursor
            if cursor is None:
                return


@contextmanager
def open_database(url: str | None, tenant: str, *, create: bool = False) -> Iterator[Database]:
    """Open the database of `--db` and `--tenant` for this block. With `create` it is created if it does not exist.

    Raises:
        FileNotFoundError: it does not exist and `create` is not set.
        InvalidSetting: the URL is that of a database in memory.
    """
    store = store_of(url, tenant)
    path = file_of(store)
    if create and path is not None and url is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not create and path is not None:
        require_file(path)
    with InterruptibleRunner() as runner:
        try:
            runner.run(store.__aenter__())
            yield Database(store, runner)
        finally:
            runner.run(store.close())


async def probe(store: ConversationStore) -> None:
    """Append to a new conversation, load it and remove it, so that a missing permission is found now.

    Raises:
        StoreUnavailable: one of them failed.
    """
    test_store = store.for_tenant("minutebook db init")
    name = str(uuid4())
    entry = ConversationEntry(MessageRole.USER, "a test of minutebook db init", uuid4(), 0, datetime.now(UTC))
    await test_store.append(name, [entry])
    try:
        loaded = await test_store.load(name)
        if loaded.entries != (entry,):
            raise StoreDamaged(type(store).__name__, "a message that was written could not be read")
    finally:
        await test_store.backend.remove_expired(name, datetime.now(UTC) + timedelta(days=1))


def store_of(url: str | None, tenant: str) -> ConversationStore:
    """The store of `--db`, not yet opened. Without a URL it is a file in the state folder.

    Raises:
        InvalidSetting: the URL is that of a database in memory.
    """
    key_file = os.environ.get("MINUTEBOOK_ENCRYPTION_KEY_FILE")
    store = open_store(
        url or default_database_url(), tenant=tenant, encryption_key=read_key(key_file) if key_file else None
    )
    if isinstance(getattr(store, "inner", store), MemoryStore):
        raise InvalidSetting(
            "--db", url, "a database that outlives the command: sqlite:///FILE, postgresql:// or redis://"
        )
    return store


def file_of(store: ConversationStore) -> Path | None:
    """The file of a SQLite store, None for other stores."""
    inner_store = getattr(store, "inner", store)  # an encrypted store has an inner store
    return Path(inner_store.path) if isinstance(inner_store, SqliteStore) else None


def postgres_of(store: ConversationStore) -> "PostgresStore | None":
    """The store, without its encryption, if it is on PostgreSQL. The driver is imported only then."""
    module = sys.modules.get("minutebook.store.postgres.store")
    inner_store = getattr(store, "inner", store)
    return inner_store if module is not None and isinstance(inner_store, module.PostgresStore) else None


def require_file(path: Path) -> Path:
    """Return the path of the database file.

    Raises:
        FileNotFoundError: it does not exist.
    """
    if not path.exists():
        problem = (
            "no such database; create it with 'minutebook db init' or 'minutebook import', or name another with --db"
        )
        raise FileNotFoundError(errno.ENOENT, problem, str(path))
    return path


async def _next_batch(items: AsyncIterator[T]) -> list[T]:
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == BATCH_SIZE:
            break
    return batch


async def _id_hint(store: ConversationStore, unknown_id: str) -> str:
    """A similar id on the first page, or how to list the ids."""
    ids = [header.id for header in (await store.list(limit=PAGE_SIZE)).items]
    similar = next((name for name in ids if name.startswith(unknown_id)), None) or closest(unknown_id, ids)
    return f"did you mean {similar!r}?" if similar else "'minutebook ls' lists the conversations"


def conversation_problems(database: Database, conversation: str, advance: Callable[[int], None]) -> Iterator[str]:
    """Yield the problems of a conversation. Messages that are appended meanwhile are not checked."""
    header = database.run(database.store.header(conversation))
    pairing, turns, start = Pairing(), 0, header.first
    folds = database.run(database.store.folds(conversation))
    # A rewind may hide calls without results.
    rewinds = {stored.fold.stop for stored in folds if not stored.undone_at and stored.fold.is_rewind}
    while start < header.length:
        limit = min(BATCH_SIZE, header.length - start)
        batch = database.run(database.store.load(conversation, since=start, limit=limit))
        expected = start
        for position, message in zip(batch.positions, batch.messages, strict=True):
            if position != expected:
                yield _missing_text(expected, position)
            if position in rewinds:
                pairing = Pairing()
            for finding in pairing.problems(position, message):
                if finding.kind is not FindingKind.REUSED_ID:
                    yield str(finding)
            pairing.add(position, message)
            turns += is_user(message)
            expected = position + 1
        start = min(start + BATCH_SIZE, header.length)
        if expected != start:
            yield _missing_text(expected, start)
        advance(len(batch.entries))
    if not header.first and turns != header.turns:
        yield f"the header counts {header.turns:,} turns, but the conversation has {turns:,}"
    if header.length in rewinds:
        pairing = Pairing()
    open_calls = sorted(call for call, count in pairing.open.items() for _ in range(count))
    if open_calls != sorted(header.open_calls):
        yield f"the header counts {len(header.open_calls)} open calls, but the conversation has {len(open_calls)}"


def _missing_text(start: int, stop: int) -> str:
    return f"message {start} is missing" if stop == start + 1 else f"messages {start}-{stop - 1} are missing"


MAX_COUNT: Final = 100_000
"""Maximum rows that a status counts of each kind, so that its time does not depend on the size of the database."""
MORE_THAN: Final = "more_than"
"""The key of a status whose value lists the counts that reached the maximum."""
_IS_OF_A_USER: Final = (
    f"tenant <> '{RESERVED_TENANT}' AND substr(tenant, 1, {len(KEY_TENANT_PREFIX)}) <> '{KEY_TENANT_PREFIX}'"
)
"""Excludes what minutebook itself stores, such as API keys and the data keys of an encryption."""
_COUNTED_ROWS: Final = {
    "tenants": f"SELECT tenant FROM conversation WHERE {_IS_OF_A_USER}",  # noqa: S608 - a constant of ours
    "conversations": f"SELECT 1 FROM conversation WHERE {_IS_OF_A_USER}",  # noqa: S608 - a constant of ours
    "entries": "SELECT 1 FROM entry",
    "folds": "SELECT 1 FROM fold",
    "pins": "SELECT 1 FROM pin",
    "erased": "SELECT 1 FROM tombstone",
    "encrypted": "SELECT 1 FROM setting WHERE name = 'encryption'",
    "indexed": "SELECT 1 FROM word_docsize UNION ALL SELECT 1 FROM pending_word",
}


def _file_counts(db: apsw.Connection) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for name, rows in _COUNTED_ROWS.items():
        counted = "DISTINCT tenant" if name == "tenants" else "*"
        counts[name] = int(db.execute(f"SELECT count({counted}) FROM ({rows} LIMIT {MAX_COUNT + 1})").get)  # noqa: S608 - constants of ours
    exceeded = [name for name, count in counts.items() if count > MAX_COUNT]
    if "conversations" in exceeded:
        exceeded.append("tenants")
    return _limited_counts(counts, exceeded)


def _limited_counts(counts: dict[str, Any], exceeded: Sequence[str]) -> dict[str, Any]:
    """The counts of a status. Those that reached the maximum are listed under `more_than`."""
    limited = {name: min(count, MAX_COUNT) if name in exceeded else count for name, count in counts.items()}
    return {**limited, MORE_THAN: list(exceeded)} if exceeded else limited


def tenant_counts(headers: Iterable[ConversationHeader]) -> dict[str, Any]:
    """The counts of a tenant's conversations, of which at most `MAX_COUNT` are read."""
    counts = dict.fromkeys(("conversations", "entries", "turns"), 0)
    for header in headers:
        if counts["conversations"] == MAX_COUNT:
            return {**counts, MORE_THAN: list(counts)}
        counts["conversations"] += 1
        counts["entries"] += header.length - header.first
        counts["turns"] += header.turns
    return counts


def status_lines(figures: Mapping[str, Any]) -> list[str]:
    """The figures of a status as text."""
    shown = {name: value for name, value in figures.items() if name != MORE_THAN}
    width = max(map(len, shown))
    lines = []
    for name, value in shown.items():
        text = f"{value:,}" if isinstance(value, int) else value
        prefix = "more than " if name in figures.get(MORE_THAN, ()) else ""
        lines.append(f"{name.replace('_', ' '):<{width}}  {prefix}{text}")
    return lines


def file_status(path: Path) -> dict[str, Any]:
    """Schema version, size and counts of a SQLite file, without migrating it.

    Raises:
        StoreDamaged: it is a database of another program.
    """
    with connection(path, open_reader) as db:
        schema_version = int(db.execute("PRAGMA user_version").get)
        if db.execute("PRAGMA application_id").get != APPLICATION_ID:
            raise StoreDamaged(f"sqlite:///{path}", "is a database of another program")
        counts = _file_counts(db) if schema_version else {}
    wal = Path(f"{path}-wal")
    return {
        "file": str(path),
        "sqlite": apsw.sqlite_lib_version(),
        "schema_version": schema_version,
        "newest_schema_version": migrations()[-1].number,
        **counts,
        "bytes": path.stat().st_size,
        "wal_bytes": wal.stat().st_size if wal.exists() else 0,
    }


def entry_count(path: Path) -> int:
    """The number of entries in a SQLite file. Reads the whole table."""
    with connection(path, open_reader) as db:
        return int(db.execute("SELECT count(*) FROM entry").get)


def integrity_problems(path: Path) -> list[str]:
    """The problems that SQLite finds in the file."""
    with connection(path, open_reader) as db:
        results = [str(result) for (result,) in db.execute("PRAGMA integrity_check")]
    return [result for result in results if result != "ok"]


@contextmanager
def connection(path: Path, connect: Callable[[str], apsw.Connection]) -> Iterator[apsw.Connection]:
    """A connection to a SQLite file for this block."""
    with map_errors(f"sqlite:///{path}"):
        db = connect(str(path))
        try:
            yield db
        finally:
            db.close()


CONNECT_TIMEOUT_SECONDS: Final = 10.0
_VERSION_AND_SIZE: Final = "SELECT current_setting('server_version'), pg_database_size(current_database())"
_TENANT_COUNTS: Final = (
    "SELECT count(*), coalesce(sum(length - first), 0)::bigint, coalesce(sum(turns), 0)::bigint"  # noqa: S608 - a constant of ours
    f" FROM (SELECT length, first, turns FROM minutebook.conversation WHERE tenant = %s LIMIT {MAX_COUNT}) AS counted"
)
_HAS_MORE: Final = f"SELECT EXISTS (SELECT FROM minutebook.conversation WHERE tenant = %s OFFSET {MAX_COUNT})"  # noqa: S608 - a constant of ours


async def postgres_status(url: str, tenant: str) -> dict[str, Any]:
    """Version and size of a PostgreSQL database, and counts of a tenant, in a transaction that cannot write.

    The database is neither created nor migrated.
    """
    from minutebook.store.postgres.connection import connect, migrations, read_role, schema_version
    from minutebook.store.postgres.connection import map_errors as map_postgres_errors

    db = await connect(url, "postgresql", CONNECT_TIMEOUT_SECONDS)
    async with db:
        with map_postgres_errors("postgresql"):
            await db.execute("BEGIN READ ONLY")
            version, size = await (await db.execute(_VERSION_AND_SIZE)).fetchone() or ("", 0)
            current = await schema_version(db, "postgresql")
            counts: dict[str, Any] = {}
            if current:
                configure = "SELECT set_config('role', %s, true), set_config('minutebook.tenant', %s, true)"
                await db.execute(configure, (await read_role(db), tenant))
                row = await (await db.execute(_TENANT_COUNTS, (tenant,))).fetchone() or ()
                counts = dict(zip(("conversations", "entries", "turns"), row, strict=True))
                if counts["conversations"] == MAX_COUNT:
                    (has_more,) = await (await db.execute(_HAS_MORE, (tenant,))).fetchone() or (False,)
                    counts |= {MORE_THAN: list(counts)} if has_more else {}
            await db.execute("ROLLBACK")
    versions = {"schema_version": current, "newest_schema_version": migrations()[-1].number}
    return {"postgresql": version, "tenant": tenant, **counts, **versions, "bytes": size}
