"""Reads and writes run inline while that is fast, and in other threads when they would block the event loop."""

import asyncio
import threading

import apsw
import pytest

from minutebook.errors import StoreUnavailable
from minutebook.store.sql.transaction import TooManyEntries
from minutebook.store.sqlite.commit import WriteJob
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import text_entries, texts


def run_with_store(scenario, tmp_path):
    """Run a scenario on a store that has one message and a fast disk."""

    async def run():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await store.append("a", text_entries("first"))
            set_sync_seconds(store, 0.0)
            store._engine._writer._last_inline_write = float("inf")  # no background indexing meanwhile
            await scenario(store)

    asyncio.run(run())


def set_sync_seconds(store, seconds):
    store._engine._writer._committer.sync_seconds = seconds


async def thread_of_write(store, *, inline_ok):
    return await store._engine.write(lambda _writable: threading.get_ident(), cache_safe=True, inline_ok=inline_ok)


def current_thread(_db):
    return threading.get_ident()


def test_short_work_on_a_fast_disk_runs_in_the_callers_thread(tmp_path):
    async def scenario(store):
        assert await thread_of_write(store, inline_ok=True) == threading.get_ident()
        assert await store._engine.read(lambda _db: None, inline_work=current_thread) == threading.get_ident()

    run_with_store(scenario, tmp_path)


@pytest.mark.parametrize(("seconds", "inline_ok"), [(0.0, False), (1.0, True)], ids=["long work", "slow disk"])
def test_the_loop_is_not_blocked_by_long_work_or_a_slow_disk(tmp_path, seconds, inline_ok):
    async def scenario(store):
        set_sync_seconds(store, seconds)
        assert await thread_of_write(store, inline_ok=inline_ok) != threading.get_ident()

    run_with_store(scenario, tmp_path)


def test_a_long_read_runs_in_another_thread(tmp_path):
    def too_long(_db):
        raise TooManyEntries

    async def scenario(store):
        engine = store._engine
        assert await engine.read(current_thread, inline_work=too_long) != threading.get_ident()
        engine._inline_reads_from = float("inf")
        assert await engine.read(current_thread, inline_work=current_thread) != threading.get_ident()

    run_with_store(scenario, tmp_path)


def test_all_appends_of_one_loop_iteration_share_a_commit(tmp_path):
    async def scenario(store):
        commits = []
        store._engine._writer._committer._writable.connection.set_commit_hook(lambda: bool(commits.append(1)))
        versions = await asyncio.gather(*(store.append("a", text_entries(f"message {number}")) for number in range(50)))
        assert versions == list(range(2, 52))
        assert len(commits) == 1

    run_with_store(scenario, tmp_path)


def test_the_loop_is_not_blocked_while_another_process_writes(tmp_path):
    async def scenario(store):
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

    run_with_store(scenario, tmp_path)


@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_a_cancelled_append_does_not_cancel_the_others_of_its_group(tmp_path, cancelled):
    async def scenario(store):
        tasks = [asyncio.create_task(store.append("a", text_entries(f"message {number}"))) for number in range(3)]
        await asyncio.sleep(0)  # all three are submitted, and none has run
        tasks[cancelled].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for number, result in enumerate(results) if number != cancelled] == [int, int]
        assert isinstance(results[cancelled], asyncio.CancelledError)
        assert texts((await store.load("a")).entries) == [
            "first",
            *(f"message {number}" for number in range(3) if number != cancelled),
        ]

    run_with_store(scenario, tmp_path)


def test_a_rejected_append_does_not_fail_the_others_of_its_group(tmp_path):
    async def scenario(store):
        stale = store.append("a", text_entries("stale"), expected_version=7)
        results = await asyncio.gather(
            store.append("a", text_entries("b")), stale, store.append("a", text_entries("c")), return_exceptions=True
        )
        assert [type(result).__name__ for result in results] == ["int", "VersionConflict", "int"]
        assert texts((await store.load("a")).entries) == ["first", "b", "c"]

    run_with_store(scenario, tmp_path)


def test_what_another_process_appended_is_seen_by_the_next_append(tmp_path):
    async def scenario(store):
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as other:
            for at in range(3):
                assert await other.append("a", text_entries(f"other {at}")) == 2 + 2 * at
                assert await store.append("a", text_entries(f"mine {at}")) == 3 + 2 * at
        assert len((await store.load("a")).entries) == 7

    run_with_store(scenario, tmp_path)


def test_long_work_runs_while_others_write_all_the_time(tmp_path):
    async def scenario(store):
        long = asyncio.create_task(store.erase(conversation="other"))
        appended = 0
        while not long.done():
            await store.append("a", text_entries("again"))
            appended += 1
            assert appended < 5_000
        assert (await long).conversations == 0

    run_with_store(scenario, tmp_path)


class LockReleasedAfterTheCheck:
    """A lock that `locked` reports as taken, and that is released before the caller starts to wait for it."""

    def __init__(self, writer):
        self._writer, self._lock, self._remaining = writer, writer._connection_lock, 2

    def locked(self):
        self._remaining -= 1
        if self._remaining < 0:
            return False
        thread = threading.Thread(target=self._writer._wake_lock_waiters, daemon=True)
        thread.start()
        thread.join(0.1)  # it has ended by then, unless it waits for a lock of the caller
        return True

    def __getattr__(self, name):
        return getattr(self._lock, name)

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


def test_no_append_waits_for_a_lock_that_was_just_released(tmp_path):
    async def scenario(store):
        writer = store._engine._writer
        writer._connection_lock = LockReleasedAfterTheCheck(writer)
        assert await asyncio.wait_for(store.append("a", text_entries("second")), 20) == 2

    run_with_store(scenario, tmp_path)


def test_reading_a_deleted_file_raises_an_error_of_ours(tmp_path):
    async def scenario(store):
        (tmp_path / "chat.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnavailable):
            await store.header("a")

    run_with_store(scenario, tmp_path)


def test_closing_ends_also_when_a_job_came_just_before_it(tmp_path):
    """The thread takes the job and the end of the queue in one go, and must not wait for another end."""

    async def scenario(store):
        writer, finished_jobs = store._engine._writer, []
        started, may_end = threading.Event(), threading.Event()
        writer._submit([WriteJob(lambda _writable: (started.set(), may_end.wait(20)))])
        assert started.wait(20)
        writer._submit([WriteJob(finished_jobs.append)])
        closing = threading.Thread(target=writer.close, daemon=True)
        closing.start()
        while not writer._closed:  # from then on the end is in the queue, after the job
            closing.join(0.01)
        may_end.set()
        closing.join(20)
        assert not closing.is_alive()
        assert finished_jobs

    run_with_store(scenario, tmp_path)
