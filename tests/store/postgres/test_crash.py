"""Acknowledged means stored, on PostgreSQL: clients that are killed, and a database that goes away under them."""

import asyncio
import random
import signal

import psycopg
import pytest

from minutebook.errors import StoreUnavailable
from minutebook.record import MessageRole
from minutebook.store.postgres.store import PostgresStore
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries, texts
from tests.servers import Postgres, require_postgres, shared
from tests.store.writing import acknowledged, start, turn, whole_turns

KILLS, WRITERS = 8, 4


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


@pytest.fixture
def server():
    """A server of its own that waits for the disk, as a real one does."""
    require_postgres()
    made = Postgres.make()
    yield made
    made.remove()


def test_a_killed_client_loses_nothing_it_was_told(url):
    seen, number = [], random.Random(4)

    for kill in range(KILLS):
        process = start(url, "a", WRITERS, 10_000, f"run{kill}")
        seen += acknowledged(process, number.randint(1, 40))

    stored = whole_turns(url, "a")
    assert set(seen) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(seen) <= KILLS * WRITERS


def test_a_killed_client_that_tries_again_doubles_nothing(url):
    for lines in (5, 9, 14, 100):
        acknowledged(start(url, "a", WRITERS, 5, "same"), lines)

    assert sorted(whole_turns(url, "a")) == sorted(
        f"same {writer} {at}" for writer in range(WRITERS) for at in range(5)
    )


def test_two_processes_write_one_conversation_and_each_keeps_its_order(url):
    both = [start(url, "a", 10, 10, name) for name in ("left", "right")]
    said_by = [acknowledged(process, 1_000) for process in both]

    stored = whole_turns(url, "a")
    assert sorted(stored) == sorted(said_by[0] + said_by[1])
    assert len(stored) == 200
    for name in ("left", "right"):
        for writer in range(10):
            mine = [key for key in stored if key.startswith(f"{name} {writer} ")]
            assert mine == [f"{name} {writer} {number}" for number in range(10)]


@pytest.mark.slow
def test_a_killed_server_loses_nothing_it_acknowledged_and_who_tries_again_doubles_nothing(server):
    """The postmaster is killed twice under load; every writer repeats, with its key, what was not answered."""
    seen = []

    async def story():
        enough = asyncio.Event()

        async def write(store, writer):
            for number in range(40):
                key = f"run {writer} {number}"
                while True:
                    try:
                        await store.append("a", turn(*key.split()), idempotency_key=key)
                        break
                    except StoreUnavailable:
                        continue
                seen.append(key)
                enough.set()

        async with PostgresStore(server.url(), connections=3, timeout_seconds=5) as store:
            writers = [asyncio.ensure_future(write(store, writer)) for writer in range(WRITERS)]
            for how in (signal.SIGKILL, signal.SIGQUIT):
                enough.clear()
                await enough.wait()
                await asyncio.to_thread(server.kill, how)
                acknowledged_before = list(seen)
                await asyncio.to_thread(server.start)
                loaded = await store.load("a")
                kept = {entry.content for entry in loaded.entries if entry.role is MessageRole.USER}
                assert set(acknowledged_before) <= kept
            await asyncio.gather(*writers)

    asyncio.run(story())

    assert sorted(whole_turns(server.url(), "a")) == sorted(f"run {w} {n}" for w in range(WRITERS) for n in range(40))


def test_a_database_that_is_gone_is_an_error_and_works_again_when_it_is_back(server):
    async def story():
        async with PostgresStore(server.url(), timeout_seconds=1) as store:
            await store.append("a", text_entries("before"))
            server.kill()
            await expect_error(
                StoreUnavailable, store.append("a", text_entries("while it is away"), idempotency_key="k")
            )
            await expect_error(StoreUnavailable, store.load("a"))
            await expect_error(StoreUnavailable, open_store(server.url()).header("a"))
            server.start()
            assert texts((await store.load("a")).entries) == ["before"]
            assert await store.append("a", text_entries("while it is away"), idempotency_key="k") == 2
            assert await store.append("a", text_entries("after")) == 3
            return texts((await store.load("a")).entries)

    assert asyncio.run(story()) == ["before", "while it is away", "after"]


def test_a_connection_that_is_cut_in_mid_append_leaves_nothing_behind(url):
    """The append waits for a lock when its connection is cut; it is refused, and the record is as it was."""

    async def story():
        async with open_store(url) as store:
            await store.append("a", text_entries("before"))
            async with (
                await psycopg.AsyncConnection.connect(url) as other,
                await psycopg.AsyncConnection.connect(
                    url, autocommit=True
                ) as watching,  # a transaction sees one moment
            ):
                await other.execute("SELECT 1 FROM minutebook.conversation FOR UPDATE")
                late = asyncio.ensure_future(store.append("a", text_entries("cut off")))
                cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                while not await (await watching.execute(cut)).fetchall():
                    continue
                await expect_error(StoreUnavailable, late)
            assert texts((await store.load("a")).entries) == ["before"]
            assert await store.append("a", text_entries("after")) == 2

    asyncio.run(story())
