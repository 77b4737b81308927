"""Compact columns of the PostgreSQL store: Bloom filters of words, and the metadata of entries."""

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.store.postgres.entries import EntryMetadata
from minutebook.store.postgres.search import MATCHES, filter_of, probes
from tests.servers import require_postgres, shared

words = st.text(min_size=1, max_size=12)
names = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
metadata_values = st.builds(
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
def test_a_filter_matches_all_its_words(some_words):
    bloom_filter = filter_of(some_words)

    for probe in probes(some_words):
        bit = probe % (8 * len(bloom_filter))
        assert bloom_filter[bit // 8] >> bit % 8 & 1


def test_a_filter_has_few_false_positives():
    bloom_filter = filter_of([f"there{number}" for number in range(1_000)])
    bits = [bloom_filter[bit // 8] >> bit % 8 & 1 for bit in range(8 * len(bloom_filter))]

    false_positives = [
        number for number in range(10_000) if all(bits[probe % len(bits)] for probe in probes([f"missing{number}"]))
    ]

    assert len(bloom_filter) == 1_500
    assert len(false_positives) < 60


def test_the_database_reads_a_filter_as_we_write_it(url):
    some_words = [f"word{number}" for number in range(200)]
    with psycopg.connect(url, autocommit=True) as db:
        query = f"SELECT {MATCHES} FROM (SELECT %s::bytea AS words) AS row"

        def matches(*query_words):
            return db.execute(query, (probes(query_words), filter_of(some_words))).fetchone()[0]

        assert all(matches(word) for word in some_words)
        assert matches(*some_words)
        assert not matches("word1", "elsewhere")


def test_the_probes_of_a_word_never_change():
    """Stored filters depend on them."""
    assert probes(["minutebook", "日本"])[::5] == [1408590022, 1962402782, 719088707, 293827685]


@given(metadata_values)
def test_metadata_round_trips(metadata):
    assert EntryMetadata.from_bytes(metadata.to_bytes()) == metadata
