import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore
from minutebook.errors import RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.access.limits import Limiter, Spent, TokenQuota
from tests.service.clocks import Clock
from tests.store.backends import BACKENDS

PHONE = Caller("acme", "k1")


def limiter_on(store, clock, *, optional=False, **limits):
    return Limiter(TokenQuota(store, clock=clock.now, optional=optional), clock=clock.monotonic, **limits)


def passed(limiter, caller=PHONE):
    try:
        limiter.request(caller)
    except RequestRefused as refused:
        return refused
    return None


@given(st.integers(1, 50), st.lists(st.floats(0, 20), max_size=150))
def test_no_minute_sees_more_than_twice_the_limit_and_a_long_time_sees_the_limit(limit, pauses):
    clock = Clock()
    limiter = limiter_on(MemoryStore(), clock, requests_per_minute=limit)
    times = []
    for pause in pauses:
        clock.pass_by(pause)
        if passed(limiter) is None:
            times.append(clock.monotonic())

    for start in times:
        assert sum(start <= at < start + 60 for at in times) <= 2 * limit
    assert len(times) <= limit + clock.monotonic() * limit / 60 + 1e-6


def test_whoever_waits_as_long_as_they_are_told_gets_through():
    clock = Clock()
    limiter = limiter_on(MemoryStore(), clock, requests_per_minute=3)
    assert [passed(limiter) for _ in range(3)] == [None] * 3

    refused = passed(limiter)
    clock.pass_by(int(dict(refused.headers)["retry-after-ms"]) / 1_000)

    assert refused.status == 429
    assert "3 requests a minute" in refused.problem
    assert dict(refused.headers)["retry-after"] == "20"
    assert passed(limiter) is None
    assert passed(limiter) is not None


def test_a_key_has_its_own_limit_and_its_own_minute():
    limiter = limiter_on(MemoryStore(), Clock(), requests_per_minute=1)
    fast = Caller("acme", "k2", requests_per_minute=3)

    assert [passed(limiter) is None for _ in range(2)] == [True, False]
    assert [passed(limiter, fast) is None for _ in range(4)] == [True, True, True, False]


def test_whoever_needs_no_key_is_not_limited():
    limiter = limiter_on(MemoryStore(), Clock(), requests_per_minute=1, tokens_per_day=1)

    async def main():
        for _ in range(5):
            limiter.request(Caller("default"))
            async with limiter.reserve_tokens(Caller("default"), 100):
                pass

    asyncio.run(main())
    assert limiter.limits_of(Caller("default")) == {"requests_per_minute": None, "tokens_per_day": None}


async def spent(limiter, most, tokens, caller=PHONE):
    async with limiter.reserve_tokens(caller, most) as spending:
        spending.tokens = tokens


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_the_days_tokens_are_used_up_over_restarts_and_replicas_and_there_are_new_ones_tomorrow(make, tmp_path):
    async def main():
        clock = Clock()
        async with make(tmp_path) as store:
            await spent(limiter_on(store, clock, tokens_per_day=100), 60, 55)
            await spent(limiter_on(store, clock, tokens_per_day=100), 60, 40)  # another process; the first was killed
            with pytest.raises(RequestRefused) as refused:
                await spent(limiter_on(store, clock, tokens_per_day=100), 1, 1)
            clock.pass_by(12 * 3_600)
            await spent(limiter_on(store, clock, tokens_per_day=100), 60, 55)
            return refused.value

    refused = asyncio.run(main())
    assert refused.status == 429
    assert "100 tokens" in refused.problem


def test_what_was_used_up_is_told_with_the_number_and_the_time_until_midnight():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        await spent(limiter, 150, 120)
        with pytest.raises(RequestRefused) as refused:
            await spent(limiter, 1, 1)
        return refused.value, await limiter.tokens_used(PHONE)

    refused, used = asyncio.run(main())
    assert refused.code == "tokens_per_day_exceeded"
    assert dict(refused.headers) == {"retry-after": str(12 * 3_600), "x-should-retry": "false"}
    assert used == 120


def test_nothing_is_asked_of_the_provider_once_the_limit_is_reached():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=10)
        asked = 0
        for _ in range(5):
            try:
                async with limiter.reserve_tokens(PHONE, 6) as spending:
                    asked += 1
                    spending.tokens = 6
            except RequestRefused:
                pass
        return asked

    assert asyncio.run(main()) == 2


def test_requests_on_their_way_hold_back_others_only_until_they_are_done():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        async with limiter.reserve_tokens(PHONE, 100) as spending:
            with pytest.raises(RequestRefused) as refused:
                await spent(limiter, 10, 10)
            spending.tokens = 20
        await spent(limiter, 10, 10)
        return refused.value

    refused = asyncio.run(main())
    assert refused.code == "tokens_per_day_reserved"
    assert dict(refused.headers) == {"retry-after": "1"}


