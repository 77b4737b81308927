"""Groups of appends: one statement if the cached headers are current, and correct results if they are not."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from minutebook.errors import (
    ConversationErased,
    DocumentExists,
    IdempotencyConflict,
    LeaseLost,
    VersionConflict,
)
from minutebook.store.postgres.append import AppendPlan
from minutebook.store.postgres.writer import GroupWriter
from minutebook.store.types import NewDocument
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries, texts
from tests.servers import as_root, require_postgres, shared

END_OTHER_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


@pytest.fixture
def locked(monkeypatch):
    """The conversations of each group that was written under locks."""
    groups = []
    write = GroupWriter._write_locked

    async def record_and_write(self, group):
        groups.append([pending.command.conversation for pending in group])
        await write(self, group)

    monkeypatch.setattr(GroupWriter, "_write_locked", record_and_write)
    return groups


def test_an_append_to_a_cached_conversation_takes_one_statement(url, locked):
    async def scenario():
        async with open_store(url) as store:
            for number in range(4):
                await store.append("a", text_entries(f"{number}"), idempotency_key=f"k{number}")
            await store.append("a", text_entries("large " * 5_000))
            assert await store.append("a", text_entries("3"), idempotency_key="k3") == 4
            return texts((await store.load("a")).entries)

    found = asyncio.run(scenario())

    assert found == ["0", "1", "2", "3", "large " * 5_000]
    assert locked == [["a"], ["a"]], "the first append, and the repeated one"


def test_appends_with_leases_and_new_documents_take_one_statement(url, locked):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            lease = await store.acquire_lease("a", "w", seconds=60)
            replies = [NewDocument("reply", f"r{number}", {"x": number}) for number in range(3)]
            await store.append("a", text_entries("1"), lease=lease, documents=replies[:2])
            await store.append("a", text_entries("2"), lease=lease, documents=replies[2:], release=True)
            assert locked == [["a"]]
            await expect_error(LeaseLost, store.append("a", text_entries("3"), lease=lease))
            await store.append("b", text_entries("0"))
            await expect_error(DocumentExists, store.append("b", text_entries("1"), documents=replies[:1]))
            await store.append(
                "a", text_entries("3"), documents=[NewDocument("reply", "r1", {"x": "other"}, replace=True)]
            )
            documents = [
                (document.id, document.number, document.body["x"])
                for document in (await store.documents("a", "reply")).items
            ]
            return texts((await store.load("a")).entries), documents

    assert asyncio.run(scenario()) == (["0", "1", "2", "3"], [("r0", 1, 0), ("r1", 2, "other"), ("r2", 3, 2)])


def test_a_lease_taken_over_by_another_holder_is_lost_although_the_header_is_cached(url):
    async def scenario():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("0"))
            lease = await one.acquire_lease("a", "w", seconds=60)
            await one.append("a", text_entries("1"), lease=lease)
            await other.release_lease(lease)
            await other.acquire_lease("a", "another", seconds=60)
            await expect_error(LeaseLost, one.append("a", text_entries("2"), lease=lease))
            return texts((await one.load("a")).entries)

    assert asyncio.run(scenario()) == ["0", "1"]


def test_a_rejected_append_does_not_fail_the_others_of_its_group(url):
    async def scenario():
        async with open_store(url) as store:
            for name in "abcd":
                await store.append(name, text_entries("0"))
            results = await asyncio.gather(
                store.append("a", text_entries("1")),
                expect_error(VersionConflict, store.append("b", text_entries("1"), expected_version=7)),
                store.append("b", text_entries("2")),
                store.append("c", text_entries("1"), idempotency_key="k"),
                expect_error(IdempotencyConflict, store.append("c", text_entries("2"), idempotency_key="k")),
                store.append("d", text_entries("1"), expected_version=1),
                store.append("e", text_entries("0"), labels={"x": "y"}),
            )
            return results, [texts((await store.load(name)).entries) for name in "abcde"]

    results, stored = asyncio.run(scenario())

    assert [version for version in results if isinstance(version, int)] == [2, 2, 2, 2, 1]
    assert stored == [["0", "1"], ["0", "2"], ["0", "1"], ["0", "1"], ["0"]]


def test_appends_of_two_stores_to_one_conversation_follow_each_other(url, locked):
    async def scenario():
        async with open_store(url) as one, open_store(url) as other:
            for number in range(6):
                assert await (one, other)[number % 2].append("a", text_entries(f"{number}")) == number + 1
            return texts((await one.load("a")).entries)

    assert asyncio.run(scenario()) == [f"{number}" for number in range(6)]
    assert locked == 6 * [["a"]]


def test_no_concurrent_append_of_two_stores_with_cached_headers_is_lost(url):
    async def scenario():
        async with open_store(url) as one, open_store(url) as other:
            for name in "abc":
                await one.append(name, text_entries("begin"))
                await other.append(name, text_entries("begin"))
            writes = [(store, name, n) for n in range(20) for name in "abc" for store in (one, other)]
            versions = await asyncio.gather(
                *(store.append(name, text_entries(f"{id(store)} {n}")) for store, name, n in writes)
            )
            stored = {name: texts((await one.load(name)).entries) for name in "abc"}
            return versions, stored, writes

    versions, stored, writes = asyncio.run(scenario())

    assert sorted(versions) == sorted(3 * list(range(3, 43)))
    for name in "abc":
        assert sorted(stored[name][2:]) == sorted(f"{id(store)} {n}" for store, written, n in writes if written == name)


def test_appends_on_several_connections_keep_their_order(url, locked):
    """All of them have the same large text, so all of them update the use count of one payload."""
    large = "large " * 5_000

    async def append_eight(store, name):
        return [await store.append(name, text_entries(f"{number}", large)) for number in range(8)]

    async def scenario():
        async with open_store(url) as store:
            names = [f"c{number}" for number in range(24)]
            await asyncio.gather(*(store.append(name, text_entries("begin")) for name in names))
            versions = await asyncio.gather(*(append_eight(store, name) for name in names))
            return versions, [texts((await store.load(name)).entries) for name in names]

    versions, stored = asyncio.run(scenario())

    assert versions == 24 * [list(range(2, 10))]
    assert stored == 24 * [["begin", *(text for number in range(8) for text in (f"{number}", large))]]
    assert sorted(name for group in locked for name in group) == sorted(f"c{number}" for number in range(24))


def test_an_idempotency_key_used_by_another_store_is_found(url):
    async def scenario():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("x"))
            assert await other.append("a", text_entries("y"), idempotency_key="k") == 2
            assert await one.append("a", text_entries("y"), idempotency_key="k") == 2
            assert await one.append("a", text_entries("z")) == 3
            await expect_error(IdempotencyConflict, one.append("a", text_entries("other"), idempotency_key="k"))
            await expect_error(VersionConflict, one.append("a", text_entries("other"), expected_version=2))
            assert await one.append("a", text_entries("w"), expected_version=3) == 4

    asyncio.run(scenario())


def test_the_first_of_two_appends_with_one_key_in_one_group_is_stored(url):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("x"))
            results = await asyncio.gather(
                store.append("a", text_entries("y"), idempotency_key="k"),
                store.append("a", text_entries("y"), idempotency_key="k"),
                expect_error(IdempotencyConflict, store.append("a", text_entries("other"), idempotency_key="k")),
            )
            return results[:2], texts((await store.load("a")).entries)

    assert asyncio.run(scenario()) == ([2, 2], ["x", "y"])


def test_a_conversation_erased_by_another_store_is_not_created_again(url):
    async def scenario():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("x"))
            await one.append("a", text_entries("y"))
            await other.erase(conversation="a")
            await expect_error(ConversationErased, one.append("a", text_entries("z")))

    asyncio.run(scenario())


def test_a_connection_closed_by_the_server_is_replaced(url, locked):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            await store.append("a", text_entries("1"))
            with psycopg.connect(as_root(url), autocommit=True) as db:
                db.execute(END_OTHER_SESSIONS)
            async with open_store(url) as other:
                await other.load("a")  # by then the event loop has received the end of the connection
                await store.append("a", text_entries("2"))
                return texts((await other.load("a")).entries)

    assert asyncio.run(scenario()) == ["0", "1", "2"]
    assert locked == [["a"]]


def test_each_event_loop_has_its_own_connection(url, locked):
    store = open_store(url)
    for number in range(4):
        asyncio.run(store.append("a", text_entries(f"{number}")))

    async def read_and_close():
        stored = texts((await store.load("a")).entries)
        await store.close()
        return stored

    assert asyncio.run(read_and_close()) == ["0", "1", "2", "3"]
    assert locked == [["a"]]


def test_tenants_on_one_event_loop_do_not_see_each_other(url):
    async def scenario():
        async with open_store(url) as store:
            other = store.for_tenant("other")
            for number in range(3):
                await asyncio.gather(
                    store.append("a", text_entries(f"mine {number}")), other.append("a", text_entries(f"its {number}"))
                )
            return texts((await store.load("a")).entries), texts((await other.load("a")).entries)

    assert asyncio.run(scenario()) == ([f"mine {n}" for n in range(3)], [f"its {n}" for n in range(3)])


def test_the_first_of_two_documents_with_one_name_in_one_group_is_stored(url):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            replies = [NewDocument("reply", "r", {"x": number}) for number in range(2)]
            results = await asyncio.gather(
                store.append("a", text_entries("1"), documents=replies[:1]),
                store.append("a", text_entries("2"), documents=replies[:1]),
                expect_error(DocumentExists, store.append("a", text_entries("3"), documents=replies[1:])),
            )
            return results[:2], texts((await store.load("a")).entries), dict((await store.document("reply", "r")).body)

    assert asyncio.run(scenario()) == ([2, 3], ["0", "1", "2"], {"x": 0})


def test_an_expired_document_is_replaced_by_its_name_or_deleted_with_the_next_of_its_kind(url):
    now = [datetime(2030, 1, 1, tzinfo=UTC)]

    def new(name, value):
        return [NewDocument("reply", name, {"x": value}, expires_at=now[0] + timedelta(hours=1))]

    def stored():
        with psycopg.connect(as_root(url)) as db:
            return [name for (name,) in db.execute("SELECT id FROM minutebook.document ORDER BY id").fetchall()]

    async def scenario():
        async with open_store(url, clock=lambda: now[0]) as store:
            await store.append("a", text_entries("0"), documents=new("r", 0))
            await store.append("a", text_entries("1"), documents=new("s", 0))
            now[0] += timedelta(hours=2)
            await store.append("b", text_entries("0"), documents=new("r", 1))
            assert stored() == ["r"]
            return dict((await store.document("reply", "r")).body)

    assert asyncio.run(scenario()) == {"x": 1}


def test_a_conversation_erased_between_read_and_write_is_not_created_again(url, monkeypatch):
    load = AppendPlan.load.__func__

    async def load_then_erase(cls, conn, group):
        plan = await load(cls, conn, group)
        monkeypatch.undo()
        async with open_store(url) as other:
            await other.append("a", text_entries("x"))
            await other.erase(conversation="a")
        return plan

    monkeypatch.setattr(AppendPlan, "load", classmethod(load_then_erase))

    async def scenario():
        async with open_store(url) as store:
            await expect_error(ConversationErased, store.append("a", text_entries("y")))
            assert (await store.list()).items == ()

    asyncio.run(scenario())


def test_a_value_that_the_database_cannot_store_fails_no_other_conversation(url):
    async def scenario():
        async with open_store(url) as store:
            names = ["a", "b", "c"]
            await asyncio.gather(*(store.append(name, text_entries("0")) for name in names))
            lease = await store.acquire_lease("b", "w", seconds=60)
            bad = replace(lease, holder="a\0b")
            return await asyncio.gather(
                *(store.append(name, text_entries("1"), lease=bad if name == "b" else None) for name in names),
                return_exceptions=True,
            )

    first, error, last = asyncio.run(scenario())

    assert (first, last) == (2, 2)
    assert isinstance(error, LeaseLost)
