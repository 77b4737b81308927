import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore
from minutebook.errors import RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.access.limits import Limiter, QuotaExhausted, TokenQuota
from tests.service.clocks import Clock
from tests.store.backends import BACKENDS

PHONE = Caller("acme", "k1")


def limiter_on(store, clock, *, optional=False, **limits):
    return Limiter(TokenQuota(store, clock=clock.now, optional=optional), clock=clock.monotonic, **limits)


def count_request(limiter, caller=PHONE):
    try:
        limiter.count_request(caller)
    except RequestRefused as refused:
        return refused
    return None


@given(st.integers(1, 50), st.lists(st.floats(0, 20), max_size=150))
def test_a_minute_has_at_most_twice_the_limit_and_a_long_time_at_most_the_limit(limit, pauses):
    clock = Clock()
    limiter = limiter_on(MemoryStore(), clock, requests_per_minute=limit)
    times = []
    for pause in pauses:
        clock.pass_by(pause)
        if count_request(limiter) is None:
            times.append(clock.monotonic())

    for start in times:
        assert sum(start <= at < start + 60 for at in times) <= 2 * limit
    assert len(times) <= limit + clock.monotonic() * limit / 60 + 1e-6


def test_a_request_is_accepted_after_the_wait_in_the_header():
    clock = Clock()
    limiter = limiter_on(MemoryStore(), clock, requests_per_minute=3)
    assert [count_request(limiter) for _ in range(3)] == [None] * 3

    refused = count_request(limiter)
    clock.pass_by(int(dict(refused.headers)["retry-after-ms"]) / 1_000)

    assert refused.status == 429
    assert "3 requests per minute" in refused.problem
    assert dict(refused.headers)["retry-after"] == "20"
    assert count_request(limiter) is None
    assert count_request(limiter) is not None


@pytest.mark.fuzz
@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 20)), max_size=80),
)
def test_replicas_that_exchange_their_counts_share_the_limit(limit, requests):
    clock, store = Clock(), MemoryStore()
    replicas = [limiter_on(store, clock, requests_per_minute=limit) for _ in range(3)]

    async def accepted():
        count = 0
        for number, pause in requests:
            clock.pass_by(pause)
            count += count_request(replicas[number]) is None
            for replica in replicas:
                await replica.flush()
        return count

    unseen = len(replicas) - 1  # the first request of a key on each replica
    assert asyncio.run(accepted()) <= limit + unseen + clock.monotonic() * limit / 60 + 1e-6


def test_a_burst_on_two_replicas_is_deducted_from_both():
    clock, store = Clock(), MemoryStore()
    replicas = [limiter_on(store, clock, requests_per_minute=10) for _ in range(2)]

    async def main():
        assert [count_request(each) for each in replicas for _ in range(10)] == [None] * 20
        for replica in [*replicas, *replicas]:
            await replica.flush()
        clock.pass_by(59)
        assert all(count_request(replica) is not None for replica in replicas)
        clock.pass_by(10)
        assert all(count_request(replica) is None for replica in replicas)

    asyncio.run(main())


def test_an_idle_replica_does_not_refuse_the_key_of_a_busy_one():
    clock, store = Clock(), MemoryStore()
    busy, idle = (limiter_on(store, clock, requests_per_minute=60) for _ in range(2))

    async def main():
        for _ in range(600):
            clock.pass_by(2)
            assert count_request(busy) is None
            await busy.flush()
        assert count_request(idle) is None
        await idle.flush()
        assert count_request(idle) is None

    asyncio.run(main())


def test_a_key_has_its_own_limit_and_its_own_minute():
    limiter = limiter_on(MemoryStore(), Clock(), requests_per_minute=1)
    fast = Caller("acme", "k2", requests_per_minute=3)

    assert [count_request(limiter) is None for _ in range(2)] == [True, False]
    assert [count_request(limiter, fast) is None for _ in range(4)] == [True, True, True, False]


