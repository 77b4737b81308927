"""Background jobs on PostgreSQL: enqueued with the append, at most one per conversation, and never lost."""

import asyncio
import sys
from pathlib import Path

import psycopg
import pytest

from minutebook.conversation.jobs import run_worker
from minutebook.errors import ConversationErased, FoldConflict, InvalidSetting, StoreRejected, VersionConflict
from minutebook.store.postgres import jobs
from minutebook.store.postgres.store import PostgresStore
from minutebook.store.sql.migrations import Migration
from minutebook.testing.contract.samples import expect_error, summary_fold, text_entries, turn, turns
from tests.servers import as_root, require_postgres, shared

ROOT = Path(__file__).parents[3]
JOBS = "SELECT args ->> 'tenant', args ->> 'conversation', status::text, (args ->> 'tries')::integer FROM minutebook_jobs.procrastinate_jobs ORDER BY id"


@pytest.fixture
def url():
    require_postgres()
    return shared.empty()


def always(_header):
    return True


def queued(url):
    with psycopg.connect(as_root(url)) as db:
        return db.execute(JOBS).fetchall()


def change(url, statement):
    with psycopg.connect(as_root(url), autocommit=True) as db:
        db.execute(statement)


def test_an_append_enqueues_one_job_for_its_conversation_if_it_needs_one(url):
    async def scenario():
        async with PostgresStore(url, needs_job=lambda header: header.turns > 2) as store:
            await asyncio.gather(*(store.append("a", turn(number)) for number in range(6)))
            await store.append("short", turn(0))
            await store.for_tenant("another").append("a", turns(3))

    asyncio.run(scenario())

    assert sorted(queued(url)) == [("another", "a", "todo", 0), ("default", "a", "todo", 0)]


def test_a_rejected_or_repeated_append_enqueues_no_job(url):
    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            await run_worker(store, do_nothing, wait=False)
            await expect_error(VersionConflict, store.append("a", text_entries("2"), expected_version=9))
            await store.append("a", text_entries("1"), idempotency_key="k")
            await run_worker(store, do_nothing, wait=False)
            await store.append("a", text_entries("1"), idempotency_key="k")

    async def do_nothing(_tenant, _conversation):
        pass

    asyncio.run(scenario())

    assert queued(url) == []


@pytest.mark.parametrize("expected", [None, 0, 1])
def test_every_kind_of_append_queues_a_job(url, expected):
    """Also one that creates the conversation, and one with a cached header."""

    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            if expected:
                await store.append("a", text_entries("1"))
                await run_worker(store, do_nothing, wait=False)
            await store.append("a", text_entries("2"), expected_version=expected)

    async def do_nothing(_tenant, _conversation):
        pass

    asyncio.run(scenario())

    assert len(queued(url)) == 1


def test_a_database_with_a_queue_gets_the_new_migrations_once(url, monkeypatch):
    released = jobs.job_migrations()
    script = "ALTER TABLE minutebook_jobs.procrastinate_jobs ADD COLUMN added integer"
    newer = [*released, Migration(len(released) + 1, "0002_added", script)]

    async def open_and_append(name):
        async with PostgresStore(url, needs_job=always) as store:
            await store.append(name, text_entries("1"))

    asyncio.run(open_and_append("a"))
    monkeypatch.setattr(jobs, "job_migrations", lambda: newer)
    asyncio.run(open_and_append("b"))
    asyncio.run(open_and_append("c"))

    with psycopg.connect(as_root(url)) as db:
        assert db.execute("SELECT count(*) FROM minutebook_jobs.procrastinate_jobs WHERE added IS NULL").fetchone() == (
            3,
        )
    monkeypatch.setattr(jobs, "job_migrations", lambda: released)
    with pytest.raises(StoreRejected, match=r"minutebook_jobs schema version 2, but .* up to 1; upgrade minutebook"):
        asyncio.run(open_and_append("d"))
    change(url, "DROP SCHEMA minutebook_jobs CASCADE")  # other tests use the same database


