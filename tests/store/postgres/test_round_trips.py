"""How many round trips to the server each operation takes, counted by a proxy between the store and the server."""

import asyncio

import psycopg
import pytest

from minutebook.record.fold import Fold
from minutebook.store.postgres import engine
from minutebook.store.postgres.store import PostgresStore
from minutebook.store.types import NewDocument
from minutebook.testing.contract.samples import text_entries, turns
from tests.servers import require_postgres, shared
from torture.proxy import run_proxy


@pytest.fixture
def proxy(monkeypatch):
    require_postgres()
    monkeypatch.setattr(engine, "IDLE_SECONDS", 3600, raising=False)  # no background indexing meanwhile
    parts = psycopg.conninfo.conninfo_to_dict(shared.empty())
    with run_proxy(parts["host"], int(parts["port"])) as proxy:
        host, port = proxy.address
        proxy.url = f"postgresql://{parts['user']}@{host}:{port}/{parts['dbname']}"
        yield proxy


def round_trips(proxy, *operations):
    """The number of round trips of each operation, called with an open store."""

    async def scenario():
        async with PostgresStore(proxy.url) as store:
            for number in range(20):  # opens the connections of all writers
                await store.append(f"{number}", text_entries("1"), expected_version=0)
            await store.append("a", text_entries("1", "2", "3"))
            await store.append("a", text_entries("4"))
            await store.pin("a", 0)
            await store.add_fold("a", Fold("f", 0, 2, ({"role": "user", "content": "short"},), "test"))
            await store.fork("a", "b", at=2)
            await store.load("a")
            counts = []
            for operation in operations:
                before = proxy.round_trips
                await operation(store)
                counts.append(proxy.round_trips - before)
            return counts

    return asyncio.run(scenario())


def test_a_load_takes_one_round_trip(proxy):
    assert round_trips(
        proxy,
        lambda store: store.load("a"),
        lambda store: store.load("a", last_messages=2),
        lambda store: store.load("a", last_turns=1, folded=True),
        lambda store: store.load("b", since=1, limit=1),
    ) == [1, 1, 1, 1]


def test_leases_and_appends_take_one_round_trip(proxy):
    leases = []

    async def acquire(store):
        leases.append((await store.acquire_and_load("a", "w", seconds=60)).lease)

    async def append(store):
        documents = [NewDocument("minutes", f"{number}", {}) for number in range(5)]
        await store.append("a", text_entries("5"), lease=leases[-1], documents=documents, idempotency_key="k")

    async def append_and_release(store):
        await store.append("a", text_entries("6"), lease=leases[-1], release=True)

    assert (
        round_trips(
            proxy,
            acquire,
            append,
            append_and_release,
            lambda store: store.acquire_lease("a", "w", seconds=60),
            lambda store: store.renew_leases(leases * 100, seconds=60),
            lambda store: store.release_lease(leases[-1]),
            lambda store: store.header("a"),
            lambda store: store.document("minutes", "1"),
        )
        == [1] * 8
    )


def test_an_append_to_an_unknown_conversation_takes_two_round_trips(proxy):
    documents = [NewDocument("minutes", f"{number}", {}) for number in range(5)]

    assert round_trips(
        proxy,
        lambda store: store.append("new", text_entries("1"), documents=documents),
        lambda store: store.append("created", text_entries("1"), expected_version=0),
    ) == [2, 1]


def test_expired_documents_are_not_looked_for_with_every_document(proxy):
    def put(number):
        return lambda store: store.put_document("a", NewDocument("reply", f"{number}", {}))

    first, second, third = round_trips(proxy, put(1), put(2), put(3))

    assert first == second + 1
    assert second == third


def test_the_round_trips_of_a_trim_do_not_grow_with_the_number_of_messages(proxy):
    async def trim(store, count):
        await store.append(f"long {count}", turns(count))
        loaded = await store.load(f"long {count}")
        results = {
            position: {**message, "content": ""}
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
            if message["role"] == "tool"
        }
        before = proxy.round_trips
        assert await store.trim(f"long {count}", results) == len(results)
        return proxy.round_trips - before

    counts = []

    async def trim_both(store):
        counts.extend([await trim(store, 1), await trim(store, 30)])

    round_trips(proxy, trim_both)

    assert counts[0] == counts[1] <= 16
