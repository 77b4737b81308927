"""Compaction while others go on."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from minutebook.conversation.background import BackgroundCompaction
from minutebook.conversation.history import ConversationHistory
from minutebook.errors import ConversationNotFound, EventFailed, InvalidSetting, StoreUnavailable
from minutebook.store.memory import MemoryStore
from minutebook.tokens import EstimatedCounter

COUNTER = EstimatedCounter()


class Counting:
    """A summarizer that fails as often as it is told to, and knows how many run at a time."""

    def __init__(self, failures=0, during=None):
        self.failures = failures
        self.during = during
        self.asked = self.running = self.most = 0

    async def summarize(self, request):
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.during is not None:
                await self.during()
            for _ in range(5):
                await asyncio.sleep(0)
            if self.asked <= self.failures:
                raise ConnectionError(f"away, {self.asked}")
            return f"Summary {self.asked}."
        finally:
            self.running -= 1


class Naps:
    """A sleep that nobody waits for, and that remembers how long it should have been."""

    def __init__(self):
        self.seconds = []

    async def __call__(self, seconds):
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def working(store, summarizer, **options):
    errors = []
    options = {"sleep": Naps(), "draw": lambda: 1.0, "on_error": lambda *error: errors.append(error)} | options
    async with BackgroundCompaction(store, summarizer=summarizer, counter=COUNTER, **options) as background:
        background.errors = errors
        yield background


async def talk(store, turns, recipient="alice", notice=None):
    history = ConversationHistory(store, recipient, notice=notice)
    for number in range(turns):
        await history.add_turn(
            [
                {"role": "user", "content": f"Question {number}, which is long enough to be summed up some day."},
                {"role": "assistant", "content": f"Answer {number}, which is long enough as well, and then some."},
            ]
        )
    return history


def run(test):
    async def with_store():
        async with MemoryStore() as store:
            return await test(store)

    return asyncio.run(with_store())


def test_appends_are_noticed_and_compacted_when_it_is_due():
    async def scenario(store):
        summarizer = Counting()
        async with working(store, summarizer) as background:
            history = await talk(store, 10, notice=background.notice)
            await background.idle()
            early = summarizer.asked
            await history.add_message({"role": "user", "content": "The eleventh."})
            await background.idle()
            return early, summarizer.asked, await history.summary(), await history.needs_compaction()

    assert run(scenario) == (0, 1, "Summary 1.", False)


def test_leaving_finishes_what_was_noticed():
    async def scenario(store):
        summarizer = Counting()
        names = [f"user {number}" for number in range(7)]
        histories = [await talk(store, 11, name) for name in names]
        async with working(store, summarizer) as background:
            for name in names:
                background.notice(name)
        return [await history.summary() is not None for history in histories]

    assert run(scenario) == [True] * 7


def test_what_was_noticed_before_the_start_is_not_forgotten_and_after_the_end_is_not_needed():
    async def scenario(store):
        history = await talk(store, 11)
        background = BackgroundCompaction(store, on_error=print, counter=COUNTER)
        background.notice("alice")
        async with background:
            pass
        background.notice("alice")
        return await history.summary()

    assert run(scenario)


def test_one_conversation_is_never_compacted_twice_at_a_time_and_several_are_within_bounds():
    async def scenario(store):
        names = [f"user {number}" for number in range(6)]
        for name in names:
            await talk(store, 11, name)
        alone, many = Counting(), Counting()
        async with working(store, alone, concurrency=4) as background:
            for _ in range(5):
                background.notice("user 0")
                background.notice("user 0")
                await asyncio.sleep(0)
        async with working(store, many, concurrency=3) as background:
            for name in names:
                background.notice(name)
        return alone.most, alone.asked, many.most, many.asked

    assert run(scenario) == (1, 1, 3, 5)


def test_what_is_noticed_while_it_is_compacted_is_looked_at_again():
    async def scenario(store):
        grown = []

        async def grow():
            if not grown:
                grown.append(await talk(store, 9, notice=background.notice))

        await talk(store, 11)
        summarizer = Counting(during=grow)
        async with working(store, summarizer) as background:
            background.notice("alice")
            await background.idle()
        return summarizer.asked, await grown[0].needs_compaction(), await grown[0].summary()

    assert run(scenario) == (2, False, "Summary 2.")


def test_what_fails_is_tried_again_later_and_later():
    async def scenario(store):
        naps, summarizer = Naps(), Counting(failures=3)
        history = await talk(store, 11)
        async with working(store, summarizer, sleep=naps, first_seconds=1, max_seconds=3) as background:
            background.notice("alice")
            await background.idle()
            return naps.seconds, background.errors, await history.summary()

    assert run(scenario) == ([1, 2, 3], [], "Summary 4.")


def test_what_goes_on_failing_is_given_up_and_told():
    async def scenario(store):
        summarizer = Counting(failures=99)
        history = await talk(store, 11)
        async with working(store, summarizer, attempts=3) as background:
            background.notice("alice")
            await background.idle()
            return summarizer.asked, background.errors, await history.summary()

    asked, [(conversation, error)], summary = run(scenario)
    assert (asked, conversation, str(error), summary) == (3, "alice", "away, 3", None)


def test_a_conversation_that_is_not_there_is_told_at_once_and_one_that_was_erased_is_done():
    async def scenario(store):
        await talk(store, 11, "erased")
        await store.erase(recipient="erased")
        async with working(store, Counting()) as background:
            background.notice("nobody")
            background.notice("erased")
            await background.idle()
            return background.errors

    [(conversation, error)] = run(scenario)
    assert conversation == "nobody"
    assert isinstance(error, ConversationNotFound)


def test_an_erasure_while_a_summary_is_made_wins():
    async def scenario(store):
        await talk(store, 11)
        async with working(store, Counting(during=lambda: store.erase(recipient="alice"))) as background:
            background.notice("alice")
            await background.idle()
            return background.errors, (await store.list()).items

    assert run(scenario) == ([], ())


def test_a_store_that_is_gone_is_told():
    async def scenario(store):
        await talk(store, 11)
        async with working(store, Counting()) as background:
            await store.close()
            background.notice("alice")
            await background.idle()
            return background.errors

    [(_, error)] = run(scenario)
    assert isinstance(error, StoreUnavailable)


def test_a_summarizer_that_cancels_itself_does_not_stop_the_work():
    async def scenario(store):
        async def cancel():
            raise asyncio.CancelledError

        await talk(store, 11)
        async with working(store, Counting(during=cancel), attempts=2, concurrency=1) as background:
            background.notice("alice")
            await background.idle()
            return background.errors

    [(_, error)] = run(scenario)
    assert "cancelled itself" in str(error)


def test_leaving_does_not_wait_for_the_next_try():
    async def scenario(store):
        summarizer, sleeping = Counting(failures=99), asyncio.Event()

        async def endless(seconds):
            sleeping.set()
            await asyncio.Event().wait()

        await talk(store, 11)
        async with working(store, summarizer, sleep=endless, concurrency=1) as background:
            background.notice("alice")
            await sleeping.wait()
        return summarizer.asked, len(background.errors)

    assert run(scenario) == (2, 1)


def test_a_listener_that_fails_is_told_when_the_context_is_left():
    def broken(conversation, error):
        raise RuntimeError("the pager is off")

    async def scenario(store):
        await talk(store, 11)
        with pytest.raises(EventFailed) as raised:
            async with working(store, Counting(failures=99), attempts=1, on_error=broken) as background:
                background.notice("alice")
        return [str(error) for error in raised.value.exceptions]

    assert run(scenario) == ["away, 1", "the pager is off"]


def test_a_cancelled_context_leaves_no_task_behind():
    async def scenario(store):
        await talk(store, 11)
        started = asyncio.Event()

        async def hang():
            started.set()
            await asyncio.Event().wait()

        async def serve():
            async with working(store, Counting(during=hang)) as background:
                background.notice("alice")

        task = asyncio.create_task(serve())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(asyncio.all_tasks()), await store.folds("alice")

    assert run(scenario) == (1, ())


@pytest.mark.parametrize(
    "setting", [{"concurrency": 0}, {"attempts": 0}, {"first_seconds": -1}, {"max_seconds": -1}], ids=str
)
def test_a_setting_that_cannot_be_meant_is_refused(setting):
    with pytest.raises(InvalidSetting, match=f"{next(iter(setting))}="):
        BackgroundCompaction(MemoryStore(), on_error=print, **setting)
