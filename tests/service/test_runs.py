import asyncio
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

import pytest

from minutebook import MemoryStore, open_store
from minutebook.conversation.lease import RenewalCounts, renewal_counts
from minutebook.errors import ConversationBusy, LeaseLost
from minutebook.service.http.responses import PING
from minutebook.service.runs import MAX_UNREAD_BYTES, Run, Runs, hold_lease


async def counting(run, upto, *, gate=None):
    for number in range(upto):
        if gate is not None:
            await gate.wait()
        await asyncio.sleep(0)
        run.send(b"%d" % number)


async def heard(run, after=0):
    return [event async for event in run.follow(after)]


@pytest.mark.parametrize("after", range(6))
def test_every_reader_gets_all_events_from_its_start(after):
    async def main():
        runs, run = Runs(), Run("r", "t", "c")
        runs.start(run, counting(run, 5))
        early = asyncio.create_task(heard(run, after))
        await run.task
        return await early, await heard(run, after)

    early, late = asyncio.run(main())
    assert early == late == [b"%d" % number for number in range(after, 5)]


def test_a_reader_that_stops_does_not_affect_others():
    async def main():
        runs, run, gate = Runs(), Run("r", "t", "c"), asyncio.Event()
        runs.start(run, counting(run, 3, gate=gate))
        gone = asyncio.create_task(heard(run))
        await asyncio.sleep(0)
        gone.cancel()
        gate.set()
        return await heard(run)

    assert asyncio.run(main()) == [b"0", b"1", b"2"]


def test_a_failure_before_the_first_event_is_raised_to_readers():
    async def broken():
        raise ValueError("no")

    async def main():
        runs, run = Runs(), Run("r", "t", "c")
        runs.start(run, broken())
        await run.wait_for_first_event()

    with pytest.raises(ValueError, match="no"):
        asyncio.run(main())


def test_another_tenant_does_not_find_a_run():
    async def main():
        runs, run = Runs(), Run("r", "t", "c")
        runs.start(run, counting(run, 1))
        return runs.get("r", "t"), runs.get("r", "other"), runs.get("x", "t")

    found, foreign, unknown = asyncio.run(main())
    assert found is not None
    assert foreign is None
    assert unknown is None


def test_drain_waits_for_runs_and_cancels_overdue_ones():
    async def main():
        runs, quick, slow = Runs(), Run("q", "t", "c"), Run("s", "t", "c")
        runs.start(quick, counting(quick, 2))
        runs.start(slow, counting(slow, 1, gate=asyncio.Event()))
        await runs.drain(0.05)
        return quick, slow, runs.active

    quick, slow, active = asyncio.run(main())
    assert quick.events == [b"0", b"1"]
    assert quick.error is None
    assert slow.error.code == "server_stopping"
    assert active == 0


def test_a_lease_has_one_holder():
    async def main():
        store = open_store("memory:")
        async with hold_lease(store, "c", "first", seconds=30):
            with pytest.raises(ConversationBusy):
                async with hold_lease(store, "c", "second", seconds=30):
                    pass
        async with hold_lease(store, "c", "second", seconds=30) as hold:
            return hold.lease.holder

    assert asyncio.run(main()) == "second"


def test_a_lease_is_released_after_success_and_failure():
    async def main():
        store = open_store("memory:")
        with suppress(ZeroDivisionError):
            async with hold_lease(store, "c", "first", seconds=30):
                raise ZeroDivisionError
        async with hold_lease(store, "c", "second", seconds=30):
            return True

    assert asyncio.run(main())


def test_a_holder_that_loses_its_lease_gets_an_error():
    async def main():
        store = open_store("memory:")
        async with hold_lease(store, "c", "first", seconds=0.03) as hold:
            await store.release_lease(hold.lease)
            await store.acquire_lease("c", "second", seconds=30)
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        asyncio.run(main())


class Counting(MemoryStore):
    """A store whose clock stands still, so that no lease runs out; it counts what is done with them."""

    def __init__(self):
        super().__init__(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.calls = []  # the number of leases of each renewal
        self.released = 0
        self.renewed_often = asyncio.Event()

    @property
    def renewed(self):
        return len(self.calls)

    async def renew_leases(self, leases, *, seconds):
        self.calls.append(len(leases))
        if self.renewed == 3:
            self.renewed_often.set()
        return await super().renew_leases(leases, seconds=seconds)

    async def release_lease(self, lease):
        self.released += 1
        await super().release_lease(lease)


def test_a_lease_is_renewed_until_it_is_released():
    async def main():
        store = Counting()
        async with hold_lease(store, "c", "first", seconds=0.003):
            await store.renewed_often.wait()
        renewed = store.renewed
        await asyncio.sleep(0.01)
        return renewed, store.renewed, store.released

    renewed, later, released = asyncio.run(main())
    assert renewed >= 3
    assert (later, released) == (renewed, 1)


def test_all_leases_of_a_process_are_renewed_with_one_call():
    async def main():
        store = Counting()
        async with AsyncExitStack() as stack:
            for number in range(100):
                handle = store.for_tenant(f"t{number % 7}")
                await stack.enter_async_context(hold_lease(handle, f"c{number}", "first", seconds=0.3))
            await store.renewed_often.wait()
            leases = list(next(iter(store.shared.values()))._leases)
        counts = renewal_counts(store)
        assert counts.calls >= 2
        assert (counts.leases, counts.lost) == (100 * counts.calls, 0)
        return set(store.calls), len({lease.lease.tenant for lease in leases}), set(store.shared)

    assert asyncio.run(main()) == ({100}, 7, {RenewalCounts})


def test_a_lease_released_by_an_append_is_neither_renewed_nor_released_again():
    async def main():
        store = Counting()
        async with hold_lease(store, "c", "first", seconds=0.003) as hold:
            async with hold.release_on_append():
                await store.release_lease(hold.lease)
            renewed = store.renewed
            await asyncio.sleep(0.01)
        async with hold_lease(store, "c", "second", seconds=30):
            return store.renewed - renewed, store.released

    assert asyncio.run(main()) == (0, 1)


def test_a_lease_is_released_at_the_end_if_the_append_failed():
    async def main():
        store = Counting()
        with suppress(ZeroDivisionError):
            async with hold_lease(store, "c", "first", seconds=30) as hold, hold.release_on_append():
                raise ZeroDivisionError
        return store.released

    assert asyncio.run(main()) == 1


def test_a_run_waits_for_a_reader_that_is_far_behind():
    async def main():
        run, sent = Run("r", "t", None), 0

        async def send_all():
            nonlocal sent
            for _ in range(100):
                run.send(b"x" * 100_000)
                sent += 1
                await run.wait_for_reader()
            run.end()

        sender = asyncio.create_task(send_all())
        reader = run.stream(heartbeat_seconds=60)
        first = await anext(reader)
        for _ in range(1_000):
            await asyncio.sleep(0)
        behind = sent
        received = len(first) + sum([len(piece) async for piece in reader])
        await sender
        return behind, received

    behind, received = asyncio.run(main())
    assert behind * 100_000 <= MAX_UNREAD_BYTES + 200_000
    assert received - len(PING) == 100 * 100_000
