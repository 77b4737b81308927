"""Ledgers of a growing range equal those that are built from scratch."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minutebook import Transcript, counter_for
from minutebook.compaction.fact_ledger import FactReader, FactTally, FactWeights, LedgerCache
from minutebook.compaction.strategy import indexes_outside
from tests.strategies import conversations

NAMES = st.sampled_from(
    ["src/app/main.py", "src/app/view.py", "main.py", "#W2378156", "3ea751c087f3", "350 ms", "notes.md"]
)

QUICK = FactWeights(half_life=1)
"""The most recent facts come first, so that counting in a wrong order shows."""


def ranges_of(indexes):
    """The ranges that the indexes form, in order."""
    ends = sorted(
        index for index in {*indexes, *(index + 1 for index in indexes)} if (index in indexes) != (index - 1 in indexes)
    )
    return [range(start, stop) for start, stop in list(pairwise(ends))[::2]]


def ledger_of(cache, ranges, previous_summary=None):
    return cache.ledger(ranges, previous_summary=previous_summary, max_tokens=60, summary="")


@given(conversations(), st.data())
def test_a_ledger_does_not_depend_on_earlier_ledgers(chat, data):
    answers = [{"role": "assistant", "content": " ".join(words)} for words in data.draw(st.lists(st.lists(NAMES)))]
    record = Transcript(
        [*chat, *answers, {"role": "user", "content": "a.py"}, {"role": "user", "content": "b.py"}], broken="mark"
    )
    cache = LedgerCache(record, QUICK)
    indexes = set()
    for _ in range(4):
        more = data.draw(st.sets(st.integers(0, len(record) - 1), min_size=1))
        indexes = data.draw(st.sampled_from([indexes | more, indexes | more, more]))
        ranges = ranges_of(indexes)

        assert ledger_of(cache, ranges) == ledger_of(LedgerCache(record, QUICK), ranges)


def test_a_message_that_was_counted_is_not_read_again():
    record = Transcript([{"role": "user", "content": f"src/part_{number}.py"} for number in range(50)])
    cache, texts = LedgerCache.of(record), []

    class RecordingReader(FactReader):
        def __call__(self, message):
            texts.append(message["content"])
            return super().__call__(message)

    cache._facts_in = RecordingReader()
    ledger_of(cache, [range(40)])
    texts.clear()
    ledger_of(cache, [range(45)])

    assert texts == [f"src/part_{number}.py" for number in (*range(40, 45), *range(45, 50))]


def test_facts_that_are_only_in_an_earlier_ledger_are_carried_over():
    record = Transcript([{"role": "user", "content": "Go on with src/c.py."}, {"role": "user", "content": "Yes."}])
    previous_summary = {
        "role": "system",
        "content": "It went well.\n\nFacts named in it, word for word:\n- paths: src/{a.py,b.py}",
    }

    assert "src/{" in ledger_of(LedgerCache.of(record), [range(1)], previous_summary)


@given(st.lists(st.tuples(st.booleans(), st.lists(NAMES, max_size=4)), max_size=12), st.data())
def test_facts_are_ranked_the_same_whenever_they_were_counted(uses, data):
    ranked_once, ranked_often = FactTally(counter_for(None)), FactTally(counter_for(None))
    for index, (is_result, names) in enumerate(uses):
        message = {"role": "tool" if is_result else "assistant", "content": ""}
        for tally in (ranked_once, ranked_often):
            tally.add(index, message, [("paths", name) for name in names])
        if data.draw(st.booleans()):
            list(ranked_often.best(()))

    assert list(ranked_once.best(())) == list(ranked_often.best(()))


@given(st.integers(0, 20), st.integers(0, 20), st.lists(st.integers(0, 20), max_size=6, unique=True).map(sorted))
def test_indexes_outside_are_in_none_of_the_other_ranges(start, stop, ends):
    others = [range(first, last) for first, last in list(pairwise(ends))[::2]]

    assert list(indexes_outside(range(start, stop), others)) == [
        index for index in range(start, stop) if not any(index in other for other in others)
    ]


def test_a_record_has_a_cache_for_each_weighting():
    record = Transcript([])

    assert LedgerCache.of(record) is LedgerCache.of(record)
    assert LedgerCache.of(record, QUICK) is not LedgerCache.of(record)
