"""A ledger that is added to says what one says that is made anew."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minutebook import Transcript, counter_for
from minutebook.compaction.fact_ledger import Notes, Reading, Tally, Weights
from minutebook.compaction.strategy import outside
from tests.strategies import conversations

NAMES = st.sampled_from(
    ["src/app/main.py", "src/app/view.py", "main.py", "#W2378156", "3ea751c087f3", "350 ms", "notes.md"]
)

QUICK = Weights(half_life=1)
"""What was named last comes first: what is counted in a wrong order is seen."""


def stretches_of(places):
    """Places as the stretches that they make up, in order."""
    ends = sorted(
        place for place in {*places, *(place + 1 for place in places)} if (place in places) != (place - 1 in places)
    )
    return [range(start, stop) for start, stop in list(pairwise(ends))[::2]]


def noted(notes, stretches, carried=None):
    return notes.ledger(stretches, carried=carried, max_tokens=60, said="")


@given(conversations(), st.data())
def test_a_ledger_says_the_same_whatever_was_asked_for_before(chat, data):
    said = [{"role": "assistant", "content": " ".join(words)} for words in data.draw(st.lists(st.lists(NAMES)))]
    record = Transcript(
        [*chat, *said, {"role": "user", "content": "a.py"}, {"role": "user", "content": "b.py"}], broken="mark"
    )
    notes = Notes(record, QUICK)
    places = set()
    for _ in range(4):
        more = data.draw(st.sets(st.integers(0, len(record) - 1), min_size=1))
        places = data.draw(st.sampled_from([places | more, places | more, more]))
        stretches = stretches_of(places)

        assert noted(notes, stretches) == noted(Notes(record, QUICK), stretches)


def test_a_message_that_was_counted_is_not_read_again():
    record = Transcript([{"role": "user", "content": f"src/part_{number}.py"} for number in range(50)])
    notes, asked = Notes.of(record), []

    class Watching(Reading):
        def __call__(self, message):
            asked.append(message["content"])
            return super().__call__(message)

    notes._read = Watching()
    noted(notes, [range(40)])
    asked.clear()
    noted(notes, [range(45)])

    assert asked == [f"src/part_{number}.py" for number in (*range(40, 45), *range(45, 50))]


def test_what_only_an_earlier_ledger_names_is_carried_on():
    record = Transcript([{"role": "user", "content": "Go on with src/c.py."}, {"role": "user", "content": "Yes."}])
    carried = {
        "role": "system",
        "content": "It went well.\n\nFacts named in it, word for word:\n- paths: src/{a.py,b.py}",
    }

    assert "src/{" in noted(Notes.of(record), [range(1)], carried)


@given(st.lists(st.tuples(st.booleans(), st.lists(NAMES, max_size=4)), max_size=12), st.data())
def test_facts_come_in_the_same_order_whenever_they_were_counted(said, data):
    at_once, bit_by_bit = Tally(counter_for(None)), Tally(counter_for(None))
    for place, (is_result, names) in enumerate(said):
        message = {"role": "tool" if is_result else "assistant", "content": ""}
        for tally in (at_once, bit_by_bit):
            tally.add(place, message, [("paths", name) for name in names])
        if data.draw(st.booleans()):
            list(bit_by_bit.best(()))

    assert list(at_once.best(())) == list(bit_by_bit.best(()))


@given(st.integers(0, 20), st.integers(0, 20), st.lists(st.integers(0, 20), max_size=6, unique=True).map(sorted))
def test_outside_leaves_out_what_is_in_the_others(start, stop, ends):
    others = [range(first, last) for first, last in list(pairwise(ends))[::2]]

    assert list(outside(range(start, stop), others)) == [
        place for place in range(start, stop) if not any(place in other for other in others)
    ]