def test_what_is_not_told_counts_as_all_that_might_have_been_used():
    async def main():
        limiter = limiter_on(MemoryStore(), Clock(), tokens_per_day=100)
        with pytest.raises(ZeroDivisionError):
            async with limiter.reserve_tokens(PHONE, 70):
                raise ZeroDivisionError
        return await limiter.tokens_used(PHONE)

    assert asyncio.run(main()) == 70


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "flush", "crash"]), st.integers(0, 2), st.integers(1, 40)))


@given(st.integers(1, 200), STEPS)
def test_all_replicas_together_go_beyond_the_limit_by_one_request_at_most(limit, steps):
    """Whatever begins, ends, is written down or crashes in which order; a request never uses more than its most."""

    async def main():
        store, clock = MemoryStore(), Clock()
        replicas = [TokenQuota(store, clock=clock.now) for _ in range(3)]
        running, used, largest = [], 0, 0
        for what, which, tokens in steps:
            if what == "begin":
                promise = await replicas[which].promise("k1", limit, tokens)
                if isinstance(promise, Spent):
                    continue
                running.append((promise, tokens))
                largest = max(largest, tokens)
            elif what == "end" and running:
                promise, most = running.pop(which % len(running))
                promise.settle(min(tokens, most))
                used += min(tokens, most)
            elif what == "flush":
                await replicas[which].flush()
            elif what == "crash":
                replicas[which] = TokenQuota(store, clock=clock.now)
        used += sum(most for _, most in running)
        assert used < limit + largest or used == 0

    asyncio.run(main())


@given(st.integers(1, 100), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=2, max_size=12))
def test_replicas_that_ask_at_the_same_moment_see_each_other(limit, requests):
    async def main():
        store, clock = Yielding(), Clock()
        replicas = [TokenQuota(store, clock=clock.now) for _ in range(3)]
        promises = await asyncio.gather(*(replicas[which].promise("k1", limit, most) for which, most in requests))
        granted = [promise.most for promise in promises if not isinstance(promise, Spent)]
        assert sum(granted) < limit + max(granted, default=1)

    asyncio.run(main())


class Yielding(MemoryStore):
    """A store that lets others have a turn before and after each step, as one on a network does."""

    async def put_document(self, conversation, document):
        await asyncio.sleep(0)
        made = await super().put_document(conversation, document)
        await asyncio.sleep(0)
        return made

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


def test_far_from_the_limit_a_request_costs_no_write():
    async def main():
        limiter = limiter_on(Counting(), Clock(), tokens_per_day=1_000_000)
        for _ in range(100):
            await spent(limiter, 1_000, 500)
        return Counting.writes

    assert asyncio.run(main()) == 2  # the first made room for the document, the second wrote it


def test_what_was_claimed_and_is_not_needed_is_given_back():
    async def main():
        store, clock = MemoryStore(), Clock()
        first, second = TokenQuota(store, clock=clock.now), TokenQuota(store, clock=clock.now)
        (await first.promise("k1", 1_000, 900)).settle(10)
        held = await second.promise("k1", 1_000, 200)
        for _ in range(2):
            await first.flush()
        return held, await second.used("k1"), second._days["k1"].others_claimed

    held, used, claimed = asyncio.run(main())
    assert not isinstance(held, Spent)
    assert (used, claimed) == (10, 10)


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_what_one_replica_used_is_what_another_tells(make, tmp_path):
    async def main():
        clock = Clock()
        async with make(tmp_path) as store:
            first, second = (limiter_on(store, clock, tokens_per_day=100) for _ in range(2))
            await spent(first, 60, 55)
            await first.flush()
            await spent(second, 60, 50)
            await spent(first, 1, 0)  # from what it has claimed
            await second.flush()
            await first.flush()
            with pytest.raises(RequestRefused, match="has used its 100 tokens"):
                await spent(first, 1, 1)
            return await limiter_on(store, clock).tokens_used(PHONE)

    assert asyncio.run(main()) == 105


@pytest.mark.parametrize("optional", [False, True])
def test_without_a_store_tokens_are_counted_alone_if_the_service_may_answer_then(optional):
    async def main():
        store = MemoryStore()
        limiter = limiter_on(store, Clock(), optional=optional, tokens_per_day=10)
        await store.close()
        if not optional:
            with pytest.raises(StoreUnavailable):
                await spent(limiter, 5, 5)
            return
        await spent(limiter, 10, 10)
        with pytest.raises(RequestRefused):
            await spent(limiter, 5, 5)
        await limiter.flush(closing=True)

    asyncio.run(main())


def test_yesterdays_tallies_are_forgotten():
    async def main():
        clock = Clock()
        store = MemoryStore(clock=clock.now)
        tally = TokenQuota(store, clock=clock.now)
        (await tally.promise("k1", 100, 10)).settle(10)
        clock.pass_by(timedelta(days=3).total_seconds())
        await tally.flush()
        (await tally.promise("k1", 100, 10)).settle(10)
        held = await store.for_tenant("_minutebook").documents("tally:k1", "tally")
        return len(held.items), await tally.used("k1")

    assert asyncio.run(main()) == (1, 10)
