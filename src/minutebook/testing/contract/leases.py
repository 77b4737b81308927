"""Tests of leases: one holder per conversation, and no writes by a holder that lost its lease."""

import asyncio

from minutebook.errors import (
    ConversationBusy,
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    LeaseLost,
    MissingSetting,
    VersionConflict,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, NewDocument
from minutebook.testing.contract.samples import expect_error, scenario, text_entries, texts


async def _acquire_when_free(store: ConversationStore, conversation: str, holder: str) -> Lease:
    """Wait until another holder's lease has expired by the store's clock, then acquire it."""
    while True:
        try:
            return await store.acquire_lease(conversation, holder, seconds=60)
        except ConversationBusy:
            continue


class LeaseContract:
    """Tests of leases."""

    @scenario
    async def test_a_conversation_is_leased_to_one_holder_at_a_time(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=60)
        await store.append("a", text_entries("1"))

        error = await expect_error(ConversationBusy, store.acquire_lease("a", "w2", seconds=60))
        assert (error.conversation, error.until) == ("a", lease.until)
        assert (lease.conversation, lease.holder) == ("a", "w1")
        assert lease.until.utcoffset() is not None
        assert (await store.acquire_lease("b", "w2", seconds=60)).holder == "w2"
        await expect_error(ConversationNotFound, store.header("b"))

    @scenario
    async def test_acquiring_again_renews_and_a_new_holder_has_a_higher_fence(self, store: ConversationStore) -> None:
        first = await store.acquire_lease("a", "w1", seconds=60)
        again = await store.acquire_lease("a", "w1", seconds=600)
        renewed = await store.renew_lease(first, seconds=6000)

        assert first.fence == again.fence == renewed.fence
        assert first.until < again.until < renewed.until
        await store.release_lease(first)
        second = await store.acquire_lease("a", "w2", seconds=60)
        assert second.fence > first.fence
        await store.release_lease(second)
        assert (await store.acquire_lease("a", "w1", seconds=60)).fence > second.fence

    @scenario
    async def test_an_expired_lease_is_lost_to_the_next_holder(self, store: ConversationStore) -> None:
        expired_lease = await store.acquire_lease("a", "w1", seconds=0.02)
        lease = await _acquire_when_free(store, "a", "w2")

        assert lease.fence > expired_lease.fence
        error = await expect_error(LeaseLost, store.append("a", text_entries("late"), lease=expired_lease))
        assert (error.conversation, error.holder, error.fence) == ("a", "w1", expired_lease.fence)
        await expect_error(ConversationNotFound, store.header("a"))
        assert await store.append("a", text_entries("mine"), lease=lease, documents=[NewDocument("k", "x", {})]) == 1
        await expect_error(LeaseLost, store.append("a", text_entries("late"), lease=expired_lease))
        await expect_error(LeaseLost, store.append("a", text_entries("late"), lease=expired_lease, expected_version=7))
        await expect_error(LeaseLost, store.renew_lease(expired_lease, seconds=60))
        await store.release_lease(expired_lease)
        assert await store.append("a", text_entries("still mine"), lease=lease, expected_version=1) == 2
        assert texts((await store.load("a")).entries) == ["mine", "still mine"]

    @scenario
    async def test_an_expired_lease_can_be_used_until_another_holder_has_it(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=0.02)
        await store.acquire_lease("ends later", "w1", seconds=0.02)
        await _acquire_when_free(store, "ends later", "w2")

        assert await store.append("a", text_entries("1"), lease=lease) == 1
        assert await store.append("a", text_entries("2"), lease=lease, expected_version=1) == 2
        renewed = await store.renew_lease(lease, seconds=0.02)
        assert renewed.fence == lease.fence
        assert renewed.until > lease.until
        next_lease = await _acquire_when_free(store, "a", "w2")
        await expect_error(LeaseLost, store.renew_lease(renewed, seconds=60))
        await store.release_lease(renewed)
        await expect_error(LeaseLost, store.append("a", text_entries("late"), lease=renewed, expected_version=2))
        assert await store.append("a", text_entries("3"), lease=next_lease) == 3

    @scenario
    async def test_an_expired_lease_can_be_released(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=0.02)
        await store.acquire_lease("ends later", "w1", seconds=0.02)
        await _acquire_when_free(store, "ends later", "w2")

        assert await store.append("a", text_entries("1"), lease=lease, release=True) == 1
        await expect_error(LeaseLost, store.renew_lease(lease, seconds=60))

    @scenario
    async def test_the_leases_of_all_tenants_are_renewed_together(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        own = [await store.acquire_lease(name, "w1", seconds=60) for name in ("a", "b", "c")]
        others = [await other.acquire_lease(name, "w1", seconds=60) for name in ("a", "d")]
        await store.release_lease(own[1])
        taken = await store.acquire_lease("b", "w2", seconds=60)
        await other.append("d", text_entries("1"))
        await other.erase(conversation="d")

        renewed = await store.renew_leases([*own, *others], seconds=6000)

        assert [lease and (lease.tenant, lease.conversation, lease.fence) for lease in renewed] == [
            (own[0].tenant, "a", own[0].fence),
            None,
            (own[2].tenant, "c", own[2].fence),
            ("another", "a", others[0].fence),
            None,
        ]
        assert all(lease is None or lease.until > own[0].until for lease in renewed)
        error = await expect_error(ConversationBusy, store.acquire_lease("b", "w3", seconds=60))
        assert error.until == taken.until
        assert await store.renew_leases([], seconds=60) == []

    @scenario
    async def test_a_conversation_is_leased_and_loaded_in_one_call(self, store: ConversationStore) -> None:
        leased = await store.acquire_and_load("a", "w1", seconds=60)
        assert leased.loaded is None
        assert await store.append("a", text_entries("1", "2", "3"), lease=leased.lease, expected_version=0) == 1

        leased = await store.acquire_and_load("a", "w1", seconds=60, last_messages=1)
        assert leased.loaded is not None
        assert texts(leased.loaded.entries) == ["3"]
        assert leased.loaded == await store.load("a", last_messages=1)
        await expect_error(ConversationBusy, store.acquire_and_load("a", "w2", seconds=60))
        assert await store.append("a", text_entries("4"), lease=leased.lease, expected_version=1, release=True) == 2
        await store.erase(conversation="a")
        await expect_error(ConversationErased, store.acquire_and_load("a", "w1", seconds=60))
        await expect_error(InvalidSetting, store.acquire_and_load("a", "w1", seconds=0))

    @scenario
    async def test_nothing_is_written_with_a_released_lease(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=60)
        await store.append("a", text_entries("1"), lease=lease, idempotency_key="k")

        await store.release_lease(lease)
        await store.release_lease(lease)

        await expect_error(LeaseLost, store.append("a", text_entries("2"), lease=lease))
        await expect_error(LeaseLost, store.renew_lease(lease, seconds=60))
        assert await store.append("a", text_entries("1"), lease=lease, idempotency_key="k") == 1
        assert await store.append("a", text_entries("2")) == 2

    @scenario
    async def test_an_append_releases_the_lease_only_if_it_is_written(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=60)
        await expect_error(MissingSetting, store.append("a", text_entries("0"), release=True))
        await expect_error(
            VersionConflict, store.append("a", text_entries("0"), lease=lease, expected_version=3, release=True)
        )
        await expect_error(ConversationBusy, store.acquire_lease("a", "w2", seconds=60))

        assert await store.append("a", text_entries("1"), lease=lease, release=True, idempotency_key="k") == 1

        await expect_error(LeaseLost, store.append("a", text_entries("2"), lease=lease))
        next_lease = await store.acquire_lease("a", "w2", seconds=60)
        assert next_lease.fence > lease.fence
        assert await store.append("a", text_entries("1"), lease=lease, release=True, idempotency_key="k") == 1
        await expect_error(ConversationBusy, store.acquire_lease("a", "w3", seconds=60))
        assert await store.append("a", text_entries("1"), lease=next_lease, release=True, idempotency_key="k") == 1
        assert (await store.acquire_lease("a", "w3", seconds=60)).holder == "w3"

    @scenario
    async def test_the_same_holder_with_a_new_lease_cannot_use_the_old_one(self, store: ConversationStore) -> None:
        old = await store.acquire_lease("a", "w1", seconds=60)
        await store.release_lease(old)
        new = await store.acquire_lease("a", "w1", seconds=60)

        await expect_error(LeaseLost, store.append("a", text_entries("x"), lease=old))
        await store.release_lease(old)
        assert await store.append("a", text_entries("x"), lease=new) == 1

    @scenario
    async def test_of_many_concurrent_holders_one_gets_the_lease(self, store: ConversationStore) -> None:
        results = await asyncio.gather(
            *(store.acquire_lease("a", f"w{number}", seconds=60) for number in range(10)), return_exceptions=True
        )

        assert sorted(type(result).__name__ for result in results) == ["ConversationBusy"] * 9 + ["Lease"]

    @scenario
    async def test_an_append_without_a_lease_is_not_rejected(self, store: ConversationStore) -> None:
        await store.acquire_lease("a", "w1", seconds=60)

        assert await store.append("a", text_entries("1")) == 1

    @scenario
    async def test_an_erased_conversation_cannot_be_leased(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=60)
        await store.append("a", text_entries("1"), lease=lease)
        await store.erase(conversation="a")

        await expect_error(ConversationErased, store.acquire_lease("a", "w1", seconds=60))
        await expect_error(ConversationErased, store.acquire_lease("a", "w2", seconds=60))
        await expect_error(ConversationErased, store.renew_lease(lease, seconds=60))
        await expect_error(ConversationErased, store.append("a", text_entries("2"), lease=lease))
        await store.release_lease(lease)

    @scenario
    async def test_the_arguments_of_a_lease_are_checked(self, store: ConversationStore) -> None:
        lease = await store.acquire_lease("a", "w1", seconds=60)

        for seconds in (0, -1, float("nan"), float("inf")):
            await expect_error(InvalidSetting, store.acquire_lease("a", "w1", seconds=seconds))
            await expect_error(InvalidSetting, store.renew_lease(lease, seconds=seconds))
        for wrong in ("", "\0", "x" * 513):
            await expect_error(InvalidSetting, store.acquire_lease(wrong, "w1", seconds=60))
            await expect_error(InvalidSetting, store.acquire_lease("a", wrong, seconds=60))
        await expect_error(InvalidSetting, store.append("b", text_entries("1"), lease=lease))

    @scenario
    async def test_another_tenants_lease_is_not_active(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        lease = await store.acquire_lease("a", "w1", seconds=60)

        await expect_error(LeaseLost, other.append("a", text_entries("x"), lease=lease))
        await expect_error(LeaseLost, other.renew_lease(lease, seconds=60))
        await other.release_lease(lease)
        other_lease = await other.acquire_lease("a", "w2", seconds=60)
        assert await store.append("a", text_entries("x"), lease=lease) == 1
        assert await other.append("a", text_entries("x"), lease=other_lease) == 1
