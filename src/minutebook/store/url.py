"""Opens the store that a URL names."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from minutebook._lazy import import_with_extra
from minutebook.errors import InvalidSetting, closest, require_type
from minutebook.store.base import ConversationStore
from minutebook.store.encryption import encrypted
from minutebook.store.encryption.marker import read_key
from minutebook.store.memory import MemoryStore
from minutebook.store.rules import now
from minutebook.store.types import ConversationHeader

SERVERS: Final = {
    "postgresql": ("minutebook.store.postgres.store", "PostgresStore"),
    "postgres": ("minutebook.store.postgres.store", "PostgresStore"),
    "redis": ("minutebook.store.redis.store", "RedisStore"),
    "rediss": ("minutebook.store.redis.store", "RedisStore"),
}
"""Scheme → module and class of the store. The module needs an extra."""
SCHEMES: Final = ("sqlite", "memory", *SERVERS)
_FORMS: Final = "a file name, sqlite:///file.db, sqlite:////folder/file.db, postgresql://…, redis://… or memory:"
_PASSWORD: Final = re.compile(r"(//[^/@:]*:)[^/@]*@")


def open_store(
    url: str | Path,
    *,
    tenant: str = "default",
    clock: Callable[[], datetime] = now,
    expire_after: timedelta | None = None,
    search: bool | str | None = None,
    encryption_key: bytes | None = None,
    needs_job: Callable[[ConversationHeader], bool] | None = None,
) -> ConversationStore:
    """The store with this URL: `chat.db` or `sqlite:///chat.db`, `postgresql://…`, `redis://…` or `memory:`.

    A name without a scheme, or a `Path`, is a SQLite file, relative to the current folder or absolute. Nothing is read or
    written yet: `async with` or the first operation connects. With `expire_after`, conversations that got no append for that
    time are removed: see `ConversationStore.with_expiry`.

    `search` is chosen when a database is created: True for an index of words (the default), False for none, or a language
    such as "english" for an index that also finds other forms of a word. A URL can have it too:
    `sqlite:///chat.db?search=english`, with `words` or `off` for True and False. Redis has no index: there, `search` applies
    to each process. For a language, install `minutebook[stemming]`.

    `encryption_key` is the master key of an encrypted database: see `minutebook.store.encrypted`. A URL can name a file with
    the key: `sqlite:///chat.db?encryption_key_file=/run/secrets/chat.key`.

    A PostgreSQL URL can have the options `connections`, `role` and those of its driver: see `PostgresStore`. `needs_job` is
    for PostgreSQL only: it decides, given the new header, whether an append queues a background job.

    Raises:
        InvalidSetting: the URL is not one of these, `expire_after` is not positive, or the store has no background jobs.
        MissingExtra: the driver of the database is not installed.
    """
    require_type("store", url, (str, Path), _FORMS)
    if isinstance(url, str):
        url, url_search = _without_option(url, "search")
        search = url_search if search is None else search
        url, key_file = _without_option(url, "encryption_key_file")
        encryption_key = read_key(key_file) if key_file is not None and encryption_key is None else encryption_key
    store = _open(url, tenant, clock, expire_after, search, needs_job)
    return store if encryption_key is None else encrypted(store, encryption_key)


def files_of_url(url: str) -> list[Path]:
    """The files of the store with this URL: a SQLite database with its extra files, and the file with the key."""
    url, _ = _without_option(url, "search")
    url, key_file = _without_option(url, "encryption_key_file")
    database = _file_name(url)
    files = [] if database is None else [database + suffix for suffix in ("", "-wal", "-shm", "-journal")]
    return [Path(file) for file in (*files, key_file) if file is not None]


def _open(
    url: str | Path,
    tenant: str,
    clock: Callable[[], datetime],
    expire_after: timedelta | None,
    search: bool | str | None,
    needs_job: Callable[[ConversationHeader], bool] | None,
) -> ConversationStore:
    file = _file_name(url)
    if needs_job is not None and (file is not None or not str(url).startswith("postgres")):
        raise InvalidSetting("needs_job", needs_job, "None: only PostgreSQL has a queue of background jobs")
    if file is not None:
        from minutebook.store.sqlite.store import SqliteStore

        return SqliteStore(file, tenant=tenant, clock=clock, expire_after=expire_after, search=search)
    url = str(url)
    scheme, _, after_scheme = url.partition(":")
    if scheme == "memory" and after_scheme in {"", "//"}:
        return MemoryStore(tenant=tenant, clock=clock, expire_after=expire_after, search=search)
    if scheme in SERVERS:
        module, name = SERVERS[scheme]
        store_class = getattr(import_with_extra(module), name)
        options = {} if needs_job is None else {"needs_job": needs_job}
        store: ConversationStore = store_class(
            url, tenant=tenant, clock=clock, expire_after=expire_after, search=search, **options
        )
        return store
    raise _invalid(url, scheme)


def _without_option(url: str, name: str) -> tuple[str, str | None]:
    """The URL without an option, and the option's value."""
    address, mark, query = url.partition("?")
    scheme, colon, _ = address.partition(":")
    if not mark or not colon or scheme not in SCHEMES:
        return url, None
    options = query.split("&")
    values = [unquote(option.partition("=")[2]) for option in options if option.partition("=")[0] == name]
    other_options = "&".join(option for option in options if option.partition("=")[0] != name)
    return (f"{address}?{other_options}" if other_options else address), (values[-1] if values else None)


def _file_name(url: str | Path) -> str | None:
    """The file of a SQLite store, None for another store.

    A name is rejected that is probably a URL without its colon, such as `postgres//host` or `memory`, or that has options.
    """
    if isinstance(url, Path):
        return str(url)
    scheme, colon, after_scheme = url.partition(":")
    if colon and scheme == "sqlite":
        return _path(url, after_scheme)
    if colon and len(scheme) > 1 and "/" not in scheme and "\\" not in scheme:  # one letter is a drive
        return None
    before_slashes, slashes, _ = url.partition("//")
    if not url or "\0" in url or before_slashes in SCHEMES or (slashes and closest(before_slashes, SCHEMES)):
        raise _invalid(url, before_slashes)
    if "?" in url:  # otherwise an option such as encryption_key_file would become a part of the name
        raise InvalidSetting("store", url, f"a file name without '?'; with options, a URL: sqlite:///{url}")
    return url


def _path(url: str, after_scheme: str) -> str:
    path = unquote(after_scheme.removeprefix("///"))
    if not after_scheme.startswith("///") or not path or "?" in after_scheme or "\0" in path:
        raise _invalid(url)
    return path


def _invalid(url: str, scheme: str = "") -> InvalidSetting:
    """The error for a URL, without its password, and with the most similar scheme."""
    suggestion = scheme if scheme in SCHEMES else closest(scheme, SCHEMES)
    hint = f"; did you mean {suggestion}:{'' if suggestion == 'memory' else '//'}…?" if suggestion else ""
    return InvalidSetting("store", _PASSWORD.sub(r"\1***@", url), _FORMS + hint)
