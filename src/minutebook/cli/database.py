"""The store that a command works on, opened and closed; whether a database is whole, its size, and a copy of it.

A command is a plain function that prints; a store is asynchronous. `Database.run` carries out one operation and
`Database.each` goes through many, on one event loop for the whole command.
"""

import errno
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from minutebook.cli.interrupts import Stops
from minutebook.cli.options import own_database_url
from minutebook.cli.progress import counting
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    DocumentNotFound,
    InvalidSetting,
    StoreDamaged,
    closest,
)
from minutebook.record.finding import FindingKind
from minutebook.record.message import is_user
from minutebook.record.pairing import Pairing
from minutebook.store.base import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.store.sqlite.connection import APPLICATION, errors_of, opened, opened_to_read
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.types import Conversation, ConversationStatus
from minutebook.store.url import open_store

T = TypeVar("T")
PAGE: Final = 500
"""How many conversations are asked for at a time, where all are wanted."""
STEP: Final = 500
"""How many lines or entries are fetched before somebody else has a turn."""


class Database:
    """An open store and the event loop it is driven on."""

    def __init__(self, store: ConversationStore, runner: Stops) -> None:
        self.store = store
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What an operation returns. A conversation that is not there is named with one that might have been meant."""
        try:
            return self._runner.run(work)
        except ConversationErased:
            raise
        except ConversationNotFound as error:
            error.add_note(self._runner.run(_hint(self.store, error.conversation)))
            raise
        except DocumentNotFound as error:  # keys are the only documents that commands are asked for
            error.add_note("'minutebook keys list' lists the keys that there are")
            raise

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """What an operation gives bit by bit, a few hundred at a time."""
        while some := self.run(_some(items)):
            yield from some

    def conversations(
        self, *, recipient: str | None = None, status: ConversationStatus | None = None, limit: int | None = None
    ) -> Iterator[Conversation]:
        """The headers, newest first, a page at a time."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            wanted = PAGE if left is None else min(PAGE, left)
            page = self.run(self.store.list(recipient=recipient, status=status, cursor=cursor, limit=wanted))
            yield from page.items
            left = None if left is None else left - len(page.items)
            cursor = page.cursor
            if cursor is None:
                return


@contextmanager
def opened_database(url: str | None, tenant: str, *, make: bool = False) -> Iterator[Database]:
    """The database that `--db` and `--tenant` name; `make` it if it is not there.

    Raises:
        FileNotFoundError: there is none, and it is not to be made.
        InvalidSetting: the URL names none that outlives the command.
    """
    store = named_store(url, tenant)
    path = file_of(store)
    if make and path is not None and url is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not make and path is not None:
        require_file(path)
    with Stops() as runner:
        try:
            runner.run(store.__aenter__())
            yield Database(store, runner)
        finally:
            runner.run(store.close())


def named_store(url: str | None, tenant: str) -> ConversationStore:
    """The store that `--db` names, not yet opened; the one of whoever names none is a file in the folder for state.

    Raises:
        InvalidSetting: the URL names none that outlives the command.
    """
    store = open_store(url or own_database_url(), tenant=tenant)
    if isinstance(store, MemoryStore):
        raise InvalidSetting("--db", url, "a database that is still there when the command has ended")
    return store


def file_of(store: ConversationStore) -> Path | None:
    """The file that a store is kept in; None if it is on a server."""
    return Path(store.path) if isinstance(store, SqliteStore) else None


def require_file(path: Path) -> Path:
    """The database file, if it is there.

    Raises:
        FileNotFoundError: it is not.
    """
    if not path.exists():
        problem = "there is no such database; 'minutebook import' or 'minutebook db init' makes one, --db names another"
        raise FileNotFoundError(errno.ENOENT, problem, str(path))
    return path


async def _some(items: AsyncIterator[T]) -> list[T]:
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == STEP:
            break
    return found


async def _hint(store: ConversationStore, wanted: str) -> str:
    """An id on the first page that is like the wanted one."""
    known = [one.id for one in (await store.list(limit=PAGE)).items]
    near = next((one for one in known if one.startswith(wanted)), None) or closest(wanted, known)
    return f"did you mean {near!r}?" if near else "'minutebook ls' lists what there is"


