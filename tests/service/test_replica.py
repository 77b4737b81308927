"""A second URL for reads that may be stale: lists, searches and exports come from a replica of the database."""

import asyncio

import pytest

from minutebook.errors import StoreReadOnly
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries
from tests.servers import Postgres, require_postgres
from tests.service.serving import served


@pytest.fixture(scope="module")
def servers():
    require_postgres()
    primary = Postgres.make()
    asyncio.run(fill(primary))
    replica = primary.make_replica()
    yield primary, replica
    replica.remove()
    primary.remove()


async def fill(primary):
    async with open_store(primary.url()) as store:
        await store.append("first", text_entries("the first message"), recipient="alice")


def freeze(replica, *, frozen):
    """Stop or continue applying the changes of the primary, so that the replica is stale."""
    import psycopg

    with psycopg.connect(replica.url(), autocommit=True) as db:
        db.execute("SELECT pg_wal_replay_pause()" if frozen else "SELECT pg_wal_replay_resume()")


@pytest.mark.slow
def test_lists_searches_and_exports_come_from_the_replica_and_everything_else_from_the_primary(servers):
    primary, replica = servers
    environment = {"MINUTEBOOK_DATABASE_READ_URL": replica.url(), "MINUTEBOOK_DATABASE_EXPIRE_AFTER": "30d"}
    primary.wait_for(replica)
    freeze(replica, frozen=True)

    with served(db=primary.url(), environment=environment) as service:
        http = service.http()
        service.client().chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "the second message"}],
            extra_headers={"X-Conversation-Id": "second"},
        )

        def seen():
            lists = [http.get("/v1/conversations"), http.get("/v1/conversations", params={"q": "message"})]
            return [[item["id"] for item in answer.json()["data"]] for answer in lists]

        assert seen() == [["first"], ["first"]]
        assert http.get("/v1/conversations/second").status_code == 200
        assert "the first message" in http.get("/v1/recipients/alice/export").text
        freeze(replica, frozen=False)
        primary.wait_for(replica)
        assert seen() == [["second", "first"], ["second", "first"]]


@pytest.mark.slow
def test_a_replica_can_be_read_and_says_that_it_cannot_be_written(servers):
    primary, replica = servers
    primary.wait_for(replica)

    async def scenario():
        async with open_store(replica.url()) as store:
            assert (await store.load("first")).entries[0].content == "the first message"
            assert len((await store.search("first")).items) == 1
            await expect_error(StoreReadOnly, store.append("first", text_entries("more")))
            return (await store.statistics()).connections

    assert asyncio.run(scenario()) >= 1
