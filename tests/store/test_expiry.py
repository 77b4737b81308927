"""Expiry by age: concurrent appends, encrypted stores, files, and the texts of the setting."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.store.expiry import MAX_AGE, parse_age
from minutebook.store.memory import MemoryStore
from minutebook.store.redis import conversations
from minutebook.testing.contract.samples import expect_error, text_entries, texts
from tests.store.backends import BACKENDS, each_backend, redis

MONTH = timedelta(days=30)
SECOND = timedelta(seconds=1)


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.mark.parametrize("backend", each_backend("encrypted-memory", "memory", "postgres", "redis", "sqlite"))
def test_an_append_during_expiry_is_never_lost(backend, tmp_path):
    clock = Clock()
    names = [f"conversation {number}" for number in range(20)]

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock) as store:
            for name in names:
                await store.append(name, text_entries("old"))
            clock.now += MONTH + SECOND
            expiring = store.with_expiry(MONTH)
            appends = [store.append(name, text_entries("new")) for name in names]
            await asyncio.gather(expiring.expire(), *appends, expiring.expire())
            for name in names:
                assert texts((await expiring.load(name)).entries) in (["old", "new"], ["new"])

    asyncio.run(scenario())


@pytest.mark.parametrize("backend", each_backend("encrypted-memory", "memory", "postgres", "redis", "sqlite"))
def test_two_processes_may_expire_at_the_same_time(backend, tmp_path):
    clock = Clock()

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock) as store:
            for number in range(30):
                await store.append(f"conversation {number}", text_entries("old"), recipient="alice")
            clock.now += MONTH + SECOND
            handles = [store.with_expiry(MONTH) for _ in range(3)]
            receipts = await asyncio.gather(*(handle.expire() for handle in handles))
            assert sum(receipt.conversations for receipt in receipts) == 30
            assert (await store.list()).items == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("backend", each_backend("encrypted-memory", "memory", "postgres", "redis", "sqlite"))
def test_a_store_opened_with_an_age_keeps_what_is_in_use(backend, tmp_path):
    """The data key of an encrypted store is older than the age, and gets no appends."""
    clock = Clock()

    async def scenario():
        async with BACKENDS[backend](tmp_path, clock=clock, expire_after=MONTH) as store:
            for text in ("one", "two", "three"):
                await store.append("a", text_entries(text), recipient="alice")
                clock.now += MONTH - SECOND
            await store.append("b", text_entries("four"), recipient="alice")
            assert (await store.expire()).conversations == 0
            assert texts((await store.load("a")).entries) == ["one", "two", "three"]
            assert [hit.conversation for hit in (await store.search("four")).items] == ["b"]
            clock.now += MONTH + SECOND
            assert (await store.search("four")).items == ()
            assert await store.append("b", text_entries("five"), recipient="alice") == 1
            await expect_error(ConversationNotFound, store.load("a"))
            assert texts((await store.load("b")).entries) == ["five"]

    asyncio.run(scenario())


def test_the_data_key_of_a_conversation_in_use_does_not_expire(tmp_path):
    clock = Clock()

    async def scenario():
        for text in ("one", "two", "three"):
            async with BACKENDS["encrypted-sqlite"](tmp_path, clock=clock, expire_after=MONTH) as store:
                await store.append("a", text_entries(text))
                await store.expire()
            clock.now += MONTH - SECOND
        async with BACKENDS["encrypted-sqlite"](tmp_path, clock=clock, expire_after=MONTH) as store:
            return texts((await store.load("a")).entries)

    assert asyncio.run(scenario()) == ["one", "two", "three"]


def test_redis_keeps_a_conversation_that_is_appended_to_after_it_was_selected(tmp_path, monkeypatch):
    clock = Clock()
    document_keys = conversations._document_keys

    async def scenario():
        async with redis(tmp_path, clock=clock) as store, redis(tmp_path, clock=clock) as other:
            await store.append("a", text_entries("old"))
            clock.now += MONTH + SECOND
            appended = []

            async def append_first(*arguments):
                if not appended:
                    appended.append(await other.append("a", text_entries("new")))
                return await document_keys(*arguments)

            monkeypatch.setattr(conversations, "_document_keys", append_first)
            assert (await store.with_expiry(MONTH).expire()).conversations == 0
            return texts((await store.load("a")).entries)

    assert asyncio.run(scenario()) == ["old", "new"]


def test_nothing_of_an_expired_conversation_remains_in_the_file_after_a_vacuum(tmp_path):
    clock = Clock()

    async def scenario():
        async with BACKENDS["sqlite"](tmp_path, clock=clock) as store:
            await store.append("a", text_entries("a peculiar secret"), recipient="peculiar recipient")
            clock.now += MONTH + SECOND
        async with BACKENDS["sqlite"](tmp_path, clock=clock, expire_after=MONTH) as store:
            await store.vacuum()

    asyncio.run(scenario())
    assert not any(b"peculiar" in path.read_bytes() for path in tmp_path.iterdir())


def test_an_operation_reads_the_header_again_only_after_a_long_time(tmp_path):
    clock = Clock()
    store = MemoryStore(clock=clock, expire_after=MONTH)

    async def scenario():
        reads = []
        inner = store.backend._inner
        header = inner.header
        inner.header = lambda conversation: (reads.append(conversation), header(conversation))[1]
        for _ in range(10):
            await store.append("a", text_entries("x"))
            await store.load("a")
        await store.for_tenant(store.tenant).load("a")
        return reads

    assert asyncio.run(scenario()) == ["a"]


@pytest.mark.parametrize(
    ("text", "age"),
    [
        *(("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), ("90m", timedelta(minutes=90))),
        *(("2w", timedelta(weeks=2)), (" 1 d ", timedelta(days=1)), ("36500d", MAX_AGE)),
    ],
)
def test_an_age_is_a_number_and_a_unit(text, age):
    assert parse_age(text) == age


@given(st.text() | st.from_regex(r"\d+[a-z]?", fullmatch=True))
def test_any_other_text_is_rejected_with_examples(text):
    try:
        age = parse_age(text)
    except InvalidSetting as error:
        assert "30d" in str(error)
    else:
        assert timedelta() < age <= MAX_AGE


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5d", "30days", "30 s", "36501d", "999999999w", "٣d"])
def test_a_wrong_age_is_rejected(text):
    with pytest.raises(InvalidSetting, match="30d, 12h or 90m"):
        parse_age(text)
