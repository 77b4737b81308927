from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minutebook import Fold, ModelInfo, Transcript
from minutebook.compaction.strategy import CompactionInput, foldable_ranges, has_at_most
from tests.strategies import conversations


@given(conversations(user_first=True), st.data())
def test_messages_before_the_stop_are_foldable_unless_they_are_required_and_not_folded_yet(chat, data):
    record = Transcript(chat, broken="mark")
    first = record.exchange_of(data.draw(st.integers(0, len(record) - 1)))
    fold = Fold("f", first.start, first.stop, (), "")
    history = CompactionInput(record, (fold,), ModelInfo("m", max_input_tokens=1_000))
    required = data.draw(st.sets(st.integers(0, len(record) - 1)))
    stop = data.draw(st.integers(0, len(record)))

    ranges = foldable_ranges(history, required, stop)

    assert [index for indexes in ranges for index in indexes] == [
        index for index in range(record.leading_system_count, stop) if index in first or index not in required
    ]
    assert all(before.stop < after.start for before, after in pairwise(ranges))


@given(conversations(), st.integers(0, 500))
def test_a_range_has_at_most_its_number_of_tokens(chat, tokens):
    record = Transcript(chat, broken="mark")

    assert has_at_most(record, 0, len(record), tokens) == (record.tokens <= tokens)
