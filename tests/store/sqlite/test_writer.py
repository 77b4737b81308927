"""Who writes and who reads: the caller's own thread while that is quick, others when it would keep the loop."""

import asyncio
import threading

import apsw
import pytest

from minutebook.errors import StoreUnavailable
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import text_entries, texts


def run(scene, tmp_path):
    """A scene with a store that has been written to, whose disk is called quick whatever it is."""

    async def whole():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await store.append("a", text_entries("first"))
            call_the_disk(store, 0.0)
            store._engine._writer._written_at = float("inf")  # nothing is indexed meanwhile
            await scene(store)

    asyncio.run(whole())


def call_the_disk(store, seconds):
    store._engine._writer._committer.waited = seconds


def thread_of(store, **how):
    return store._engine.write(lambda _unit: threading.get_ident(), keeps=True, **how)


def test_brief_work_on_a_quick_disk_is_done_in_the_callers_thread(tmp_path):
    async def scene(store):
        assert await thread_of(store, brief=True) == threading.get_ident()
        assert (
            await store._engine.read(lambda _db: None, brief=lambda _db: threading.get_ident()) == threading.get_ident()
        )

    run(scene, tmp_path)


@pytest.mark.parametrize(
    ("seconds", "how"), [(0.0, {"brief": False}), (1.0, {"brief": True})], ids=["long work", "slow disk"]
)
def test_the_loop_is_not_kept_by_long_work_or_a_slow_disk(tmp_path, seconds, how):
    async def scene(store):
        call_the_disk(store, seconds)
        assert await thread_of(store, **how) != threading.get_ident()

    run(scene, tmp_path)


def test_a_long_reading_is_left_to_another_thread(tmp_path):
    async def scene(store):
        engine = store._engine
        assert await engine.read(lambda _db: threading.get_ident(), brief=lambda _db: False) != threading.get_ident()
        engine._slow_until = float("inf")
        assert (
            await engine.read(lambda _db: threading.get_ident(), brief=lambda _db: threading.get_ident())
            != threading.get_ident()
        )

    run(scene, tmp_path)


def test_all_who_ask_in_the_same_round_share_a_commit(tmp_path):
    async def scene(store):
        commits = []
        store._engine._writer._committer._unit.connection.set_commit_hook(lambda: bool(commits.append(1)))
        versions = await asyncio.gather(*(store.append("a", text_entries(f"message {at}")) for at in range(50)))
        assert versions == list(range(2, 52))
        assert len(commits) == 1

    run(scene, tmp_path)


def test_while_another_process_writes_the_loop_goes_on(tmp_path):
    async def scene(store):
        other = apsw.Connection(f"{tmp_path}/chat.db")
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.append("a", text_entries("second")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        other.execute("ROLLBACK")
        assert await waiting == 2
        other.close()
        assert texts((await store.load("a")).entries) == ["first", "second"]

    run(scene, tmp_path)


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_whoever_is_cancelled_takes_nobody_with_it(tmp_path, cancelled):
    async def scene(store):
        tasks = [asyncio.create_task(store.append("a", text_entries(f"message {at}"))) for at in range(3)]
        await asyncio.sleep(0)  # all three have asked, and nothing is done yet
        tasks[cancelled].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for at, one in enumerate(done) if at != cancelled] == [int, int]
        assert isinstance(done[cancelled], asyncio.CancelledError)
        assert texts((await store.load("a")).entries) == [
            "first",
            *(f"message {at}" for at in range(3) if at != cancelled),
        ]

    run(scene, tmp_path)


def test_what_is_refused_takes_nobody_with_it(tmp_path):
    async def scene(store):
        wrong = store.append("a", text_entries("wrong"), expected_version=7)
        done = await asyncio.gather(
            store.append("a", text_entries("b")), wrong, store.append("a", text_entries("c")), return_exceptions=True
        )
        assert [type(one).__name__ for one in done] == ["int", "VersionConflict", "int"]
        assert texts((await store.load("a")).entries) == ["first", "b", "c"]

    run(scene, tmp_path)


def test_what_another_process_appended_is_seen_by_the_next_append(tmp_path):
    async def scene(store):
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as other:
            for at in range(3):
                assert await other.append("a", text_entries(f"other {at}")) == 2 + 2 * at
                assert await store.append("a", text_entries(f"mine {at}")) == 3 + 2 * at
        assert len((await store.load("a")).entries) == 7

    run(scene, tmp_path)


def test_long_work_has_its_turn_while_others_write_all_the_time(tmp_path):
    async def scene(store):
        long = asyncio.create_task(store.erase(conversation="other"))
        appended = 0
        while not long.done():
            await store.append("a", text_entries("again"))
            appended += 1
            assert appended < 5_000
        assert (await long).conversations == 0

    run(scene, tmp_path)


class TurnThatEndsWhileItIsLookedAt:
    """A lock that was taken when it was asked, and is free a moment later, before anybody waits for that."""

    def __init__(self, writer):
        self._writer, self._lock, self._left = writer, writer._turn, 2

    def locked(self):
        self._left -= 1
        if self._left < 0:
            return False
        telling = threading.Thread(target=self._writer._tell_turn_over, daemon=True)
        telling.start()
        telling.join(0.1)  # it is done by then, unless it waits for whoever is looking
        return True

    def __getattr__(self, name):
        return getattr(self._lock, name)

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


def test_nobody_waits_for_a_turn_that_has_just_ended(tmp_path):
    async def scene(store):
        writer = store._engine._writer
        writer._turn = TurnThatEndsWhileItIsLookedAt(writer)
        assert await asyncio.wait_for(store.append("a", text_entries("second")), 20) == 2

    run(scene, tmp_path)


def test_a_file_that_is_gone_is_told_in_our_words_to_a_reader_too(tmp_path):
    async def scene(store):
        (tmp_path / "chat.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnavailable):
            await store.header("a")

    run(scene, tmp_path)


def test_closing_ends_also_when_a_chore_came_just_before_it(tmp_path):
    """The thread takes the chore and the end in one go, and must not wait for another end."""

    async def scene(store):
        writer, done, begun, go = store._engine._writer, [], threading.Event(), threading.Event()
        writer.chore(lambda _unit: (begun.set(), go.wait(20)))
        assert begun.wait(20)
        writer.chore(done.append)
        closing = threading.Thread(target=writer.close, daemon=True)
        closing.start()
        while not writer._closed:  # from then on the end is in the queue, behind the chore
            closing.join(0.01)
        go.set()
        closing.join(20)
        assert not closing.is_alive()
        assert done

    run(scene, tmp_path)
