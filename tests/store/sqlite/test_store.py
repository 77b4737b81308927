"""Behaviour that only the SQLite store has: one file, one writer, and no deleted bytes in the file."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from minutebook.errors import StoreDamaged, StoreFull, StoreUnavailable, VersionConflict
from minutebook.record import exchanges
from minutebook.record.message import text_of
from minutebook.store import codec
from minutebook.store.backend import LoadQuery
from minutebook.store.sql.conversations import load
from minutebook.store.sqlite.store import run
from minutebook.store.sqlite.transaction import SqliteTransaction
from minutebook.store.types import NewDocument
from minutebook.store.url import open_store
from minutebook.testing import coding_session
from minutebook.testing.contract.samples import entries_of, expect_error, summary_fold, text_entries, texts, turn, turns
from tests.store.deleted_data import GONE, STAYS, gone_in, plant, remove
from torture.file_faults import move_file, world_writable_folder, write_to_read_only_file


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'chat.db'}"


def bytes_in(folder):
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


async def rows(store, statement):
    return await store._engine.read(lambda db: db.execute(statement).fetchall())


def test_no_erased_byte_remains_after_a_vacuum(url, tmp_path, monkeypatch):
    monkeypatch.setattr(
        codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40
    )  # nothing is compressed, so that all texts can be found
    planted = [f"{number:05}zqx" for number in range(1_000)]

    def chat(words):
        calls = [{"id": words[1], "type": "function", "function": {"name": words[2], "arguments": words[3]}}]
        return entries_of(
            [
                {"role": "user", "content": words[0], "x": words[8]},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": words[1], "content": f"{words[4]} {'long ' * 2_000}"},
                {"role": "assistant", "content": [{"type": "text", "text": words[5]}]},
            ]
        )

    async def scenario():
        async with open_store(url) as store:
            await store.append("stays", text_entries("a word that stays"), recipient="bob")
            for at in range(0, 1_000, 10):
                words = planted[at : at + 10]
                document = NewDocument(words[3], words[4], {words[5]: words[8]})
                await store.append(
                    words[6],
                    chat(words),
                    recipient="alice",
                    idempotency_key=words[7],
                    labels={"l": words[9]},
                    documents=[document],
                )
                await store.acquire_lease(words[6], "a worker", seconds=60)
                await store.add_fold(words[6], summary_fold(words[7], 0, 1, words[8]))
            await store.fork(planted[6], "a fork")
            assert len((await store.search(planted[0])).items) == 1
            await store.erase(recipient="alice")
            await store.vacuum()
            assert await rows(store, "SELECT (SELECT count(*) FROM idempotency_key), (SELECT count(*) FROM fold)") == [
                (0, 0)
            ]
            return await store.search("stays")

    async def before():
        async with open_store(f"sqlite:///{tmp_path / 'other.db'}") as store:
            await store.append(planted[6], chat(planted))
            assert await store.search(planted[0])
        return bytes_in(tmp_path)

    full = asyncio.run(before())
    assert all(planted[at].encode() in full for at in (0, 1, 2, 3, 4, 5, 6, 8))
    (tmp_path / "other.db").unlink()

    kept = asyncio.run(scenario())

    left = bytes_in(tmp_path)
    assert [word for word in planted if word.encode() in left] == []
    assert b"alice" not in left
    assert [hit.conversation for hit in kept.items] == ["stays"]


def test_no_byte_of_trimmed_messages_or_deleted_documents_remains_after_a_vacuum(url, tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "MAX_UNCOMPRESSED_BYTES", 1 << 40)

    async def scenario():
        async with open_store(url) as store:
            await plant(store)
            assert gone_in(bytes_in(tmp_path)) == GONE
            await remove(store)
            assert await rows(store, "SELECT count(*) FROM payload") == [(0,)]
            assert [hit.position for hit in (await store.search(STAYS)).items] == [2]

    asyncio.run(scenario())

    assert gone_in(bytes_in(tmp_path)) == []
    assert STAYS.encode() in bytes_in(tmp_path)


def test_a_vacuum_of_an_open_store_empties_the_log_and_shrinks_the_file(url, tmp_path):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("zqxsecret", random.Random(1).randbytes(100_000).hex()))
            before = await rows(store, "PRAGMA page_count")
            await store.erase(conversation="a")
            await store.vacuum()
            assert await rows(store, "PRAGMA page_count") < before
            return bytes_in(tmp_path)

    assert b"zqxsecret" not in asyncio.run(scenario())


def test_a_large_payload_is_stored_once_and_deleted_with_its_last_use(url):
    large = "a line of a long report\n" * 1_000
    count = "SELECT count(*), sum(uses) FROM payload"

    async def scenario():
        async with open_store(url) as store:
            await store.append("a", [*turn(0)[:2], *entries_of(results())])
            await store.append("b", text_entries(large))
            await store.fork("b", "c")
            assert await rows(store, count) == [(1, 3)]
            await store.append("b", text_entries("short"))
            await store.for_tenant("another").append("b", text_entries(large))
            assert await rows(store, count) == [(2, 4)]
            await store.erase(conversation="a")
            assert await rows(store, count) == [(2, 2)]
            await store.erase(conversation="b")
            await store.for_tenant("another").erase(conversation="b")
            assert await rows(store, count) == [(0, None)]

    def results():
        return [{"role": "tool", "tool_call_id": f"call_0_{at}", "content": large} for at in range(2)]

    asyncio.run(scenario())


def test_the_file_is_at_most_1_5_times_as_large_as_the_text(url, tmp_path):
    chat = coding_session(turns=40)

    async def scenario():
        async with open_store(url) as store:
            for exchange in exchanges(chat):
                await store.append("a", entries_of(chat[exchange.start : exchange.stop]))
            assert (await store.search("test")).items

    asyncio.run(scenario())

    text_characters = sum(len(text_of(message)) for message in chat)
    assert (tmp_path / "chat.db").stat().st_size <= 1.5 * text_characters


@pytest.mark.parametrize(
    "part", [{"last_messages": 20}, {"last_turns": 4}, {"since": 90, "limit": 10}, {"folded": True}], ids=str
)
def test_a_load_takes_no_more_steps_in_a_long_conversation(url, tmp_path, part):
    async def scenario():
        async with open_store(url) as store:
            for name, size in (("short", 32), ("long", 992)):
                await store.append(name, turns(size))
                await store.add_fold(name, summary_fold("f", 0, 5 * size - 25))
                await store.fork(name, f"fork of {name}")

    def steps(name):
        count = 0

        def step():
            nonlocal count
            count += 1
            return False

        with apsw.Connection(str(tmp_path / "chat.db")) as db:
            db.set_progress_handler(step, 1)
            run(load(SqliteTransaction(db, "default"), LoadQuery(name, **part)))
            db.set_progress_handler(None)
        return count

    asyncio.run(scenario())

    assert steps("long") <= 1.1 * steps("short")
    assert steps("fork of long") <= 1.1 * steps("fork of short")


def test_a_full_disk_raises_an_error_and_does_not_change_the_record(url):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("before"))
            await store._engine.write(lambda writable: writable.db.execute("PRAGMA max_page_count = 60").get)
            noise = random.Random(1)

            answers = await asyncio.gather(
                *(store.append(f"c{number}", text_entries(noise.randbytes(2_500).hex())) for number in range(200)),
                return_exceptions=True,
            )

            stored = {f"c{number}" for number, answer in enumerate(answers) if answer == 1}
            assert {type(answer) for answer in answers} == {int, StoreFull}
            listed = {header.id for header in (await store.list(limit=1000)).items}
            assert listed == {"a", *stored}
            assert texts((await store.load("a")).entries) == ["before"]
            await store._engine.write(lambda writable: writable.db.execute("PRAGMA max_page_count = 100000").get)
            assert await store.append("a", text_entries("after")) == 2
            assert await rows(store, "PRAGMA integrity_check") == [("ok",)]

    asyncio.run(scenario())


def test_a_read_only_file_can_be_read_and_rejects_writes():
    with world_writable_folder() as folder:
        assert write_to_read_only_file(folder)


def test_a_file_that_is_not_a_store_is_rejected_and_not_changed(tmp_path):
    garbage, other, folder = tmp_path / "garbage.db", tmp_path / "other.db", tmp_path / "folder"
    garbage.write_bytes(b"this is no database " * 500)
    with apsw.Connection(str(other)) as db:
        db.execute("CREATE TABLE theirs (x)")
    folder.mkdir()
    before = {file: file.read_bytes() for file in (garbage, other)}

    async def scenario(path):
        store = open_store(f"sqlite:///{path}")
        await expect_error(StoreDamaged if path in before else StoreUnavailable, store.append("a", text_entries("x")))
        await expect_error(StoreUnavailable, store.list())
        await store.close()

    for path in (garbage, other, folder, tmp_path / "nowhere" / "chat.db"):
        asyncio.run(scenario(path))
    assert {file: file.read_bytes() for file in before} == before


def test_a_file_of_a_newer_version_is_rejected(url, tmp_path):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("x"))
        with apsw.Connection(str(tmp_path / "chat.db")) as db:
            db.execute("PRAGMA user_version = 9999")
        problem = await expect_error(StoreUnavailable, open_store(url).header("a"))
        assert "schema version 9999" in str(problem)

    asyncio.run(scenario())


def test_a_deleted_file_is_noticed_before_anything_is_acknowledged(url, tmp_path):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("1"))
            assert (await store.header("a")).length == 1
            for file in tmp_path.iterdir():
                file.unlink()
            problem = await expect_error(StoreUnavailable, store.append("a", text_entries("2")))
            assert "deleted or replaced" in str(problem)
            assert await store.append("b", text_entries("in a new file")) == 1
            assert [header.id for header in (await store.list()).items] == ["b"]

    asyncio.run(scenario())


def test_a_file_that_is_moved_under_load_has_all_acknowledged_appends(tmp_path):
    assert move_file(tmp_path)


def test_every_commit_is_synced_and_every_deletion_overwritten(url):
    async def scenario():
        async with open_store(url) as store:
            settings = ("journal_mode", "synchronous", "secure_delete")
            return await store._engine.write(
                lambda writable: [writable.db.execute(f"PRAGMA {name}").get for name in settings]
            )

    assert asyncio.run(scenario()) == ["wal", 2, 1]


def test_many_appends_share_a_commit_and_a_failing_one_fails_alone(url):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            go, commits = threading.Event(), []

            def count(writable):
                writable.db.set_commit_hook(lambda: bool(commits.append(1)))
                go.wait()

            def write_and_fail(writable):
                writable.db.execute("DELETE FROM entry")
                raise KeyError("a bug")

            first = asyncio.ensure_future(store._engine.write(count))
            writers = [asyncio.ensure_future(store.append(f"c{number}", turn(0))) for number in range(50)]
            stale = asyncio.ensure_future(store.append("a", text_entries("late"), expected_version=7))
            await asyncio.sleep(0)
            go.set()
            await first
            assert await asyncio.gather(*writers) == [1] * 50
            await expect_error(VersionConflict, stale)
            assert len(commits) <= 3
            broken = asyncio.ensure_future(store._engine.write(write_and_fail))
            more = [asyncio.ensure_future(store.append(f"c{number}", turn(1))) for number in range(5)]
            await expect_error(KeyError, broken)
            assert await asyncio.gather(*more) == [2] * 5
            assert (await store.load("c0")).entries == (*turn(0), *turn(1))

    asyncio.run(scenario())


def test_a_store_serves_many_threads_with_separate_event_loops(url):
    store = open_store(url)

    def work(number):
        async def scenario():
            for at in range(10):
                await store.append("shared", turn(number * 100 + at))
            return len((await store.load("shared", last_turns=3)).entries)

        return asyncio.run(scenario())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [15] * 4
    asyncio.run(check_and_close(store))


async def check_and_close(store):
    assert (await store.header("shared")).length == 200
    await store.close()


def test_a_cancelled_append_happens_once_or_not_at_all(url):
    async def scenario():
        async with open_store(url) as store:
            await store.append("a", text_entries("0"))
            for number in range(20):
                attempt = asyncio.ensure_future(
                    store.append("a", text_entries(f"{number}"), idempotency_key=f"{number}")
                )
                await asyncio.sleep(0)
                attempt.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await attempt
                await store.append("a", text_entries(f"{number}"), idempotency_key=f"{number}")
            assert texts((await store.load("a", since=1)).entries) == [f"{number}" for number in range(20)]

    asyncio.run(scenario())


def test_a_writer_with_caches_sees_the_appends_of_another_process(url):
    async def scenario():
        async with open_store(url) as one, open_store(url) as two:
            for number in range(10):
                store = (one, two)[number % 2]
                assert await store.append("a", text_entries(f"{number}"), expected_version=number) == number + 1
            await one.set_labels("a", {"x": "1"})
            await one.erase(conversation="a")
            await expect_error(LookupError, two.append("a", text_entries("late")))

    asyncio.run(scenario())


def test_no_file_is_created_before_the_first_operation(url, tmp_path):
    async def scenario():
        store = open_store(url)
        assert list(tmp_path.iterdir()) == []
        await store.close()
        assert list(tmp_path.iterdir()) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("target", [{"conversation": "c7"}, {"recipient": "c7"}, {"recipient": "alice"}])
def test_an_erasure_scans_no_table_and_no_tenant(tmp_path, monkeypatch, target):
    statements = []
    query = SqliteTransaction.query

    async def record_and_query(self, *queries):
        statements.extend(queries)
        return await query(self, *queries)

    async def scenario():
        async with open_store(f"sqlite:///{tmp_path / 'chat.db'}") as store:
            await store.append("c7", text_entries("1"))
            await store.append("other", text_entries("1"), recipient="alice")
            monkeypatch.setattr(SqliteTransaction, "query", record_and_query)
            await store.erase(**target)

    asyncio.run(scenario())

    assert statements
    db = apsw.Connection(str(tmp_path / "chat.db"))
    for statement, values in statements:
        plan = [line for _, _, _, line in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        assert not [line for line in plan if line.startswith("SCAN") or line.endswith("(tenant=?)")], (statement, plan)
    db.close()
