"""Tests of expiry: a conversation without appends for some time is not found and is removed, and its id is free again."""

from datetime import datetime, timedelta

from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    DocumentNotFound,
    InvalidSetting,
    MissingSetting,
    VersionConflict,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument
from minutebook.testing.contract.erase import ATTEMPTS, add_full_conversation
from minutebook.testing.contract.samples import (
    SOME_TIME,
    expect_error,
    scenario,
    summary_fold,
    text_entries,
    texts,
    turns,
)

MONTH = timedelta(days=30)
MOMENT = timedelta(microseconds=1)


class FakeClock:
    """A clock that only the test advances."""

    def __init__(self, store: ConversationStore) -> None:
        self.now = SOME_TIME
        store.backend.set_clock(self)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, age: timedelta) -> None:
        self.now += age


async def _ids(store: ConversationStore) -> list[str]:
    return sorted(header.id for header in (await store.list()).items)


class ExpiryContract:
    """Tests of expiry by age."""

    @scenario
    async def test_a_conversation_expires_when_its_last_append_is_too_old(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await store.append("a", text_entries("hello"))
        clock.advance(MONTH)

        assert texts((await expiring.load("a")).entries) == ["hello"]
        clock.advance(MOMENT)
        await expect_error(ConversationNotFound, expiring.load("a"))
        await expect_error(ConversationNotFound, store.load("a"))

    @scenario
    async def test_an_append_starts_the_time_again(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        for text in ("one", "two", "three"):
            await expiring.append("a", text_entries(text))
            clock.advance(MONTH)

        assert (await expiring.expire()).conversations == 0
        assert len((await expiring.load("a")).entries) == 3

    @scenario
    async def test_no_operation_finds_an_expired_conversation(self, store: ConversationStore) -> None:
        clock = FakeClock(store)
        for attempt in ATTEMPTS.values():
            await add_full_conversation(store)
            clock.advance(MONTH + MOMENT)
            problem = await expect_error(ConversationNotFound, attempt(store.with_expiry(MONTH)))
            assert not isinstance(problem, ConversationErased)
        await add_full_conversation(store)
        clock.advance(MONTH + MOMENT)
        assert (await store.with_expiry(MONTH).search("question")).items == ()
        await add_full_conversation(store)
        clock.advance(MONTH + MOMENT)
        assert (await store.with_expiry(MONTH).list()).items == ()
        await add_full_conversation(store)
        clock.advance(MONTH + MOMENT)
        await expect_error(DocumentNotFound, store.with_expiry(MONTH).document("reply", "r"))
        await add_full_conversation(store)
        clock.advance(MONTH + MOMENT)
        assert await store.with_expiry(MONTH).delete_document("reply", "r") is False

    @scenario
    async def test_expire_removes_all_data_of_expired_conversations(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await add_full_conversation(expiring)
        await expiring.append("later", text_entries("a report"), recipient="alice")
        clock.advance(MONTH + MOMENT)
        await expiring.append("new", text_entries("a question"), recipient="alice")

        receipt = await expiring.expire()

        assert (receipt.conversations, receipt.entries, receipt.folds, receipt.pins) == (2, 16, 1, 1)
        assert receipt.erased_at == clock.now
        assert await _ids(store) == ["new"]
        assert [hit.conversation for hit in (await store.search("question")).items] == ["new"]
        await expect_error(DocumentNotFound, store.document("reply", "r"))
        assert (await expiring.expire()).conversations == 0

    @scenario
    async def test_an_expired_id_may_be_used_again(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        for name in ("removed", "present"):
            await expiring.append(
                name, turns(2), recipient="alice", idempotency_key="k", documents=[NewDocument("d", name, {"n": 1})]
            )
            await expiring.add_fold(name, summary_fold(f"fold of {name}", 0, 5))
        clock.advance(MONTH + MOMENT)
        await expect_error(ConversationNotFound, expiring.header("removed"))

        for name in ("removed", "present"):
            await expect_error(VersionConflict, expiring.append(name, text_entries("x"), expected_version=1))
            documents = [NewDocument("d", name, {"n": 2})]
            entries = text_entries("I am back")
            assert await expiring.append(name, entries, recipient="bob", idempotency_key="k", documents=documents) == 1
            loaded = await expiring.load(name)
            assert (texts(loaded.entries), loaded.folds, loaded.conversation.recipient) == (["I am back"], (), "bob")
            assert (await expiring.document("d", name)).body == {"n": 2}
        assert await expiring.append("alice again", text_entries("x"), recipient="alice") == 1

    @scenario
    async def test_another_conversation_may_use_the_id_of_an_expired_document(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await expiring.append("a", turns(1), documents=[NewDocument("d", "1", {}), NewDocument("d", "2", {})])
        await expiring.append("c", turns(1), documents=[NewDocument("d", "3", {})])
        clock.advance(MONTH + MOMENT)

        await expiring.append("b", turns(1), documents=[NewDocument("d", "1", {"of": "b"})])
        await expiring.put_document("b", NewDocument("d", "2", {"of": "b"}))
        await expiring.put_document("b", NewDocument("d", "3", {"of": "b"}))

        found = [await expiring.document("d", number) for number in "123"]
        assert [(document.conversation, document.body) for document in found] == [("b", {"of": "b"})] * 3

    @scenario
    async def test_a_conversation_stays_while_one_of_its_forks_is_in_use(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await expiring.append("a", turns(2))
        await expiring.fork("a", "b", at=5)
        await expiring.fork("b", "c")
        await expiring.fork("a", "unused")
        clock.advance(MONTH)
        await expiring.append("c", text_entries("still here"))
        clock.advance(MOMENT)

        assert (await expiring.expire()).conversations == 1
        assert await _ids(expiring) == ["a", "b", "c"]
        await expect_error(ConversationNotFound, expiring.load("unused"))
        assert len((await expiring.load("a")).entries) == 10
        assert len((await expiring.load("c")).entries) == 6
        clock.advance(MONTH)
        assert (await expiring.expire()).conversations == 3
        assert await _ids(store) == []

    @scenario
    async def test_a_fork_expires_before_a_conversation_that_is_in_use(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await expiring.append("a", turns(2))
        await expiring.fork("a", "b")
        await expiring.append("b", text_entries("in the fork"))
        clock.advance(MONTH)
        await expiring.append("a", text_entries("still here"))
        clock.advance(MOMENT)

        assert (await expiring.expire()).conversations == 1
        await expect_error(ConversationNotFound, expiring.load("b"))
        assert len((await expiring.load("a")).entries) == 11
        assert (await expiring.fork("a", "b")).length == 11

    @scenario
    async def test_a_new_fork_keeps_an_old_conversation(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await expiring.append("a", turns(1))
        clock.advance(MONTH)
        await expiring.fork("a", "b")
        clock.advance(MONTH)

        assert (await expiring.expire()).conversations == 0
        assert (await expiring.load("a")).entries == (await expiring.load("b")).entries

    @scenario
    async def test_opening_a_store_removes_some_expired_conversations(self, store: ConversationStore) -> None:
        clock = FakeClock(store)
        await store.append("a", turns(1))
        clock.advance(MONTH + MOMENT)

        await store.with_expiry(MONTH).backend.open()

        assert await _ids(store) == []

    @scenario
    async def test_expiry_affects_one_tenant(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        other = expiring.for_tenant("another")
        await store.append("a", turns(1))
        await other.append("a", turns(1))
        clock.advance(MONTH + MOMENT)

        assert (await expiring.expire()).conversations == 1
        assert len((await store.for_tenant("another").list()).items) == 1
        assert (other.expire_after, other.with_expiry(None).expire_after) == (MONTH, None)
        assert len((await other.with_expiry(None).load("a")).entries) == 5
        assert (await other.list()).items == ()

    @scenario
    async def test_an_erased_conversation_stays_erased(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        await expiring.append("a", turns(1))
        await expiring.append("b", turns(1))
        await expiring.erase(conversation="a")
        clock.advance(MONTH + MOMENT)

        assert (await expiring.erase(conversation="b")).conversations == 1
        await expiring.expire()
        for name in ("a", "b"):
            await expect_error(ConversationErased, expiring.append(name, text_entries("late")))

    @scenario
    async def test_more_conversations_than_a_batch_expire(self, store: ConversationStore) -> None:
        clock, expiring = FakeClock(store), store.with_expiry(MONTH)
        for number in range(230):
            await expiring.append(f"{number:03}", text_entries("x"), recipient="alice" if number < 120 else None)
        clock.advance(MONTH + MOMENT)

        receipt = await expiring.expire()

        assert (receipt.conversations, receipt.entries) == (230, 230)
        assert await _ids(store) == []

    @scenario
    async def test_the_age_is_checked(self, store: ConversationStore) -> None:
        for wrong in (timedelta(0), -MONTH, timedelta.max, 30):
            try:
                store.with_expiry(wrong)  # type: ignore[arg-type]
            except InvalidSetting:
                continue
            raise AssertionError(f"{wrong!r} was accepted")
        await expect_error(MissingSetting, store.expire())
