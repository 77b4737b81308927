"""Background jobs on PostgreSQL: queued with the append, one for each conversation, and never lost."""

import asyncio
import sys
from pathlib import Path

import psycopg
import pytest

from minutebook.conversation.jobs import run_worker
from minutebook.errors import ConversationErased, FoldConflict, InvalidSetting, VersionConflict
from minutebook.store.postgres.store import PostgresStore
from minutebook.testing.contract.samples import expect_error, note, text_entries, turn, turns
from tests.servers import require_postgres, shared

ROOT = Path(__file__).parents[3]
JOBS = "SELECT args ->> 'tenant', args ->> 'conversation', status::text, (args ->> 'tries')::integer FROM minutebook_jobs.procrastinate_jobs ORDER BY id"


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


def always(_conversation):
    return True


def queued(url):
    with psycopg.connect(url) as db:
        return db.execute(JOBS).fetchall()


def change(url, statement):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(statement)


def test_an_append_queues_one_job_for_its_conversation_and_only_if_it_is_due(url):
    async def story():
        async with PostgresStore(url, needs_job=lambda conversation: conversation.turns > 2) as store:
            await asyncio.gather(*(store.append("a", turn(number)) for number in range(6)))
            await store.append("short", turn(0))
            await store.for_tenant("another").append("a", turns(3))

    asyncio.run(story())

    assert sorted(queued(url)) == [("another", "a", "todo", 0), ("default", "a", "todo", 0)]


def test_what_is_not_appended_queues_nothing(url):
    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            await run_worker(store, nothing, wait=False)
            await expect_error(VersionConflict, store.append("a", text_entries("2"), expected_version=9))
            await store.append("a", text_entries("1"), idempotency_key="k")
            await run_worker(store, nothing, wait=False)
            await store.append("a", text_entries("1"), idempotency_key="k")

    async def nothing(_tenant, _conversation):
        pass

    asyncio.run(story())

    assert queued(url) == []


def test_the_role_of_the_store_cannot_look_into_the_queue(url):
    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))

    asyncio.run(story())

    with psycopg.connect(url) as db:
        db.execute("SET LOCAL ROLE minutebook_app")
        for statement in ("SELECT * FROM minutebook_jobs.procrastinate_jobs", "SELECT minutebook_jobs.reclaim(0)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
                db.execute(statement)


def test_two_workers_do_each_job_once_and_never_two_of_one_conversation_at_a_time(url):
    done, running = [], set()

    async def handle(tenant, conversation):
        assert conversation not in running
        running.add(conversation)
        await asyncio.sleep(0)
        running.discard(conversation)
        done.append((tenant, conversation))

    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await asyncio.gather(*(store.append(f"c{number}", turn(0)) for number in range(20)))
            await asyncio.gather(*(run_worker(store, handle, concurrency=3, wait=False) for _ in range(2)))

    asyncio.run(story())

    assert sorted(done) == sorted(("default", f"c{number}") for number in range(20))
    assert queued(url) == []


def test_what_is_appended_while_a_job_runs_is_done_by_the_next(url):
    seen = []

    async def story():
        async with PostgresStore(url, needs_job=always) as store:

            async def handle(_tenant, conversation):
                seen.append((await store.header(conversation)).length)
                if len(seen) == 1:
                    await store.append(conversation, text_entries("meanwhile"))

            await store.append("a", text_entries("1"))
            await run_worker(store, handle, wait=False)

    asyncio.run(story())

    assert seen == [1, 2]


def test_a_job_that_fails_is_tried_again_later_each_time_and_kept_when_it_goes_on_failing(url):
    calls = []

    async def handle(_tenant, conversation):
        calls.append(conversation)
        raise RuntimeError("the model is away")

    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            for expected in (4, 8):
                await run_worker(store, handle, wait=False, tries=3, delay_seconds=4)
                with psycopg.connect(url) as db:
                    wait = "SELECT extract(epoch FROM scheduled_at - now()) FROM minutebook_jobs.procrastinate_jobs"
                    assert expected / 2 < db.execute(wait).fetchone()[0] <= expected
                await store.append("a", text_entries("more"))
                assert len(queued(url)) == 1
                change(url, "UPDATE minutebook_jobs.procrastinate_jobs SET scheduled_at = now()")
            await run_worker(store, handle, wait=False, tries=3, delay_seconds=4)

    asyncio.run(story())

    assert calls == ["a"] * 3
    assert queued(url) == [("default", "a", "failed", 2)]


def test_a_killed_worker_loses_its_job_to_another(url):
    worker = (
        "import asyncio, sys\n"
        "from minutebook.store import PostgresStore\n"
        "from minutebook.conversation.jobs import run_worker\n"
        "async def handle(tenant, conversation):\n"
        "    print(conversation, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        "    async with PostgresStore(sys.argv[1]) as store:\n"
        "        await run_worker(store, handle)\n"
        "asyncio.run(main())\n"
    )
    done = []

    async def handle(_tenant, conversation):
        done.append(conversation)

    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", worker, url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            assert await process.stdout.readline() == b"a\n"
            process.kill()
            await process.communicate()
            await run_worker(store, handle, wait=False)
            assert done == [], "its lease is not over"
            change(
                url, "UPDATE minutebook_jobs.procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'"
            )
            await run_worker(store, handle, wait=False)

    asyncio.run(story())

    assert done == ["a"]
    assert queued(url) == []


def test_what_a_stalled_worker_brings_too_late_is_refused(url):
    """Two workers fold the same conversation; the first sleeps through its lease, and its fold is refused."""
    refusals, folded = [], []

    async def story():
        began, go_on = asyncio.Event(), asyncio.Event()
        async with PostgresStore(url, needs_job=always) as store:

            async def slow(_tenant, conversation):
                seen = await store.folds(conversation)
                began.set()
                await go_on.wait()
                late = store.add_fold(conversation, note("late", 0, 10), replacing=[one.fold.id for one in seen])
                refusals.append(await expect_error(FoldConflict, late))

            async def quick(_tenant, conversation):
                folded.append((await store.add_fold(conversation, note("in time", 0, 5), replacing=[])).fold.id)

            await store.append("a", turns(3))
            stalled = asyncio.ensure_future(run_worker(store, slow, wait=False))
            await began.wait()
            change(
                url, "UPDATE minutebook_jobs.procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'"
            )
            await run_worker(store, quick, wait=False)
            go_on.set()
            await asyncio.gather(stalled, return_exceptions=True)
            return [one.fold.id for one in await store.folds("a")]

    assert asyncio.run(story()) == ["in time"]
    assert (folded, len(refusals)) == (["in time"], 1)


def test_an_erased_conversation_leaves_the_queue_too(url):
    called = []

    async def story():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            await store.append("b", text_entries("1"))
            await store.erase(conversation="a")
            assert queued(url) == [("default", "b", "todo", 0)]

            async def handle(_tenant, conversation):
                called.append(conversation)
                await store.erase(conversation="b")
                raise ConversationErased("b")

            await run_worker(store, handle, wait=False)
            await store.vacuum()

    asyncio.run(story())

    assert called == ["b"]
    assert queued(url) == []


def test_a_worker_goes_on_until_it_is_stopped(url):
    async def story():
        seen = asyncio.Event()

        async def handle(_tenant, _conversation):
            seen.set()

        async with PostgresStore(url, needs_job=always) as store:
            working = asyncio.ensure_future(run_worker(store, handle))
            for number in range(3):
                await store.append("a", turn(number))
                await seen.wait()
                seen.clear()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await expect_error(InvalidSetting, run_worker(store, handle, tries=0))

    asyncio.run(story())
