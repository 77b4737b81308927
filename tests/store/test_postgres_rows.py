"""What makes the rows of the PostgreSQL store small: filters of words, and stamps that entries have in common."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minutebook.store.open import open_store
from minutebook.store.postgres_filter import MATCHES, filter_of, probes
from minutebook.store.postgres_stamp import COMMON, Stamp
from minutebook.testing.contract_parts import SOME_TIME, note, said
from tests.servers import require_postgres, shared

words = st.text(min_size=1, max_size=12)
names = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
stamps = st.builds(
    Stamp,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**63 - 1),
    st.integers(-(2**55), 2**57),
    names,
    names,
)


@pytest.fixture(scope="module")
def url():
    require_postgres()
    return shared.empty()


@given(st.sets(words, max_size=300))
def test_a_filter_never_denies_a_word_that_is_there(some):
    made = filter_of(some)

    for probe in probes(some):
        at = probe % (8 * len(made))
        assert made[at // 8] >> at % 8 & 1


def test_a_filter_says_yes_to_few_words_that_are_not_there():
    made = filter_of([f"there{number}" for number in range(1_000)])
    bits = [made[at // 8] >> at % 8 & 1 for at in range(8 * len(made))]

    wrong = [
        number for number in range(10_000) if all(bits[probe % len(bits)] for probe in probes([f"missing{number}"]))
    ]

    assert len(made) == 1_500
    assert len(wrong) < 60


def test_the_database_reads_a_filter_as_we_write_it(url):
    some = [f"word{number}" for number in range(200)]
    with psycopg.connect(url, autocommit=True) as db:
        query = f"SELECT {MATCHES} FROM (SELECT %s::bytea AS words) AS row"

        def has(*wanted):
            return db.execute(query, (probes(wanted), filter_of(some))).fetchone()[0]

        assert all(has(word) for word in some)
        assert has(*some)
        assert not has("word1", "elsewhere")


def test_a_word_is_looked_up_by_the_same_probes_for_ever():
    """What is stored was made with them."""
    assert probes(["minutebook", "日本"])[::5] == [1408590022, 1962402782, 719088707, 293827685]


@given(stamps)
def test_a_stamp_is_read_as_it_was_written(stamp):
    assert Stamp.from_bytes(stamp.to_bytes()) == stamp


usual = st.just((0, 1, False, 0))
unusual = st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans(), st.integers(0, 1))
appends = st.lists(st.lists(usual | usual | usual | unusual, min_size=1, max_size=20), min_size=1, max_size=2)


def entries_with(known):
    """Entries that have much in common, and now and then have not."""
    sequence, made = 0, []
    for entry, (evaluation, skipped, is_later, model) in zip(said(*"x" * len(known)), known, strict=True):
        sequence += skipped
        when = SOME_TIME + timedelta(microseconds=is_later)
        changed = {"evaluation_id": UUID(int=evaluation), "sequence": sequence, "created_at": when}
        made.append(replace(entry, **changed, model=(None, "模")[model], provider=("p", None)[model]))
    return made


@example(known=[[(0, 1, False, 0)] * 20], shared_ones=4, purged=3)
@given(known=appends, shared_ones=st.integers(1, 40), purged=st.integers(1, 40))
def test_an_entry_knows_what_it_has_in_common_wherever_reading_begins(url, known, shared_ones, purged):
    name, fork = str(uuid4()), str(uuid4())
    every = [entry for one in known for entry in entries_with(one)]
    shared_ones, purged = min(shared_ones, len(every)), min(purged, len(every))

    async def story():
        async with open_store(url) as store:
            for one in known:
                await store.append(name, entries_with(one))
            await store.fork(name, fork, at=shared_ones)
            await store.append(fork, entries_with(known[0]))
            await check(store, name, every, 0)
            await check(store, fork, every[:shared_ones] + entries_with(known[0]), 0)
            await store.erase(conversation=fork)
            await store.add_fold(name, note("f", 0, purged))
            await store.purge(name, before=purged)
            await check(store, name, every, purged)

    asyncio.run(story())


async def check(store, name, every, first):
    for start in range(first, len(every)):
        loaded = await store.load(name, since=start, limit=3)
        assert list(loaded.entries) == every[start : start + 3]


def test_what_entries_have_in_common_is_written_once(url):
    async def story():
        async with open_store(url) as store:
            await store.append("common", said(*"x" * 40))

    asyncio.run(story())

    query = (
        "SELECT array_agg(position ORDER BY position) FROM minutebook.entry WHERE stamp IS NOT NULL"
        " AND conversation = (SELECT number FROM minutebook.conversation WHERE id = 'common')"
    )
    with psycopg.connect(url) as db:
        assert db.execute(query).fetchone()[0] == list(range(0, 40, COMMON))
