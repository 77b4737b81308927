"""Opening a store by its URL."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from minutebook.errors import InvalidSetting, MissingExtra
from minutebook.store.memory import MemoryStore
from minutebook.store.sqlite.store import SqliteStore
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import text_entries
from tests.store.backends import BACKENDS


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///chat.db", "chat.db"),
        ("sqlite:///a/b.db", "a/b.db"),
        ("sqlite:////srv/chat.db", "/srv/chat.db"),
        ("sqlite:///my%20chat.db", "my chat.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url, path):
    store = open_store(url, tenant="acme")

    assert isinstance(store, SqliteStore)
    assert (store.path, store.tenant) == (path, "acme")


def test_memory_is_a_store():
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    "url", ["", "chat.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite://host/x", "sqlite:///x?mode=ro", "mysql://x"]
)
def test_an_invalid_url_is_rejected_with_the_valid_forms(url):
    with pytest.raises(InvalidSetting, match=r"sqlite:///file\.db"):
        open_store(url)


def test_the_error_names_a_driver_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "minutebook.store.postgres.store", raising=False)
    with pytest.raises(MissingExtra, match=r"minutebook\[postgres\]"):
        open_store("postgresql://localhost/x")


def test_a_memory_store_loads_no_driver():
    code = "import sys, minutebook.store.url as o; o.open_store('memory:'); print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"psycopg", "redis"}.isdisjoint(loaded)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_store_uses_the_clock_it_was_given(backend, tmp_path):
    times = iter(datetime(2030, 1, day, tzinfo=UTC) for day in range(1, 30))
    store = BACKENDS[backend](tmp_path, clock=lambda: next(times))

    async def scenario():
        async with store:
            await store.append("a", text_entries("x"))
            await store.append("a", text_entries("y"))
            await store.set_status("a", "closed")
            return await store.header("a")

    header = asyncio.run(scenario())
    first = header.created_at  # an encrypted store has read the clock before, for its key
    days = [(time - first).days for time in (header.created_at, header.updated_at, header.status_updated_at)]
    assert (first.year, days) == (2030, [0, 1, 2])
