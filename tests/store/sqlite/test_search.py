"""The search index of the SQLite store."""

import asyncio

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import ConversationNotFound, InvalidSetting, MissingSetting
from minutebook.store.backend import SearchQuery
from minutebook.store.search import WORDS as WORDS_MODE
from minutebook.store.search import index_query, parse_query
from minutebook.store.sqlite import search as sqlite_search
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, summary_fold, text_entries

WORDS = ("red", "green", "blue")
QUERY = SearchQuery(parse_query("common word"), None, None, None, 20)
STEPS = st.lists(
    st.one_of(
        st.lists(st.sets(st.sampled_from(WORDS), max_size=2).map(sorted).map(" ".join), min_size=1, max_size=40),
        st.just("search"),
        st.just("purge"),
        st.just("fork"),
    ),
    max_size=8,
)


async def hits_of(store, query):
    hits, cursor = [], None
    while True:
        page = await store.search(query, cursor=cursor, limit=7)
        hits += [(hit.conversation, hit.position) for hit in page.items]
        cursor = page.cursor
        if cursor is None:
            return hits


@given(steps=STEPS)
def test_a_search_finds_every_entry_once_whenever_it_was_indexed(tmp_path_factory, steps):
    async def scenario():
        path = tmp_path_factory.mktemp("index") / "chat.db"
        async with open_store(f"sqlite:///{path}") as store:
            stored, first, forks = [], 0, 0
            for step in steps:
                if isinstance(step, list):
                    await store.append("a", text_entries(*step))
                    stored += step
                elif step == "search":
                    await store.search("red")
                elif step == "purge" and len(stored) > first:
                    before = (first + len(stored) + 1) // 2
                    await store.add_fold("a", summary_fold(f"f{before}", 0, before))
                    await store.purge("a", before=before)
                    first = before
                elif step == "fork" and stored:
                    forks += 1
                    await store.fork("a", f"fork {forks}")
            for query in ("red", "green blue"):
                words = set(query.split())
                matching = [
                    position for position in range(first, len(stored)) if words <= set(stored[position].split())
                ]
                assert await hits_of(store, query) == [("a", position) for position in reversed(matching)]

    asyncio.run(scenario())


def test_a_search_reads_only_tokens_of_its_tenant(tmp_path):
    """The number of steps of SQLite's virtual machine does not depend on the entries of other tenants."""

    async def scenario():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await store.for_tenant("small").append("a", text_entries("a common word", "another"))
            steps = []
            for _ in range(2):
                await store.append("b", text_entries(*["a common word"] * 2_000))
                with apsw.Connection(f"{tmp_path}/chat.db") as db:
                    tokens = index_query(QUERY, "small", WORDS_MODE)
                    assert len(sqlite_search.find_keys(db, tokens, 0, 1 << 62, 20)) == 1
                    reads = db.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]
                steps.append(reads)
            assert [hit.conversation for hit in (await store.for_tenant("small").search("common word")).items] == ["a"]
            return steps

    before, after = asyncio.run(scenario())
    assert after <= before + 8


def test_the_setting_of_the_index_is_chosen_with_the_database(tmp_path):
    url = f"sqlite:///{tmp_path}/chat.db"

    async def scenario():
        async with open_store(f"{url}?search=off") as store:
            await store.append("a", text_entries("word"))
            assert "search=False" in str(await expect_error(MissingSetting, store.search("word")))
        async with open_store(url) as store:
            await expect_error(MissingSetting, store.search("word"))
        for search in (True, "english"):
            store = open_store(url, search=search)
            assert "'off'" in str(await expect_error(InvalidSetting, store.header("a")))
            await store.close()
        with apsw.Connection(f"{tmp_path}/chat.db") as db:
            assert db.execute("SELECT count(*) FROM word_docsize").get == 0

    asyncio.run(scenario())


def test_a_failed_operation_does_not_fail_the_appends_of_its_group(tmp_path):
    async def scenario():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await store.append("a", text_entries("0"))
            results = await asyncio.gather(
                *(store.append("a", text_entries(f"{number}")) for number in range(1, 5)),
                expect_error(ConversationNotFound, store.set_status("missing", "closed")),
                expect_error(ConversationNotFound, store.pin("missing", 0)),
                *(store.append("a", text_entries(f"{number}")) for number in range(5, 9)),
                store.set_status("a", "closed"),
                store.append("a", text_entries("9")),
            )
            loaded = await store.load("a")
            return [result for result in results if isinstance(result, int)], loaded

    versions, loaded = asyncio.run(scenario())

    assert versions == list(range(2, 11))
    assert [entry.content for entry in loaded.entries] == [f"{number}" for number in range(10)]
    assert loaded.conversation.version == 10


@pytest.mark.parametrize("size", [1, 100_000, 5_000_000])
def test_zeros_at_the_end_of_the_log_are_ignored(tmp_path, size):
    """A writer that is killed after it has extended the log leaves such a log."""
    path = tmp_path / "chat.db"

    async def scenario():
        async with open_store(f"sqlite:///{path}") as store:
            await store.append("a", text_entries("x"))
            for name in ("chat.db", "chat.db-wal"):
                (tmp_path / f"left-{name}").write_bytes((tmp_path / name).read_bytes())
        with (tmp_path / "left-chat.db-wal").open("ab") as log:
            log.write(bytes(size))
        async with open_store(f"sqlite:///{tmp_path}/left-chat.db") as store:
            assert await store.append("a", text_entries("y")) == 2

    asyncio.run(scenario())