def test_the_role_of_the_store_cannot_read_the_queue(url):
    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))

    asyncio.run(scenario())

    with psycopg.connect(as_root(url)) as db:
        db.execute("SET LOCAL ROLE minutebook_app")
        for statement in ("SELECT * FROM minutebook_jobs.procrastinate_jobs", "SELECT minutebook_jobs.reclaim(0)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
                db.execute(statement)


def test_two_workers_run_each_job_once_and_one_per_conversation_at_a_time(url):
    done, running = [], set()

    async def handle(tenant, conversation):
        assert conversation not in running
        running.add(conversation)
        await asyncio.sleep(0)
        running.discard(conversation)
        done.append((tenant, conversation))

    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            await asyncio.gather(*(store.append(f"c{number}", turn(0)) for number in range(20)))
            await asyncio.gather(*(run_worker(store, handle, concurrency=3, wait=False) for _ in range(2)))

    asyncio.run(scenario())

    assert sorted(done) == sorted(("default", f"c{number}") for number in range(20))
    assert queued(url) == []


def test_an_append_during_a_job_enqueues_the_next(url):
    seen = []

    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:

            async def handle(_tenant, conversation):
                seen.append((await store.header(conversation)).length)
                if len(seen) == 1:
                    await store.append(conversation, text_entries("meanwhile"))

            await store.append("a", text_entries("1"))
            await run_worker(store, handle, wait=False)

    asyncio.run(scenario())

    assert seen == [1, 2]


def test_a_failing_job_is_retried_with_longer_delays_and_then_marked_failed(url):
    calls = []

    async def handle(_tenant, conversation):
        calls.append(conversation)
        raise RuntimeError("the model is unavailable")

    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            for expected in (4, 8):
                await run_worker(store, handle, wait=False, tries=3, delay_seconds=4)
                with psycopg.connect(as_root(url)) as db:
                    wait = "SELECT extract(epoch FROM scheduled_at - now()) FROM minutebook_jobs.procrastinate_jobs"
                    assert expected / 2 < db.execute(wait).fetchone()[0] <= expected
                await store.append("a", text_entries("more"))
                assert len(queued(url)) == 1
                change(url, "UPDATE minutebook_jobs.procrastinate_jobs SET scheduled_at = now()")
            await run_worker(store, handle, wait=False, tries=3, delay_seconds=4)

    asyncio.run(scenario())

    assert calls == ["a"] * 3
    assert queued(url) == [("default", "a", "failed", 2)]


def test_the_job_of_a_killed_worker_goes_to_another(url):
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

    async def scenario():
        async with PostgresStore(url, needs_job=always) as store:
            await store.append("a", text_entries("1"))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", worker, url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            assert await process.stdout.readline() == b"a\n"
            process.kill()
            await process.communicate()
            await run_worker(store, handle, wait=False)
            assert done == [], "its lease has not expired"
            change(
                url, "UPDATE minutebook_jobs.procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'"
            )
            await run_worker(store, handle, wait=False)

    asyncio.run(scenario())

    assert done == ["a"]
    assert queued(url) == []


def test_the_fold_of_a_stalled_worker_is_rejected(url):
    """Two workers fold the same conversation. The first one's lease expires, and its fold is rejected."""
    conflicts, fold_ids = [], []

    async def scenario():
        started, may_continue = asyncio.Event(), asyncio.Event()
        async with PostgresStore(url, needs_job=always) as store:

            async def slow(_tenant, conversation):
                folds = await store.folds(conversation)
                started.set()
                await may_continue.wait()
                late = store.add_fold(
                    conversation, summary_fold("late", 0, 10), replacing=[stored.fold.id for stored in folds]
                )
                conflicts.append(await expect_error(FoldConflict, late))

            async def quick(_tenant, conversation):
                fold_ids.append(
                    (await store.add_fold(conversation, summary_fold("in time", 0, 5), replacing=[])).fold.id
                )

            await store.append("a", turns(3))
            stalled = asyncio.ensure_future(run_worker(store, slow, wait=False))
            await started.wait()
            change(
                url, "UPDATE minutebook_jobs.procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'"
            )
            await run_worker(store, quick, wait=False)
            may_continue.set()
            await asyncio.gather(stalled, return_exceptions=True)
            return [stored.fold.id for stored in await store.folds("a")]

    assert asyncio.run(scenario()) == ["in time"]
    assert (fold_ids, len(conflicts)) == (["in time"], 1)


def test_an_erasure_deletes_the_jobs_of_its_conversation(url):
    called = []

    async def scenario():
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

    asyncio.run(scenario())

    assert called == ["b"]
    assert queued(url) == []


def test_a_worker_runs_until_it_is_cancelled(url):
    async def scenario():
        seen = asyncio.Event()

        async def handle(_tenant, _conversation):
            seen.set()

        async with PostgresStore(url, needs_job=always) as store:
            worker = asyncio.ensure_future(run_worker(store, handle))
            for number in range(3):
                await store.append("a", turn(number))
                await seen.wait()
                seen.clear()
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await expect_error(InvalidSetting, run_worker(store, handle, tries=0))

    asyncio.run(scenario())
