"""Groups of appends: one statement where what is remembered is still so, and right where it is not."""

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
from tests.servers import require_postgres, shared

ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


@pytest.fixture
def locked(monkeypatch):
    """The conversations of each group that was decided by what was read under locks."""
    groups = []
    write = GroupWriter._write_locked

    async def noting(self, group):
        groups.append([one.command.conversation for one in group])
        await write(self, group)

    monkeypatch.setattr(GroupWriter, "_write_locked", noting)
    return groups


def test_a_conversation_that_is_remembered_takes_one_statement(url, locked):
    async def story():
        async with open_store(url) as store:
            for number in range(4):
                await store.append("a", text_entries(f"{number}"), idempotency_key=f"k{number}")
            await store.append("a", text_entries("large " * 5_000))
            assert await store.append("a", text_entries("3"), idempotency_key="k3") == 4
            return texts((await store.load("a")).entries)

    found = asyncio.run(story())

    assert found == ["0", "1", "2", "3", "large " * 5_000]
    assert locked == [["a"], ["a"]], "the new one, and the one that was stored before"


def test_leases_and_new_documents_take_one_statement_too(url, locked):
    async def story():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            lease = await store.acquire_lease("a", "w", seconds=60)
            made = [NewDocument("reply", f"r{number}", {"x": number}) for number in range(3)]
            await store.append("a", text_entries("1"), lease=lease, documents=made[:2])
            await store.append("a", text_entries("2"), lease=lease, documents=made[2:], release=True)
            assert locked == [["a"]]
            await expect_error(LeaseLost, store.append("a", text_entries("3"), lease=lease))
            await store.append("b", text_entries("0"))
            await expect_error(DocumentExists, store.append("b", text_entries("1"), documents=made[:1]))
            await store.append(
                "a", text_entries("3"), documents=[NewDocument("reply", "r1", {"x": "other"}, replace=True)]
            )
            found = (await store.documents("a", "reply")).items
            return texts((await store.load("a")).entries), [(one.id, one.number, one.body["x"]) for one in found]

    assert asyncio.run(story()) == (["0", "1", "2", "3"], [("r0", 1, 0), ("r1", 2, "other"), ("r2", 3, 2)])


def test_a_lease_that_somebody_else_took_is_lost_also_where_the_conversation_is_remembered(url):
    async def story():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("0"))
            lease = await one.acquire_lease("a", "w", seconds=60)
            await one.append("a", text_entries("1"), lease=lease)
            await other.release_lease(lease)
            await other.acquire_lease("a", "another", seconds=60)
            await expect_error(LeaseLost, one.append("a", text_entries("2"), lease=lease))
            return texts((await one.load("a")).entries)

    assert asyncio.run(story()) == ["0", "1"]


def test_what_is_refused_in_a_group_does_not_fail_the_others(url):
    async def story():
        async with open_store(url) as store:
            for name in "abcd":
                await store.append(name, text_entries("0"))
            done = await asyncio.gather(
                store.append("a", text_entries("1")),
                expect_error(VersionConflict, store.append("b", text_entries("1"), expected_version=7)),
                store.append("b", text_entries("2")),
                store.append("c", text_entries("1"), idempotency_key="k"),
                expect_error(IdempotencyConflict, store.append("c", text_entries("2"), idempotency_key="k")),
                store.append("d", text_entries("1"), expected_version=1),
                store.append("e", text_entries("0"), labels={"x": "y"}),
            )
            return done, [texts((await store.load(name)).entries) for name in "abcde"]

    done, found = asyncio.run(story())

    assert [one for one in done if isinstance(one, int)] == [2, 2, 2, 2, 1]
    assert found == [["0", "1"], ["0", "2"], ["0", "1"], ["0", "1"], ["0"]]


