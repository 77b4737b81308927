from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minutebook import Fold, ModelInfo, Transcript
from minutebook.compaction.strategy import CompactionInput, has_at_most, runs
from tests.strategies import conversations


@given(conversations(user_first=True), st.data())
def test_all_up_to_the_stop_may_be_folded_but_what_is_kept_and_not_folded_yet(chat, data):
    record = Transcript(chat, broken="mark")
    first = record.exchange_of(data.draw(st.integers(0, len(record) - 1)))
    fold = Fold("f", first.start, first.stop, (), "")
    situation = CompactionInput(record, (fold,), ModelInfo("m", max_input_tokens=1_000))
    kept = data.draw(st.sets(st.integers(0, len(record) - 1)))
    stop = data.draw(st.integers(0, len(record)))

    found = runs(situation, kept, stop)

    assert [place for run in found for place in run] == [
        place for place in range(record.lead, stop) if place in first or place not in kept
    ]
    assert all(before.stop < after.start for before, after in pairwise(found))


@given(conversations(), st.integers(0, 500))
def test_a_stretch_has_at_most_so_many_tokens_or_not(chat, tokens):
    record = Transcript(chat, broken="mark")

    assert has_at_most(record, 0, len(record), tokens) == (record.tokens <= tokens)