def test_a_caller_without_a_key_is_not_limited():
    limiter = limiter_on(MemoryStore(), Clock(), requests_per_minute=1, tokens_per_day=1)

    async def main():
        for _ in range(5):
            limiter.count_request(Caller("default"))
            (await limiter.reserve_tokens(Caller("default"), 100)).commit(100)

    asyncio.run(main())
    assert limiter.limits_of(Caller("default")) == {"requests_per_minute": None, "tokens_per_day": None}


async def spend(limiter, max_tokens, tokens, caller=PHONE):
    (await limiter.reserve_tokens(caller, max_tokens)).commit(tokens)


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_the_daily_limit_holds_over_restarts_and_replicas_until_midnight(make, tmp_path):
    async def main():
        clock = Clock()
        async with make(tmp_path) as store:
            await spend(limiter_on(store, clock, tokens_per_day=100), 60, 55)
            await spend(limiter_on(store, clock, tokens_per_day=100), 60, 40)  # another process; the first was killed
            with pytest.raises(RequestRefused) as refused:
                await spend(limiter_on(store, clock, tokens_per_day=100), 1, 1)
            clock.pass_by(12 * 3_600)
            await spend(limiter_on(store, clock, tokens_per_day=100), 60, 55)
            return refused.value

    refused = asyncio.run(main())
    assert refused.status == 429
    assert "100 tokens" in refused.problem


def test_the_error_has_the_seconds_until_midnight():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        await spend(limiter, 150, 120)
        with pytest.raises(RequestRefused) as refused:
            await spend(limiter, 1, 1)
        return refused.value, await limiter.tokens_used(PHONE)

    refused, used = asyncio.run(main())
    assert refused.code == "tokens_per_day_exceeded"
    assert dict(refused.headers) == {"retry-after": str(12 * 3_600), "x-should-retry": "false"}
    assert used == 120


def test_the_provider_is_not_called_after_the_limit_is_reached():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=10)
        calls = 0
        for _ in range(5):
            try:
                await spend(limiter, 6, 6)
                calls += 1
            except RequestRefused:
                pass
        return calls

    assert asyncio.run(main()) == 2


def test_requests_in_progress_reserve_tokens_until_they_end():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        reservation = await limiter.reserve_tokens(PHONE, 100)
        with pytest.raises(RequestRefused) as refused:
            await spend(limiter, 10, 10)
        reservation.commit(20)
        await spend(limiter, 10, 10)
        return refused.value

    refused = asyncio.run(main())
    assert refused.code == "tokens_per_day_reserved"
    assert dict(refused.headers) == {"retry-after": "1"}


def test_a_call_waits_for_tokens_that_others_have_reserved():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        reservation = await limiter.reserve_tokens(PHONE, 100)
        waiting = asyncio.create_task(limiter.reserve_tokens(PHONE, 10, wait_seconds=60))
        await asyncio.sleep(0)
        reservation.commit(20)
        (await waiting).commit(10)
        return await limiter.tokens_used(PHONE)

    assert asyncio.run(main()) == 30


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "flush", "crash"]), st.integers(0, 2), st.integers(1, 40)))


@given(st.integers(1, 200), STEPS)
def test_all_replicas_together_exceed_the_limit_by_one_request_at_most(limit, steps):
    """In any order of starts, ends, flushes and crashes, if no request uses more than its maximum."""

    async def main():
        store, clock = MemoryStore(), Clock()
        replicas = [TokenQuota(store, clock=clock.now) for _ in range(3)]
        running, used, largest = [], 0, 0
        for step, which, tokens in steps:
            if step == "begin":
                reservation = await replicas[which].reserve("k1", limit, tokens)
                if isinstance(reservation, QuotaExhausted):
                    continue
                running.append((reservation, tokens))
                largest = max(largest, tokens)
            elif step == "end" and running:
                reservation, max_tokens = running.pop(which % len(running))
                reservation.commit(min(tokens, max_tokens))
                used += min(tokens, max_tokens)
            elif step == "flush":
                await replicas[which].flush()
            elif step == "crash":
                replicas[which] = TokenQuota(store, clock=clock.now)
        used += sum(max_tokens for _, max_tokens in running)
        assert used < limit + largest or used == 0

    asyncio.run(main())


