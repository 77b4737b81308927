"""The metadata of entries as a column of the PostgreSQL store."""

from hypothesis import given
from hypothesis import strategies as st

from minutebook.store.postgres.entries import EntryMetadata

names = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
metadata_values = st.builds(
    EntryMetadata,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**63 - 1),
    st.integers(-(2**55), 2**57),
    names,
    names,
)


@given(metadata_values)
def test_metadata_round_trips(metadata):
    assert EntryMetadata.from_bytes(metadata.to_bytes()) == metadata
