"""Opens the store that a URL names."""

from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from minutebook.errors import InvalidSetting, MissingExtra, require_type
from minutebook.store.base import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.store.rules import now

SERVERS: Final = {
    "postgresql": ("minutebook.store.postgres.store", "PostgresStore", "postgres"),
    "postgres": ("minutebook.store.postgres.store", "PostgresStore", "postgres"),
    "redis": ("minutebook.store.redis.store", "RedisStore", "redis"),
    "rediss": ("minutebook.store.redis.store", "RedisStore", "redis"),
}
"""Scheme → module, class, and the extra that installs the driver. The class is called with (url, tenant=…, clock=…)."""

_FORMS: Final = "a file name, sqlite:///file.db, sqlite:////folder/file.db, postgresql://…, redis://… or memory:"


def open_store(url: str | Path, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> ConversationStore:
    """The store with this URL: `sqlite:///chat.db`, `postgresql://…`, `redis://…` or `memory:`. A file name is SQLite.

    Nothing is read or written yet: `async with` or the first operation connects.

    Raises:
        InvalidSetting: the URL is not one of these.
        MissingExtra: the driver of the database is not installed.
    """
    require_type("store", url, (str, Path), _FORMS)
    if isinstance(url, Path):
        from minutebook.store.sqlite.store import SqliteStore

        return SqliteStore(str(url), tenant=tenant, clock=clock)
    scheme, separator, rest = url.partition(":")
    if not separator or "/" in scheme or "\\" in scheme or len(scheme) == 1:  # a file name; one letter is a drive
        from minutebook.store.sqlite.store import SqliteStore

        return SqliteStore(url, tenant=tenant, clock=clock)
    if scheme == "memory" and rest in {"", "//"}:
        return MemoryStore(tenant=tenant, clock=clock)
    if scheme == "sqlite":
        from minutebook.store.sqlite.store import SqliteStore

        return SqliteStore(_path(url, rest), tenant=tenant, clock=clock)
    if scheme in SERVERS:
        module, name, extra = SERVERS[scheme]
        try:
            store_class = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise MissingExtra(error.name or module, extra) from error
        store: ConversationStore = store_class(url, tenant=tenant, clock=clock)
        return store
    raise InvalidSetting("store", url, _FORMS)


def _path(url: str, rest: str) -> str:
    path = unquote(rest.removeprefix("///"))
    if not rest.startswith("///") or not path or "?" in rest or "\0" in path:
        raise InvalidSetting("store", url, _FORMS)
    return path
