"""Views of broken records with folds, while the record grows."""

from hypothesis import given
from hypothesis import strategies as st

from minutebook import CannotFit, Fold, Transcript, view_of
from tests.every import MANAGERS
from tests.strategies import broken

NOTE = {"role": "system", "content": "[earlier messages were left out]"}


def call_without_result(call_id):
    function = {"name": "read", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def user(text):
    return {"role": "user", "content": text}


LOST_RESULTS = [
    *(user("1"), call_without_result("a"), user("2"), {"role": "assistant", "content": "ok"}),
    *(user("3"), call_without_result("b"), user("4")),
]


def folds_of(record, stop, pick):
    """A fold that hides some whole exchanges before `stop`."""
    units = [record.exchange_of(start) for start in record.exchange_starts if record.exchange_of(start).stop <= stop]
    if not units:
        return []
    first = pick(len(units) - 1)
    last = first + pick(len(units) - 1 - first)
    return [Fold("f", units[first].start, units[last].stop, (NOTE,), "summary")]


def outcome(record, manager, folds):
    """What a view shows and reports."""
    try:
        view = view_of(record, manager, folds=folds)
    except CannotFit as error:
        return str(error), []
    return view.messages, sorted(map(str, view.violations))


@given(broken(), st.sampled_from(sorted(MANAGERS)), st.integers(1, 20), st.data())
def test_a_broken_record_that_grows_has_the_same_view_with_folds_as_one_that_is_new(chat, manager, start, data):
    start = min(start, len(chat))
    record = Transcript(chat[:start], broken="mark")
    folds = folds_of(record, start - 1, lambda most: data.draw(st.integers(0, most)))
    for message in chat[start:]:
        grown = outcome(record, MANAGERS[manager], folds)

        assert grown == outcome(Transcript(record, broken="mark"), MANAGERS[manager], folds)
        record.append(message)


def test_repairs_in_a_record_with_folds_name_the_position_in_the_record():
    folds = [Fold("f", 0, 4, (NOTE,), "summary")]
    record = Transcript(LOST_RESULTS[:6], broken="mark")
    view_of(record, folds=folds)
    record.append(LOST_RESULTS[6])

    view = view_of(record, folds=folds, strict=True)  # raises for problems that are not the record's own

    assert [violation.detail for violation in view.violations] == ["message 5: dangling call ('b'): answered"]
