from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Fold, TokenBudgetManager, Transcript, view_of
from minutebook.errors import InvalidSetting
from minutebook.history import NoteStatus
from minutebook.record import exchanges
from minutebook.record.fold import active_folds, record_with_folds
from tests.strategies import conversations

NOTE = ({"role": "system", "content": "[earlier: three orders were placed]"},)


def fold_of(chat, data, name="f1"):
    units = exchanges(chat)
    first = data.draw(st.integers(0, len(units) - 1))
    last = data.draw(st.integers(first, len(units) - 1))
    return Fold(name, units[first].start, units[last].stop, NOTE, "summary")


@given(conversations(user_first=True), st.data())
def test_removing_a_fold_restores_the_view(chat, data):
    fold = fold_of(chat, data)
    before = view_of(chat).messages
    during = view_of(chat, folds=[fold]).messages
    after = view_of(chat, folds=[]).messages

    assert before == after == chat
    assert NOTE[0] in during


@given(conversations(user_first=True), st.data())
def test_a_later_fold_replaces_those_in_its_range(chat, data):
    inner = fold_of(chat, data)
    outer = Fold("f2", 0, len(chat), NOTE, "all of it")
    record = Transcript(chat)

    assert list(record_with_folds(record, [inner, outer]).transcript) == list(NOTE)
    assert {fold.id for fold in record_with_folds(record, [inner, outer]).hidden.values()} == {"f2"}


@given(conversations(user_first=True), st.data())
def test_active_folds_do_not_depend_on_earlier_calls(chat, data):
    folds = []
    for number in range(data.draw(st.integers(1, 5))):
        fold = fold_of(chat, data, f"f{number}")
        disjoint = [other.stop <= fold.start or fold.stop <= other.start for other in folds]
        covers = [fold.start <= other.start and other.stop <= fold.stop for other in folds]
        folds += [fold] if all(map(or_, disjoint, covers)) else []
    record = Transcript(chat)
    for _ in range(4):
        requested = folds[: data.draw(st.integers(0, len(folds)))]

        active = active_folds(record, requested)

        assert active == active_folds(Transcript(chat), requested)
        hidden = record_with_folds(record, requested).hidden
        assert dict(hidden) == {index: fold for fold in active for index in range(fold.start, fold.stop)}
        assert len(hidden) == len(dict(hidden))
        assert [index for index in range(-1, len(chat) + 1) if index in hidden] == sorted(hidden)


def test_only_added_folds_are_examined_to_find_the_active_ones():
    class CountingTranscript(Transcript):
        lookups = 0

        def exchange_of(self, index):
            self.lookups += 1
            return super().exchange_of(index)

    record = CountingTranscript([{"role": "user", "content": f"{number}"} for number in range(500)])
    folds = tuple(Fold(f"f{stop}", 0, stop, NOTE, "") for stop in range(1, 400))
    active_folds(record, folds)
    before = record.lookups

    assert [fold.id for fold in active_folds(record, (*folds, Fold("g", 0, 450, NOTE, "")))] == ["g"]
    assert record.lookups - before == 2


def test_a_fold_never_splits_an_exchange():
    chat = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "x", "content": "1"},
    ]
    with pytest.raises(InvalidSetting, match="whole exchanges"):
        record_with_folds(Transcript(chat), [Fold("f", 0, 2, NOTE, "")])
    with pytest.raises(InvalidSetting, match=r"within 0\.\.3"):
        record_with_folds(Transcript(chat), [Fold("f", 0, 4, NOTE, "")])
    with pytest.raises(InvalidSetting, match="covers fold 'f' completely"):
        record_with_folds(Transcript([*chat, chat[0], chat[0]]), [Fold("f", 0, 4, NOTE, ""), Fold("g", 3, 5, NOTE, "")])


def test_hidden_messages_are_explained_by_their_fold():
    chat = [{"role": role, "content": f"{role} {number}"} for number in range(4) for role in ("user", "assistant")]
    view = view_of(chat, TokenBudgetManager(1_000), folds=[Fold("f1", 0, 4, NOTE, "turns 1-2")])

    lines = view.explain().lines
    assert [line.status for line in lines if line.index in range(4)] == [NoteStatus.FOLDED] * 4
    assert lines[1].reason == "fold f1: turns 1-2"
    assert [line.status for line in lines if line.index is None] == [NoteStatus.ADDED]