@given(st.integers(1, 100), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=2, max_size=12))
def test_replicas_that_reserve_concurrently_see_each_other(limit, requests):
    async def main():
        store, clock = Yielding(), Clock()
        replicas = [TokenQuota(store, clock=clock.now) for _ in range(3)]
        reservations = await asyncio.gather(
            *(replicas[which].reserve("k1", limit, max_tokens) for which, max_tokens in requests)
        )
        granted = [reservation.tokens for reservation in reservations if not isinstance(reservation, QuotaExhausted)]
        assert sum(granted) < limit + max(granted, default=1)

    asyncio.run(main())


class Yielding(MemoryStore):
    """A store that yields to other tasks before and after each operation, like a store on a network."""

    async def put_document(self, conversation, document):
        await asyncio.sleep(0)
        stored = await super().put_document(conversation, document)
        await asyncio.sleep(0)
        return stored

    async def documents(self, conversation, kind, **options):
        await asyncio.sleep(0)
        page = await super().documents(conversation, kind, **options)
        await asyncio.sleep(0)
        return page


class Counting(MemoryStore):
    writes = 0

    async def put_document(self, conversation, document):
        type(self).writes += 1
        return await super().put_document(conversation, document)


def test_far_from_the_limit_a_request_needs_no_write():
    async def main():
        limiter = limiter_on(Counting(), Clock(), tokens_per_day=1_000_000)
        for _ in range(100):
            await spend(limiter, 1_000, 500)
        return Counting.writes

    assert asyncio.run(main()) == 2  # the first made room for the document, the second wrote it


def test_unused_claims_are_released():
    async def main():
        store, clock = MemoryStore(), Clock()
        first, second = TokenQuota(store, clock=clock.now), TokenQuota(store, clock=clock.now)
        (await first.reserve("k1", 1_000, 900)).commit(10)
        reservation = await second.reserve("k1", 1_000, 200)
        for _ in range(2):
            await first.flush()
        return reservation, await second.read_usage("k1"), second._days["k1"].others_claimed

    reservation, used, claimed = asyncio.run(main())
    assert not isinstance(reservation, QuotaExhausted)
    assert (used, claimed) == (10, 10)


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_a_replica_counts_the_tokens_of_other_replicas(make, tmp_path):
    async def main():
        clock = Clock()
        async with make(tmp_path) as store:
            first, second = (limiter_on(store, clock, tokens_per_day=100) for _ in range(2))
            await spend(first, 60, 55)
            await first.flush()
            await spend(second, 60, 50)
            await spend(first, 1, 0)  # from what it has claimed
            await second.flush()
            await first.flush()
            with pytest.raises(RequestRefused, match="has used its daily limit of 100 tokens"):
                await spend(first, 1, 1)
            return await limiter_on(store, clock).tokens_used(PHONE)

    assert asyncio.run(main()) == 105


@pytest.mark.parametrize("optional", [False, True])
def test_without_the_store_a_replica_counts_alone_if_the_store_is_optional(optional):
    async def main():
        store = MemoryStore()
        limiter = limiter_on(store, Clock(), optional=optional, tokens_per_day=10)
        await store.close()
        if not optional:
            with pytest.raises(StoreUnavailable):
                await spend(limiter, 5, 5)
            return
        await spend(limiter, 10, 10)
        with pytest.raises(RequestRefused):
            await spend(limiter, 5, 5)
        await limiter.flush(closing=True)

    asyncio.run(main())


def test_counts_of_past_days_are_removed():
    async def main():
        clock = Clock()
        store = MemoryStore(clock=clock.now)
        quota = TokenQuota(store, clock=clock.now)
        (await quota.reserve("k1", 100, 10)).commit(10)
        clock.pass_by(timedelta(days=3).total_seconds())
        await quota.flush()
        (await quota.reserve("k1", 100, 10)).commit(10)
        page = await store.for_tenant("_minutebook").documents("tally:k1", "tally")
        return len(page.items), await quota.read_usage("k1")

    assert asyncio.run(main()) == (1, 10)
