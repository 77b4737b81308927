"""What makes the rows of the PostgreSQL store small: filters of words, and stamps."""

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.store.postgres.entries import EntryMetadata
from minutebook.store.postgres.search import MATCHES, filter_of, probes
from tests.servers import require_postgres, shared

words = st.text(min_size=1, max_size=12)
names = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
stamps = st.builds(
    EntryMetadata,
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
def test_a_stamp_is_read_as_it_was_written(metadata):
    assert EntryMetadata.from_bytes(metadata.to_bytes()) == metadata
