"""Every store we have. What holds of all of them is written once and run over this list."""

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
    """A database is emptied for each new folder; whoever comes with the same folder finds what was there."""
    require_postgres()
    known = folder / "postgres.url"
    if not known.exists():
        known.write_text(shared.empty())
    return open_store(known.read_text(), **settings)


def redis(folder: Path, **settings):
    """Keys begin with a word of their own for each new folder."""
    known = folder / "redis.url"
    if not known.exists():
        known.write_text(servers_redis.new_url())
    return open_store(known.read_text(), **settings)


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
"""Name → a function that makes a new, empty store in a folder of its own."""


def each_backend(*quick):
    """Every name as a parameter; those that are not `quick` run in `make test-all` only."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in sorted(BACKENDS)]