def test_what_somebody_else_wrote_meanwhile_is_kept_and_counted(url, locked):
    async def story():
        async with open_store(url) as one, open_store(url) as other:
            for number in range(6):
                assert await (one, other)[number % 2].append("a", text_entries(f"{number}")) == number + 1
            return texts((await one.load("a")).entries)

    assert asyncio.run(story()) == [f"{number}" for number in range(6)]
    assert locked == 6 * [["a"]]


def test_many_at_once_from_two_who_both_think_they_know_lose_nothing(url):
    async def story():
        async with open_store(url) as one, open_store(url) as other:
            for name in "abc":
                await one.append(name, text_entries("begin"))
                await other.append(name, text_entries("begin"))
            writes = [(store, name, n) for n in range(20) for name in "abc" for store in (one, other)]
            versions = await asyncio.gather(
                *(store.append(name, text_entries(f"{id(store)} {n}")) for store, name, n in writes)
            )
            found = {name: texts((await one.load(name)).entries) for name in "abc"}
            return versions, found, writes

    versions, found, writes = asyncio.run(story())

    assert sorted(versions) == sorted(3 * list(range(3, 43)))
    for name in "abc":
        assert sorted(found[name][2:]) == sorted(f"{id(store)} {n}" for store, at, n in writes if at == name)


def test_what_goes_through_several_connections_at_once_keeps_its_order(url, locked):
    """Also where all of it holds the same large text, which is one row that everybody counts up."""
    large = "large " * 5_000

    async def writer(store, name):
        return [await store.append(name, text_entries(f"{number}", large)) for number in range(8)]

    async def story():
        async with open_store(url) as store:
            names = [f"talk {number}" for number in range(24)]
            await asyncio.gather(*(store.append(name, text_entries("begin")) for name in names))
            versions = await asyncio.gather(*(writer(store, name) for name in names))
            return versions, [texts((await store.load(name)).entries) for name in names]

    versions, found = asyncio.run(story())

    assert versions == 24 * [list(range(2, 10))]
    assert found == 24 * [["begin", *(text for number in range(8) for text in (f"{number}", large))]]
    assert sorted(name for group in locked for name in group) == sorted(f"talk {number}" for number in range(24))


def test_a_key_that_somebody_else_used_is_found(url):
    async def story():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("x"))
            assert await other.append("a", text_entries("y"), idempotency_key="k") == 2
            assert await one.append("a", text_entries("y"), idempotency_key="k") == 2
            assert await one.append("a", text_entries("z")) == 3
            await expect_error(IdempotencyConflict, one.append("a", text_entries("other"), idempotency_key="k"))
            await expect_error(VersionConflict, one.append("a", text_entries("other"), expected_version=2))
            assert await one.append("a", text_entries("w"), expected_version=3) == 4

    asyncio.run(story())


def test_of_two_bodies_under_one_key_in_one_group_the_first_is_stored(url):
    async def story():
        async with open_store(url) as store:
            await store.append("a", text_entries("x"))
            done = await asyncio.gather(
                store.append("a", text_entries("y"), idempotency_key="k"),
                store.append("a", text_entries("y"), idempotency_key="k"),
                expect_error(IdempotencyConflict, store.append("a", text_entries("other"), idempotency_key="k")),
            )
            return done[:2], texts((await store.load("a")).entries)

    assert asyncio.run(story()) == ([2, 2], ["x", "y"])


def test_what_was_erased_by_somebody_else_is_not_brought_back(url):
    async def story():
        async with open_store(url) as one, open_store(url) as other:
            await one.append("a", text_entries("x"))
            await one.append("a", text_entries("y"))
            await other.erase(conversation="a")
            await expect_error(ConversationErased, one.append("a", text_entries("z")))

    asyncio.run(story())


def test_a_connection_that_the_server_ended_is_replaced(url, locked):
    async def story():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            await store.append("a", text_entries("1"))
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(ENDED)
            async with open_store(url) as other:
                await other.load("a")  # by then the loop has heard of it
                await store.append("a", text_entries("2"))
                return texts((await other.load("a")).entries)

    assert asyncio.run(story()) == ["0", "1", "2"]
    assert locked == [["a"]]


