"""Documents and leases with a fake clock, and the number of disk syncs of a lease."""

import asyncio
from datetime import UTC, datetime, timedelta

import apsw
import pytest

from minutebook.errors import ConversationBusy, DocumentExists, DocumentNotFound, LeaseLost
from minutebook.store.types import LEASE_GRACE, NewDocument
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, text_entries
from tests.store.backends import BACKENDS

LOCAL_CLOCK = ["encrypted-memory", "encrypted-sqlite", "memory", "sqlite"]
"""The stores whose leases do not use the clock of a server."""


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.mark.parametrize("backend", LOCAL_CLOCK)
def test_another_holder_can_acquire_a_lease_from_its_end_on(backend, tmp_path):
    clock = Clock()

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock) as store:
            mine = await store.acquire_lease("a", "w1", seconds=10)
            assert mine.until == clock.now + timedelta(seconds=10)
            clock.advance(9.999999)
            await expect_error(ConversationBusy, store.acquire_lease("a", "w2", seconds=10))
            assert await store.append("a", text_entries("1"), lease=mine) == 1
            renewed = await store.renew_lease(mine, seconds=10)
            clock.advance(9.999999)
            assert await store.append("a", text_entries("2"), lease=mine) == 2
            await expect_error(ConversationBusy, store.acquire_lease("a", "w2", seconds=10))
            clock.advance(0.000001)
            assert (await store.acquire_lease("a", "w1", seconds=10)).fence > mine.fence
            await expect_error(LeaseLost, store.append("a", text_entries("3"), lease=renewed))
            await expect_error(LeaseLost, store.renew_lease(renewed, seconds=10))
            await store.vacuum()
            clock.advance(10 + LEASE_GRACE.total_seconds())
            await store.vacuum()
            assert (await store.acquire_lease("a", "w2", seconds=10)).fence > mine.fence + 1

    asyncio.run(scenario())


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_document_expires_by_the_clock_of_the_handle(backend, tmp_path):
    clock = Clock()

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock) as store:
            until = clock.now + timedelta(seconds=10)
            await store.append("a", text_entries("1"), documents=[NewDocument("reply", "r", {}, until)])
            clock.advance(9.999999)
            assert (await store.document("reply", "r")).expires_at == until
            clock.advance(0.000001)
            await expect_error(DocumentNotFound, store.document("reply", "r"))
            assert (await store.documents("a", "reply")).items == ()
            await store.put_document("a", NewDocument("reply", "s", {}))
            clock.advance(-5)
            await expect_error(DocumentNotFound, store.document("reply", "r"))

    asyncio.run(scenario())


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_another_conversation_may_use_the_id_of_an_expired_document(backend, tmp_path):
    clock = Clock()

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock) as store:
            until = clock.now + timedelta(seconds=10)
            await store.append("a", text_entries("1"), documents=[NewDocument("reply", "r", {"in": "a"}, until)])
            await store.append("b", text_entries("1"))
            clock.advance(10)
            await store.put_document("b", NewDocument("reply", "r", {"in": "b"}))
            assert (await store.document("reply", "r")).body == {"in": "b"}
            await expect_error(DocumentExists, store.put_document("a", NewDocument("reply", "r", {"in": "a"})))
            await store.put_document("a", NewDocument("reply", "s", {}))
            await store.erase(conversation="a")
            assert (await store.document("reply", "r")).conversation == "b"

    asyncio.run(scenario())


def test_expired_documents_are_deleted_at_most_once_a_second(tmp_path):
    clock = Clock()

    async def scenario():
        async with open_store(f"sqlite:///{tmp_path / 'chat.db'}", clock=clock) as store:

            async def left():
                return await store._engine.read(lambda db: db.execute("SELECT count(*) FROM document").get)

            until = clock.now + timedelta(seconds=10)
            await store.append(
                "a", text_entries("1"), documents=[NewDocument("reply", f"{n}", {}, until) for n in range(5)]
            )
            clock.advance(9.5)
            await store.put_document("a", NewDocument("reply", "looked", {}))
            clock.advance(0.5)
            await store.put_document("a", NewDocument("reply", "too early", {}))
            assert await left() == 7
            clock.advance(0.5)
            await store.put_document("a", NewDocument("reply", "late enough", {}))
            assert await left() == 3

    asyncio.run(scenario())


def test_two_stores_on_one_file_share_leases(tmp_path):
    url = f"sqlite:///{tmp_path / 'chat.db'}"

    async def scenario():
        async with open_store(url) as first, open_store(url) as other:
            mine = await first.acquire_lease("a", "w1", seconds=60)
            await expect_error(ConversationBusy, other.acquire_lease("a", "w2", seconds=60))
            await first.release_lease(mine)
            theirs = await other.acquire_lease("a", "w2", seconds=60)
            await expect_error(LeaseLost, first.append("a", text_entries("late"), lease=mine))
            assert theirs.fence > mine.fence
            assert await other.append("a", text_entries("mine"), lease=theirs) == 1

    asyncio.run(scenario())


BASE = apsw.vfs_names()[0]
"""The default file layer of SQLite on this system."""


class CountedFile(apsw.VFSFile):
    def __init__(self, syncs, name, flags):
        self.syncs = syncs
        super().__init__(BASE, name, flags)

    def xSync(self, flags):  # noqa: N802 - the driver's name
        self.syncs.append(flags)
        return super().xSync(flags)


class CountedDisk(apsw.VFS):
    """Counts the syncs of files."""

    def __init__(self):
        self.syncs = []
        super().__init__("counted", BASE, makedefault=True)

    def xOpen(self, name, flags):  # noqa: N802 - the driver's name
        return CountedFile(self.syncs, name, flags)


def test_a_lease_is_not_synced_and_an_append_is(tmp_path):
    disk = CountedDisk()

    async def scenario():
        async with open_store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
            await store.append("a", text_entries("0"))

            async def syncs(attempt):
                before = len(disk.syncs)
                return await attempt, len(disk.syncs) - before

            lease, taking = await syncs(store.acquire_lease("a", "w1", seconds=60))
            _, renewing = await syncs(store.renew_lease(lease, seconds=60))
            _, appending = await syncs(store.append("a", text_entries("1"), lease=lease))
            _, refusing = await syncs(expect_error(ConversationBusy, store.acquire_lease("a", "w2", seconds=60)))
            _, releasing = await syncs(store.release_lease(lease))
            _, next_append = await syncs(store.append("a", text_entries("2")))
            assert (taking, renewing, refusing, releasing) == (0, 0, 0, 0)
            assert appending == next_append >= 1

    try:
        asyncio.run(scenario())
    finally:
        disk.unregister()
