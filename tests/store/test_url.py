"""Opening a store by its URL."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from minutebook.errors import InvalidSetting, MissingExtra
from minutebook.store.encryption import encrypted
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
    "name",
    [
        *("chat.db", "chat", "./chat.db", "data/chat.db", "../chat.db", "/srv/chat.db", "//server/share/chat.db"),
        *(
            r"C:\chat.db",
            "C:/data/chat.db",
            "c:chat.db",
            r"data\chat.db",
            "my chat 50%.db",
            "./a:b.db",
            "data//chat.db",
        ),
        *("redis.db", "memory.db", "postgres/chat.db"),
    ],
)
def test_a_name_without_a_scheme_is_a_file(name):
    store = open_store(name, tenant="acme")

    assert isinstance(store, SqliteStore)
    assert (store.path, store.tenant) == (name, "acme")


def test_a_file_name_with_options_is_no_file():
    """Otherwise messages would be stored without encryption in a file of that name."""
    with pytest.raises(InvalidSetting, match=r"a URL: sqlite:///chat\.db\?encryption_key_file=chat\.key"):
        open_store("chat.db?encryption_key_file=chat.key")


def test_a_path_is_a_file(tmp_path):
    store = open_store(tmp_path / "memory")

    assert isinstance(store, SqliteStore)
    assert store.path == str(tmp_path / "memory")


def test_a_named_file_is_created_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def scenario():
        async with open_store("chat.db") as store:
            await store.append("a", text_entries("x"))
        async with open_store(str(tmp_path / "chat.db")) as store:
            return (await store.header("a")).length

    assert asyncio.run(scenario()) == 1
    assert "chat.db" in {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "url",
    [
        *("", "\0", "sqlite:", "sqlite://", "sqlite:///", "sqlite://host/x", "sqlite:///x?mode=ro", "mysql://x"),
        *("localhost:5432/chat", "http://x"),
    ],
)
def test_an_invalid_url_is_rejected_with_the_valid_forms(url):
    with pytest.raises(InvalidSetting, match=r"a file name, sqlite:///file\.db"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        *(("postgres//x", "postgres://"), ("postgresql//u@h/x", "postgresql://"), ("postgre://x", "postgres://")),
        *(
            ("sqlit:///x", "sqlite://"),
            ("sqlite//x", "sqlite://"),
            ("sqlite", "sqlite://"),
            ("SQLite:///x", "sqlite://"),
        ),
        *(("rdis://x", "redis://"), ("redis//x", "redis://"), ("redis", "redis://")),
        *(("memory", "memory:"), ("memry:", "memory:"), ("memory:x", "memory:")),
    ],
)
def test_a_mistyped_url_is_not_a_file_and_the_error_names_the_likely_scheme(url, meant):
    with pytest.raises(InvalidSetting) as raised:
        open_store(url)

    assert str(raised.value).endswith(f"did you mean {meant}…?")


def test_the_error_does_not_show_the_password():
    for url in ("postgre://me:secret@host/chat", "postgres//me:secret@host/chat"):
        with pytest.raises(InvalidSetting) as raised:
            open_store(url)

        assert "secret" not in str(raised.value)
        assert "me:***@host/chat" in str(raised.value)


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


def test_a_store_is_opened_with_the_age_at_which_conversations_expire(tmp_path):
    month = timedelta(days=30)
    assert open_store("memory:", expire_after=month).expire_after == month
    assert open_store(str(tmp_path / "chat.db"), expire_after=month).expire_after == month
    assert open_store("redis://localhost", expire_after=month).expire_after == month
    assert open_store("postgresql://localhost/x", expire_after=month).expire_after == month
    assert encrypted(open_store("memory:", expire_after=month), bytes(32)).expire_after == month
    assert open_store("memory:").expire_after is None
    with pytest.raises(InvalidSetting, match="expire_after"):
        open_store("memory:", expire_after=timedelta(0))