def test_loops_that_come_and_go_each_have_their_own_connection(url, locked):
    store = open_store(url)
    for number in range(4):
        asyncio.run(store.append("a", text_entries(f"{number}")))

    async def rest():
        found = texts((await store.load("a")).entries)
        await store.close()
        return found

    assert asyncio.run(rest()) == ["0", "1", "2", "3"]
    assert locked == [["a"]]


def test_tenants_of_one_loop_do_not_see_each_other(url):
    async def story():
        async with open_store(url) as store:
            other = store.for_tenant("other")
            for number in range(3):
                await asyncio.gather(
                    store.append("a", text_entries(f"mine {number}")), other.append("a", text_entries(f"its {number}"))
                )
            return texts((await store.load("a")).entries), texts((await other.load("a")).entries)

    assert asyncio.run(story()) == ([f"mine {n}" for n in range(3)], [f"its {n}" for n in range(3)])


def test_of_two_documents_of_one_name_in_one_group_the_first_is_stored(url):
    async def story():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            made = [NewDocument("reply", "r", {"x": number}) for number in range(2)]
            done = await asyncio.gather(
                store.append("a", text_entries("1"), documents=made[:1]),
                store.append("a", text_entries("2"), documents=made[:1]),
                expect_error(DocumentExists, store.append("a", text_entries("3"), documents=made[1:])),
            )
            return done[:2], texts((await store.load("a")).entries), dict((await store.document("reply", "r")).body)

    assert asyncio.run(story()) == ([2, 3], ["0", "1", "2"], {"x": 0})


def test_a_document_that_has_expired_makes_room_for_one_of_its_name_and_goes_with_the_next_of_its_kind(url):
    now = [datetime(2030, 1, 1, tzinfo=UTC)]

    def new(name, value):
        return [NewDocument("reply", name, {"x": value}, expires_at=now[0] + timedelta(hours=1))]

    def stored():
        with psycopg.connect(url) as db:
            return [name for (name,) in db.execute("SELECT id FROM minutebook.document ORDER BY id").fetchall()]

    async def story():
        async with open_store(url, clock=lambda: now[0]) as store:
            await store.append("a", text_entries("0"), documents=new("r", 0))
            await store.append("a", text_entries("1"), documents=new("s", 0))
            now[0] += timedelta(hours=2)
            await store.append("b", text_entries("0"), documents=new("r", 1))
            assert stored() == ["r"]
            return dict((await store.document("reply", "r")).body)

    assert asyncio.run(story()) == {"x": 1}


def test_what_is_erased_between_reading_and_writing_is_not_created_again(url, monkeypatch):
    load = AppendPlan.load.__func__

    async def erased_meanwhile(cls, work, group):
        plan = await load(cls, work, group)
        monkeypatch.undo()
        async with open_store(url) as other:
            await other.append("a", text_entries("x"))
            await other.erase(conversation="a")
        return plan

    monkeypatch.setattr(AppendPlan, "load", classmethod(erased_meanwhile))

    async def story():
        async with open_store(url) as store:
            await expect_error(ConversationErased, store.append("a", text_entries("y")))
            assert (await store.list()).items == ()

    asyncio.run(story())


def test_a_value_that_the_database_cannot_store_fails_no_other_conversation(url):
    async def story():
        async with open_store(url) as store:
            names = ["a", "b", "c"]
            await asyncio.gather(*(store.append(name, text_entries("0")) for name in names))
            lease = await store.acquire_lease("b", "w", seconds=60)
            bad = replace(lease, holder="a\0b")
            return await asyncio.gather(
                *(store.append(name, text_entries("1"), lease=bad if name == "b" else None) for name in names),
                return_exceptions=True,
            )

    first, refusal, last = asyncio.run(story())

    assert (first, last) == (2, 2)
    assert isinstance(refusal, LeaseLost)
