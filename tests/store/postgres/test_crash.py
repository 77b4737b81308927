"""Acknowledged means stored, on PostgreSQL: clients and servers are killed, and connections are cut."""

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
from tests.servers import Postgres, as_root, require_postgres, shared
from tests.store.writing import acknowledged, start, turn, whole_turns

KILLS, WRITERS = 8, 4


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


@pytest.fixture
def server():
    """A separate server that syncs every commit."""
    require_postgres()
    server = Postgres.make()
    yield server
    server.remove()


def test_no_acknowledged_turn_of_a_killed_client_is_lost(url):
    seen, draw = [], random.Random(4)

    for kill in range(KILLS):
        process = start(url, "a", WRITERS, 10_000, f"run{kill}")
        seen += acknowledged(process, draw.randint(1, 40))

    stored = whole_turns(url, "a")
    assert set(seen) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(seen) <= KILLS * WRITERS


def test_a_killed_client_that_retries_stores_nothing_twice(url):
    for lines in (5, 9, 14, 100):
        acknowledged(start(url, "a", WRITERS, 5, "same"), lines)

    assert sorted(whole_turns(url, "a")) == sorted(
        f"same {writer} {at}" for writer in range(WRITERS) for at in range(5)
    )


def test_two_processes_write_one_conversation_and_each_keeps_its_order(url):
    both = [start(url, "a", 10, 10, name) for name in ("left", "right")]
    keys = [key for process in both for key in acknowledged(process, 1_000)]

    stored = whole_turns(url, "a")
    assert sorted(stored) == sorted(keys)
    assert len(stored) == 200
    for name in ("left", "right"):
        for writer in range(10):
            own = [key for key in stored if key.startswith(f"{name} {writer} ")]
            assert own == [f"{name} {writer} {number}" for number in range(10)]


@pytest.mark.slow
def test_no_acknowledged_turn_of_a_killed_server_is_lost_and_no_retry_is_stored_twice(server):
    """The postmaster is killed twice under load. Every writer retries unacknowledged appends with the same key."""
    seen = []

    async def scenario():
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
            for signal_number in (signal.SIGKILL, signal.SIGQUIT):
                enough.clear()
                await enough.wait()
                await asyncio.to_thread(server.kill, signal_number)
                acknowledged_before = list(seen)
                await asyncio.to_thread(server.start)
                loaded = await store.load("a")
                stored = {entry.content for entry in loaded.entries if entry.role is MessageRole.USER}
                assert set(acknowledged_before) <= stored
            await asyncio.gather(*writers)

    asyncio.run(scenario())

    assert sorted(whole_turns(server.url(), "a")) == sorted(f"run {w} {n}" for w in range(WRITERS) for n in range(40))


def test_an_unreachable_database_is_an_error_until_it_is_reachable_again(server):
    async def scenario():
        async with PostgresStore(server.url(), timeout_seconds=1) as store:
            await store.append("a", text_entries("before"))
            server.kill()
            await expect_error(
                StoreUnavailable, store.append("a", text_entries("while it is down"), idempotency_key="k")
            )
            await expect_error(StoreUnavailable, store.load("a"))
            await expect_error(StoreUnavailable, open_store(server.url()).header("a"))
            server.start()
            assert texts((await store.load("a")).entries) == ["before"]
            assert await store.append("a", text_entries("while it is down"), idempotency_key="k") == 2
            assert await store.append("a", text_entries("after")) == 3
            return texts((await store.load("a")).entries)

    assert asyncio.run(scenario()) == ["before", "while it is down", "after"]


def test_an_append_whose_connection_is_cut_stores_nothing(url):
    """The connection is cut while the append waits for a lock."""

    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("before"))
            async with (
                await psycopg.AsyncConnection.connect(as_root(url)) as other,
                await psycopg.AsyncConnection.connect(
                    as_root(url), autocommit=True
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

    asyncio.run(scenario())
