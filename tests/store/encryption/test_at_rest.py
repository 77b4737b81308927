"""A database records that it is encrypted, is opened with its key only, and can be encrypted in place."""

import asyncio
import stat
from base64 import b64encode
from contextlib import closing
from datetime import timedelta

import apsw
import pytest

from minutebook.errors import InvalidSetting, MissingKey, StoreRejected, StoreUnavailable, WrongKey
from minutebook.store.encryption import encrypted, marker
from minutebook.store.encryption.in_place import encrypt_in_place
from minutebook.store.encryption.marker import read_key
from minutebook.store.sqlite import vacuum
from minutebook.store.types import NewDocument
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import entries_of, expect_error, summary_fold, text_entries, turns
from tests.store.backends import BACKENDS

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


def run(scenario):
    return asyncio.run(scenario())


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_an_encrypted_database_is_opened_with_its_key_only(backend, tmp_path):
    open_plain = BACKENDS[backend]

    async def scenario():
        async with encrypted(open_plain(tmp_path), KEY) as store:
            await store.append("a", text_entries("secret"))
        for operation in ("load", "header", "append"):
            store = open_plain(tmp_path)
            arguments = ("a", text_entries("late")) if operation == "append" else ("a",)
            error = await expect_error(MissingKey, getattr(store, operation)(*arguments))
            assert "encryption_key_file=FILE" in str(error)
            await store.close()
        store = encrypted(open_plain(tmp_path), OTHER)
        await expect_error(WrongKey, store.load("a"))
        await store.close()
        async with encrypted(open_plain(tmp_path), OTHER, old_keys=[KEY]) as store:
            await store.rotate(OTHER)
        async with encrypted(open_plain(tmp_path), OTHER) as store:
            assert [entry.content for entry in (await store.load("a")).entries] == ["secret"]
            assert await store.with_expiry(timedelta(days=1)).header("a")
        store = encrypted(open_plain(tmp_path), KEY)
        await expect_error(WrongKey, store.load("a"))
        await store.close()

    run(scenario)


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_a_key_for_a_database_that_is_not_encrypted_is_refused(backend, tmp_path):
    async def scenario():
        async with BACKENDS[backend](tmp_path) as store:
            await store.for_tenant("other").append("a", text_entries("plain"))
        store = encrypted(BACKENDS[backend](tmp_path), KEY)
        assert "db encrypt" in str(await expect_error(InvalidSetting, store.append("a", text_entries("x"))))
        await store.close()
        async with BACKENDS[backend](tmp_path) as store:
            assert (await store.for_tenant("other").load("a")).entries[0].content == "plain"

    run(scenario)


def test_a_url_names_the_file_with_the_key(tmp_path):
    key_file = tmp_path / "chat.key"
    key_file.write_bytes(b64encode(KEY) + b"\n")
    url = f"sqlite:///{tmp_path}/chat.db?encryption_key_file={key_file}"

    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("secret words"))
        async with open_store(tmp_path / "chat.db", encryption_key=KEY) as store:
            assert len((await store.search("words")).items) == 1

    run(scenario)
    assert b"secret" not in (tmp_path / "chat.db").read_bytes()


@pytest.mark.parametrize("content", [KEY, b64encode(KEY), KEY.hex().encode() + b"\n"])
def test_a_key_file_has_bytes_or_text(tmp_path, content):
    file = tmp_path / "key"
    file.write_bytes(content)

    assert read_key(file) == KEY


@pytest.mark.parametrize("content", [b"", b"short", b"*" * 44, b"z" * 64, None])
def test_another_key_file_is_refused(tmp_path, content):
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InvalidSetting, match="32 random bytes"):
        read_key(file)


