"""All stores. Tests of what they have in common run over this list."""

from pathlib import Path

import pytest

from minutebook.store.encryption import encrypted
from minutebook.store.memory import MemoryStore
from minutebook.store.url import open_store
from tests.servers import require_postgres, shared
from tests.store.redis import servers as servers_redis

KEY = bytes(range(32))


def memory(_folder: Path, **settings):
    return MemoryStore(**settings)


def sqlite(folder: Path, **settings):
    return open_store(f"sqlite:///{folder / 'chat.db'}", **settings)


def postgres(folder: Path, **settings):
    """An empty database for each new folder, and the same one for the same folder."""
    require_postgres()
    url_file = folder / "postgres.url"
    if not url_file.exists():
        url_file.write_text(shared.empty())
    return open_store(url_file.read_text(), **settings)


def redis(folder: Path, **settings):
    """A new prefix of keys for each new folder, and the same one for the same folder."""
    url_file = folder / "redis.url"
    if not url_file.exists():
        url_file.write_text(servers_redis.new_url())
    return open_store(url_file.read_text(), **settings)


def encrypted_memory(_folder: Path, **settings):
    return encrypted(MemoryStore(**settings), KEY)


def encrypted_sqlite(folder: Path, **settings):
    return encrypted(sqlite(folder, **settings), KEY)


BACKENDS = {
    "encrypted-memory": encrypted_memory,
    "encrypted-sqlite": encrypted_sqlite,
    "memory": memory,
    "postgres": postgres,
    "redis": redis,
    "sqlite": sqlite,
}
"""Name → a function that opens a store in a folder, which is empty if the folder is new."""


def each_backend(*quick):
    """All names as parameters. Those that are not `quick` run only in `make test-all`."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in sorted(BACKENDS)]
