"""Opening a store: what a failed attempt leaves behind, which errors pass, and files that cannot be written."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from minutebook.errors import MinutebookError, MissingKey, StoreDamaged, StoreRejected, StoreUnavailable
from minutebook.store.encryption import encrypted
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries
from tests.servers import require_postgres, shared
from tests.store.backends import BACKENDS, KEY

CLOSED_PORT = 1


def missing_folder(folder):
    return open_store(f"sqlite:///{folder / 'missing' / 'chat.db'}"), StoreRejected


def other_file(folder):
    (folder / "text.db").write_text("no database " * 100)
    return open_store(f"sqlite:///{folder / 'text.db'}"), StoreDamaged


def unreachable_postgres(_folder):
    return open_store(f"postgresql://u@127.0.0.1:{CLOSED_PORT}/x"), StoreUnavailable


def missing_database(_folder):
    require_postgres()
    return open_store(shared.empty() + "_missing"), StoreRejected


def unreachable_redis(_folder):
    return open_store(f"redis://127.0.0.1:{CLOSED_PORT}"), StoreUnavailable


def without_key(backend):
    def open_without_key(folder):
        async def fill():
            async with encrypted(BACKENDS[backend](folder), KEY) as store:
                await store.append("a", text_entries("1"))

        asyncio.run(fill())
        return BACKENDS[backend](folder), MissingKey

    return open_without_key


FAILURES = {
    "sqlite-missing-folder": missing_folder,
    "sqlite-other-file": other_file,
    "sqlite-without-key": without_key("sqlite"),
    "postgres-unreachable": unreachable_postgres,
    "postgres-missing-database": missing_database,
    "postgres-without-key": without_key("postgres"),
    "redis-unreachable": unreachable_redis,
    "redis-without-key": without_key("redis"),
}


def threads_and_descriptors():
    return set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_open_leaves_no_thread_and_no_descriptor(failure, tmp_path):
    store, expected = FAILURES[failure](tmp_path)
    before = counts = None

    async def scenario():
        nonlocal before, counts
        await asyncio.to_thread(int)  # starts a thread of the loop
        before = threads_and_descriptors()
        errors = []
        try:
            async with store:
                pass
        except MinutebookError as error:
            errors = [type(error)]
        counts = threads_and_descriptors()
        return errors

    assert asyncio.run(scenario()) == [expected]
    assert {thread.name for thread in counts[0] - before[0] if "asyncio" not in thread.name} == set()
    assert counts[1] == before[1]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_migration_that_was_changed_is_refused_by_name(backend, tmp_path):
    read = "SELECT value FROM setting WHERE name = 'migration 0001_first'"
    change = "UPDATE setting SET value = ? WHERE name = 'migration 0001_first'"

    async def scenario():
        async with BACKENDS[backend](tmp_path) as store:
            await store.append("a", text_entries("1"))
            ((checksum,),) = await store.backend.read(lambda tx: tx.rows(read))
            await store.backend.write(lambda tx: tx.execute(change, "other"))
            try:
                return str(await expect_error(StoreRejected, BACKENDS[backend](tmp_path).load("a")))
            finally:
                await store.backend.write(lambda tx: tx.execute(change, checksum))

    assert "has run another version of migration 0001_first" in asyncio.run(scenario())


READ_ONLY = """
import asyncio, os, subprocess, sys
from minutebook.cli.main import cli
from minutebook.errors import StoreReadOnly
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import text_entries

folder = sys.argv[1]
subprocess.run(["mount", "--bind", folder, folder], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

async def read():
    async with open_store(f"sqlite:///{folder}/chat.db") as store:
        assert [entry.content for entry in (await store.load("a")).entries] == ["1"]
        assert len((await store.list()).items) == 1
        assert len((await store.search("1")).items) == 1
        try:
            await store.append("a", text_entries("2"))
        except StoreReadOnly as error:
            print(error)

asyncio.run(read())
os.chdir(folder)
cli(["db", "status", "--db", "chat.db"])
"""


def run_with_read_only(folder):
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    command = ["unshare", "-rm", sys.executable, "-c", READ_ONLY, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
def test_a_database_on_a_read_only_file_system_can_be_read(tmp_path):
    async def fill():
        async with open_store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
            await store.append("a", text_entries("1"))

    asyncio.run(fill())
    done = run_with_read_only(tmp_path)

    assert done.stderr == ""
    assert "is on a read-only file system; nothing was written" in done.stdout
    assert "newest schema version" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
def test_a_log_on_a_read_only_file_system_is_not_ignored(tmp_path):
    async def fill():
        async with open_store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
            await store.append("a", text_entries("1"))
            (tmp_path / "copy").mkdir()
            for name in ("chat.db", "chat.db-wal"):
                (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())

    asyncio.run(fill())
    done = run_with_read_only(tmp_path / "copy")

    assert "has a write-ahead log, which cannot be read on a read-only file system" in done.stderr