def audited(database: Database, name: str, advance: Callable[[int], None]) -> Iterator[str]:
    """What is wrong with a conversation. It is read as it was at the beginning; what is appended meanwhile is not."""
    header = database.run(database.store.header(name))
    pairing, turns, position = Pairing(), 0, header.first
    while position < header.length:
        part = database.run(database.store.load(name, since=position, limit=min(STEP, header.length - position)))
        expected = position
        for at, message in zip(part.positions, part.messages, strict=True):
            if at != expected:
                yield f"no message at {expected}" if at == expected + 1 else f"no messages at {expected}-{at - 1}"
            for finding in pairing.problems(at, message):
                if finding.kind is not FindingKind.REUSED_ID:
                    yield str(finding)
            pairing.take(at, message)
            turns += is_user(message)
            expected = at + 1
        position = min(position + STEP, header.length)
        if expected != position:
            yield f"no messages at {expected}-{position - 1}"
        advance(len(part.entries))
    if not header.first and turns != header.turns:
        yield f"its header counts {header.turns:,} turns, and it has {turns:,}"
    waiting = sorted(call for call, count in pairing.open.items() for _ in range(count))
    if waiting != sorted(header.open_calls):
        yield f"its header says that {len(header.open_calls)} calls wait for results, and {len(waiting)} do"


PAGES: Final = 1000
"""How many pages are copied at a time."""
_COUNTS: Final = {
    "tenants": "SELECT count(DISTINCT tenant) FROM conversation",
    "conversations": "SELECT count(*) FROM conversation",
    "entries": "SELECT count(*) FROM entry",
    "folds": "SELECT count(*) FROM fold",
    "pins": "SELECT count(*) FROM pin",
    "erased": "SELECT count(*) FROM tombstone",
    "not_yet_indexed": "SELECT count(*) FROM unindexed",
}


def facts(path: Path) -> dict[str, Any]:
    """What kind of database a file is, and how large: `step` is the last migration it has seen. It is not migrated.

    Raises:
        StoreDamaged: it is no database of ours.
    """
    with _connection(path, opened_to_read) as db:
        step = int(db.execute("PRAGMA user_version").get)
        if db.execute("PRAGMA application_id").get != APPLICATION:
            raise StoreDamaged(f"sqlite:///{path}", "is a database of another program")
        counts = {name: int(db.execute(query).get) for name, query in _COUNTS.items()} if step else {}
    new = opened(":memory:")  # one that has just been made has seen every step
    newest = int(new.execute("PRAGMA user_version").get)
    new.close()
    log = Path(f"{path}-wal")
    return {
        "file": str(path),
        "sqlite": apsw.sqlite_lib_version(),
        "step": step,
        "newest_step": newest,
        **counts,
        "bytes": path.stat().st_size,
        "log_bytes": log.stat().st_size if log.exists() else 0,
    }


def integrity(path: Path) -> list[str]:
    """What SQLite finds wrong with the file."""
    with _connection(path, opened_to_read) as db:
        found = [str(problem) for (problem,) in db.execute("PRAGMA integrity_check")]
    return [problem for problem in found if problem != "ok"]


def copied(source: Path, target: Path) -> int:
    """Copy a database that may be in use, in one step as others see it; return the size of the copy."""
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as folder:
        made = Path(folder) / "copy.db"
        with _connection(source, opened_to_read) as db, _connection(made, apsw.Connection) as copy:
            # One snapshot for the whole copy: it need not begin again whenever somebody writes.
            db.execute("BEGIN")
            pages = int(db.execute("PRAGMA page_count").get)
            with counting("copying", pages, silent=True) as advance, copy.backup("main", db, "main") as work:
                while not work.done:
                    work.step(PAGES)
                    advance(PAGES)
            db.execute("ROLLBACK")
        shutil.copymode(source, made)
        made.replace(target)
    return target.stat().st_size


@contextmanager
def _connection(path: Path, connect: Callable[[str], apsw.Connection]) -> Iterator[apsw.Connection]:
    with errors_of(f"sqlite:///{path}"):
        db = connect(str(path))
        try:
            yield db
        finally:
            db.close()


PATIENCE_SECONDS: Final = 10.0
_SIZE: Final = "SELECT current_setting('server_version'), pg_database_size(current_database())"


def server_facts(database: Database, url: str) -> dict[str, Any]:
    """The version and the size of a PostgreSQL database; of another server, nothing."""
    if not url.startswith("postgres"):
        return {}
    from minutebook.store.postgres.connection import steps

    version, size = database.run(_asked(url))
    newest = steps()[-1][0]  # opening it has brought it there
    return {"postgresql": version, "step": newest, "newest_step": newest, "bytes": size}


async def _asked(url: str) -> tuple[str, int]:
    from minutebook.store.postgres.connection import connected, errors_of

    db = await connected(url, "postgresql", PATIENCE_SECONDS)
    async with db:
        with errors_of("postgresql"):
            row = await (await db.execute(_SIZE)).fetchone()
    assert row is not None
    return str(row[0]), int(row[1])
