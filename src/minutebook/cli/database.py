"""The store that a command works on: opened, driven from code that does not wait, and closed whatever happens.

A command is a plain function that prints; a store is asynchronous. `Database.run` carries out one operation and
`Database.each` goes through many, on one event loop for the whole command.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from minutebook.cli.state import state_folder
from minutebook.errors import ConversationErased, ConversationNotFound, InvalidSetting
from minutebook.store.contract import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.store.open import open_store
from minutebook.store.sqlite import SqliteStore
from minutebook.store.types import Conversation, ConversationStatus

T = TypeVar("T")
PAGE: Final = 500
"""How many conversations are asked for at a time, where all are wanted."""
STEP: Final = 500
"""How many lines or entries are fetched before somebody else has a turn."""


class Database:
    """An open store and the event loop it is driven on."""

    def __init__(self, store: ConversationStore, runner: asyncio.Runner) -> None:
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
    with asyncio.Runner() as runner:
        try:
            runner.run(_open(store))
            yield Database(store, runner)
        finally:
            runner.run(store.close())


def named_store(url: str | None, tenant: str) -> ConversationStore:
    """The store that `--db` names, not yet opened; the one of whoever names none is a file in the folder for state.

    Raises:
        InvalidSetting: the URL names none that outlives the command.
    """
    store = open_store(url or f"sqlite:///{quote(str(state_folder() / 'minutebook.db'))}", tenant=tenant)
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


async def _open(store: ConversationStore) -> None:
    await store.__aenter__()  # opened here, and closed by whoever has the loop


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
    near = [one for one in known if one.startswith(wanted)] or get_close_matches(wanted, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "'minutebook ls' lists what there is"
