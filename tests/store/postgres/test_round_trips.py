"""How many round trips to the server each operation takes, counted by a proxy between the store and the server."""

import asyncio

import psycopg
import pytest

from minutebook.record.fold import Fold
from minutebook.store.postgres.store import PostgresStore
from minutebook.testing.contract.samples import text_entries
from tests.servers import require_postgres, shared
from torture.proxy import run_proxy


@pytest.fixture
def proxy():
    require_postgres()
    parts = psycopg.conninfo.conninfo_to_dict(shared.empty())
    with run_proxy(parts["host"], int(parts["port"])) as proxy:
        host, port = proxy.address
        proxy.url = f"postgresql://{parts['user']}@{host}:{port}/{parts['dbname']}"
        yield proxy


def round_trips(proxy, *operations):
    """The number of round trips of each operation, called with an open store."""

    async def scenario():
        async with PostgresStore(proxy.url) as store:
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