def test_new_files_are_readable_by_their_owner_only(tmp_path):
    async def scenario():
        async with open_store(tmp_path / "chat.db") as store:
            await store.append("a", text_entries("x"))
            return {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    modes = run(scenario)
    assert {"chat.db", "chat.db-wal", "chat.db-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def fill(store):
    """Two tenants with forks, folds, purged and trimmed entries, documents, idempotency keys and an open call."""
    for tenant in ("default", "other"):
        here = store.for_tenant(tenant)
        await here.append("a", turns(4), recipient="alice", idempotency_key="first", labels={"team": "blue"})
        await here.append("a", text_entries("planted " * 3_000))
        await here.fork("a", "b", at=5)
        await here.append("b", text_entries("planted in the fork"))
        await here.fork("b", "c")
        await here.add_fold("a", summary_fold("f", 0, 5, "planted summary"))
        await here.purge("a", before=5)
        result = (await here.load("b", since=2, limit=1)).entries[0]
        await here.trim("b", {2: {"role": "tool", "tool_call_id": result.tool_call_id, "content": "cut"}})
        await here.put_document("a", NewDocument("kind", "d1", {"text": "planted document"}))
        calls = [{"id": "open1", "type": "function", "function": {"name": "look", "arguments": '{"a": "planted"}'}}]
        await here.append(
            "d", entries_of([{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}])
        )


async def contents(store):
    state = []
    for tenant in ("default", "other"):
        here = store.for_tenant(tenant)
        for name in ("a", "b", "c", "d"):
            loaded = await here.load(name)
            state.append((loaded.conversation, loaded.entries, loaded.folds, loaded.positions))
        state.append((await here.document("kind", "d1")).body)
    return state


def test_a_database_is_encrypted_in_place(tmp_path):
    path = tmp_path / "chat.db"

    async def scenario():
        async with open_store(path) as store:
            await fill(store)
            before = await contents(store)
        assert b"planted" in path.read_bytes()
        interrupted = open_store(path)
        remaining = [1, 2, 3, 4]
        await expect_error(IndexError, encrypt_in_place(interrupted, KEY, lambda _count: remaining.pop()))
        await interrupted.close()
        for store in (open_store(path), open_store(path, encryption_key=KEY)):
            await expect_error((MissingKey, StoreRejected), store.load("a"))  # type: ignore[arg-type]
            await store.close()
        for expected in (3, 0):
            store = open_store(path)
            assert await encrypt_in_place(store, KEY, lambda _count: None) == expected
            await store.close()
        other_key = open_store(path)
        await expect_error(WrongKey, encrypt_in_place(other_key, OTHER, lambda _count: None))
        await other_key.close()
        async with open_store(path, encryption_key=KEY) as store:
            assert await contents(store) == before
            assert await store.append("a", turns(4), idempotency_key="first") == 1
            assert len((await store.search("planted", conversation="b")).items) == 1
            results = [{"role": "tool", "tool_call_id": "open1", "content": "found"}]
            assert await store.append("d", entries_of(results)) == 2
            await store.append("c", text_entries("goes on"))
            await store.erase(recipient="alice")

    run(scenario)
    with apsw.Connection(str(path)) as db:
        assert db.execute("SELECT value FROM setting WHERE name = ?", (marker.SETTING,)).get
    for file in tmp_path.iterdir():
        assert b"planted" not in file.read_bytes()


def test_an_encryption_in_place_is_not_complete_while_a_reader_keeps_plaintext_in_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(vacuum, "LOG_WAIT_SECONDS", 0.0)
    path = tmp_path / "chat.db"

    async def encrypt():
        store = open_store(path)
        try:
            return await encrypt_in_place(store, KEY, lambda _count: None)
        finally:
            await store.close()

    async def scenario():
        async with open_store(path) as store:
            await fill(store)
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN; SELECT count(*) FROM entry").fetchall()
            for _ in range(2):
                await expect_error(StoreUnavailable, encrypt())
        assert await encrypt() == 0
        async with open_store(path, encryption_key=KEY) as store:
            assert len(await contents(store))

    run(scenario)
