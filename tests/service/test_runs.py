import asyncio
from contextlib import suppress

import pytest

from minutebook import ConversationBusy, LeaseLost, open_store
from minutebook.service.runs import Run, Runs, held


async def counting(run, upto, *, gate=None):
    for number in range(upto):
        if gate is not None:
            await gate.wait()
        await asyncio.sleep(0)
        run.say(b"%d" % number)


async def heard(run, after=0):
    return [event async for event in run.follow(after)]


@pytest.mark.parametrize("after", range(6))
def test_every_listener_hears_everything_from_where_it_begins(after):
    async def main():
        runs, run = Runs(), Run("r", "t", "c")
        runs.start(run, counting(run, 5))
        early = asyncio.create_task(heard(run, after))
        await run.task
        return await early, await heard(run, after)

    early, late = asyncio.run(main())
    assert early == late == [b"%d" % number for number in range(after, 5)]


def test_a_listener_that_goes_away_takes_nothing_with_it():
    async def main():
        runs, run, gate = Runs(), Run("r", "t", "c"), asyncio.Event()
        runs.start(run, counting(run, 3, gate=gate))
        gone = asyncio.create_task(heard(run))
        await asyncio.sleep(0)
        gone.cancel()
        gate.set()
        return await heard(run)

    assert asyncio.run(main()) == [b"0", b"1", b"2"]


def test_what_fails_before_the_first_event_is_raised_to_whoever_waits_for_it():
    async def broken():
        raise ValueError("no")

    async def main():
        runs, run = Runs(), Run("r", "t", "c")
        runs.start(run, broken())
        await run.begun()

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


def test_draining_lets_runs_end_and_cancels_those_that_do_not():
    async def main():
        runs, quick, slow = Runs(), Run("q", "t", "c"), Run("s", "t", "c")
        runs.start(quick, counting(quick, 2))
        runs.start(slow, counting(slow, 1, gate=asyncio.Event()))
        await runs.drain(0.05)
        return quick, slow, runs.active

    quick, slow, active = asyncio.run(main())
    assert quick.events == [b"0", b"1"]
    assert quick.failure is None
    assert slow.failure.code == "server_stopping"
    assert active == 0


def test_only_one_at_a_time_holds_a_conversation():
    async def main():
        store = open_store("memory:")
        async with held(store, "c", "first", seconds=30):
            with pytest.raises(ConversationBusy):
                async with held(store, "c", "second", seconds=30):
                    pass
        async with held(store, "c", "second", seconds=30) as hold:
            return hold.lease.holder

    assert asyncio.run(main()) == "second"


def test_a_held_conversation_is_free_again_whatever_happens_inside():
    async def main():
        store = open_store("memory:")
        with suppress(ZeroDivisionError):
            async with held(store, "c", "first", seconds=30):
                raise ZeroDivisionError
        async with held(store, "c", "second", seconds=30):
            return True

    assert asyncio.run(main())


def test_whoever_loses_its_conversation_to_another_is_told_so():
    async def main():
        store = open_store("memory:")
        async with held(store, "c", "first", seconds=0.03) as hold:
            await store.release_lease(hold.lease)
            await store.acquire_lease("c", "second", seconds=30)
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        asyncio.run(main())
