"""The search index of the SQLite store: stretches of entries, made at whatever moment."""

import asyncio

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import ConversationNotFound
from minutebook.store.sqlite import search as sqlite_words
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import expect_error, note, text_entries

WORDS = ("red", "green", "blue")
STEPS = st.lists(
    st.one_of(
        st.lists(st.sets(st.sampled_from(WORDS), max_size=2).map(sorted).map(" ".join), min_size=1, max_size=40),
        st.just("search"),
        st.just("purge"),
        st.just("fork"),
    ),
    max_size=8,
)


async def places(store, query):
    found, cursor = [], None
    while True:
        page = await store.search(query, cursor=cursor, limit=7)
        found += [(hit.conversation, hit.position) for hit in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


@given(steps=STEPS)
def test_a_search_finds_every_entry_once_however_the_index_came_about(tmp_path_factory, steps):
    async def story():
        path = tmp_path_factory.mktemp("index") / "chat.db"
        async with open_store(f"sqlite:///{path}") as store:
            kept, first, forks = [], 0, 0
            for step in steps:
                if isinstance(step, list):
                    await store.append("a", text_entries(*step))
                    kept += step
                elif step == "search":
                    await store.search("red")
                elif step == "purge" and len(kept) > first:
                    before = (first + len(kept) + 1) // 2
                    await store.add_fold("a", note(f"f{before}", 0, before))
                    await store.purge("a", before=before)
                    first = before
                elif step == "fork" and kept:
                    forks += 1
                    await store.fork("a", f"fork {forks}")
            for query in ("red", "green blue"):
                wanted = [at for at in range(first, len(kept)) if set(query.split()) <= set(kept[at].split())]
                if kept:
                    assert await places(store, query) == [("a", at) for at in reversed(wanted)]
                else:
                    assert await places(store, query) == []

    asyncio.run(story())


def test_when_nobody_searches_a_last_stretch_waits_until_it_is_whole(tmp_path):
    path = f"{tmp_path}/chat.db"

    async def story():
        async with open_store(f"sqlite:///{path}") as store:
            await store.append("a", text_entries(*["word"] * (2 * sqlite_words.STRETCH + 3)))

    asyncio.run(story())
    with apsw.Connection(path) as db:
        while sqlite_words.catch_up(db, whole=True):
            pass
        assert db.execute("SELECT indexed FROM conversation").get == 2 * sqlite_words.STRETCH
        assert sqlite_words.is_behind(db)
        while sqlite_words.catch_up(db):
            pass
        assert db.execute("SELECT indexed FROM conversation").get == 2 * sqlite_words.STRETCH + 3
        assert not sqlite_words.is_behind(db)


def test_of_very_many_that_were_begun_none_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_words, "MOST_BEGUN", 3)
    path = f"{tmp_path}/chat.db"

    async def story():
        async with open_store(f"sqlite:///{path}") as store:
            for number in range(4):
                await store.append(f"{number}", text_entries("word"))

    asyncio.run(story())
    with apsw.Connection(path) as db:
        while sqlite_words.catch_up(db, whole=True):
            pass
        assert not sqlite_words.is_behind(db)


def test_what_fails_in_a_group_takes_none_of_the_appends_with_it(tmp_path):
    async def story():
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            await store.append("a", text_entries("0"))
            done = await asyncio.gather(
                *(store.append("a", text_entries(f"{number}")) for number in range(1, 5)),
                expect_error(ConversationNotFound, store.set_status("nobody", "closed")),
                expect_error(ConversationNotFound, store.pin("nobody", 0)),
                *(store.append("a", text_entries(f"{number}")) for number in range(5, 9)),
                store.set_status("a", "closed"),
                store.append("a", text_entries("9")),
            )
            loaded = await store.load("a")
            return [one for one in done if isinstance(one, int)], loaded

    versions, loaded = asyncio.run(story())

    assert versions == list(range(2, 11))
    assert [entry.content for entry in loaded.entries] == [f"{number}" for number in range(10)]
    assert loaded.conversation.version == 10


@pytest.mark.parametrize("size", [1, 100_000, 5_000_000])
def test_zeros_at_the_end_of_the_log_are_no_frames(tmp_path, size):
    """As a log looks when its writer was killed after making it longer."""
    path = tmp_path / "chat.db"

    async def story():
        async with open_store(f"sqlite:///{path}") as store:
            await store.append("a", text_entries("x"))
            for name in ("chat.db", "chat.db-wal"):
                (tmp_path / f"left-{name}").write_bytes((tmp_path / name).read_bytes())
        with (tmp_path / "left-chat.db-wal").open("ab") as log:
            log.write(bytes(size))
        async with open_store(f"sqlite:///{tmp_path}/left-chat.db") as store:
            assert await store.append("a", text_entries("y")) == 2

    asyncio.run(story())
