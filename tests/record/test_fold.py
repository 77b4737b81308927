import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Fold, TokenBudgetManager, Transcript, view_of
from minutebook.errors import InvalidSetting
from minutebook.history import Status
from minutebook.record import exchanges
from minutebook.record.fold import folded, standing_folds
from tests.strategies import conversations

NOTE = ({"role": "system", "content": "[earlier: three orders were placed]"},)


def fold_of(chat, data, name="f1"):
    units = exchanges(chat)
    first = data.draw(st.integers(0, len(units) - 1))
    last = data.draw(st.integers(first, len(units) - 1))
    return Fold(name, units[first].start, units[last].stop, NOTE, "summary")


@given(conversations(user_first=True), st.data())
def test_taking_a_fold_away_gives_back_the_same_view(chat, data):
    fold = fold_of(chat, data)
    before = view_of(chat).messages
    during = view_of(chat, folds=[fold]).messages
    after = view_of(chat, folds=[]).messages

    assert before == after == chat
    assert NOTE[0] in during


@given(conversations(user_first=True), st.data())
def test_a_later_fold_takes_the_place_of_those_it_covers(chat, data):
    inner = fold_of(chat, data)
    outer = Fold("f2", 0, len(chat), NOTE, "all of it")
    record = Transcript(chat)

    assert list(folded(record, [inner, outer]).transcript) == list(NOTE)
    assert {fold.id for fold in folded(record, [inner, outer]).hidden.values()} == {"f2"}


@given(conversations(user_first=True), st.data())
def test_which_folds_stand_does_not_depend_on_what_was_asked_before(chat, data):
    folds = []
    for number in range(data.draw(st.integers(1, 5))):
        fold = fold_of(chat, data, f"f{number}")
        apart = [other.stop <= fold.start or fold.stop <= other.start for other in folds]
        covers = [fold.start <= other.start and other.stop <= fold.stop for other in folds]
        folds += [fold] if all(a or b for a, b in zip(apart, covers, strict=True)) else []
    record = Transcript(chat)
    for _ in range(4):
        asked = folds[: data.draw(st.integers(0, len(folds)))]

        standing = standing_folds(record, asked)

        assert standing == standing_folds(Transcript(chat), asked)
        hidden = folded(record, asked).hidden
        assert dict(hidden) == {place: fold for fold in standing for place in range(fold.start, fold.stop)}
        assert len(hidden) == len(dict(hidden))
        assert [place for place in range(-1, len(chat) + 1) if place in hidden] == sorted(hidden)


def test_to_see_which_folds_stand_only_those_that_were_added_are_looked_at():
    class Watched(Transcript):
        looks = 0

        def exchange_of(self, index):
            self.looks += 1
            return super().exchange_of(index)

    record = Watched([{"role": "user", "content": f"{number}"} for number in range(500)])
    folds = tuple(Fold(f"f{stop}", 0, stop, NOTE, "") for stop in range(1, 400))
    standing_folds(record, folds)
    before = record.looks

    assert [fold.id for fold in standing_folds(record, (*folds, Fold("g", 0, 450, NOTE, "")))] == ["g"]
    assert record.looks - before == 2


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
        folded(Transcript(chat), [Fold("f", 0, 2, NOTE, "")])
    with pytest.raises(InvalidSetting, match=r"within 0\.\.3"):
        folded(Transcript(chat), [Fold("f", 0, 4, NOTE, "")])
    with pytest.raises(InvalidSetting, match="covers fold 'f' whole"):
        folded(Transcript([*chat, chat[0], chat[0]]), [Fold("f", 0, 4, NOTE, ""), Fold("g", 3, 5, NOTE, "")])


def test_what_a_fold_hides_is_explained_by_it():
    chat = [{"role": role, "content": f"{role} {number}"} for number in range(4) for role in ("user", "assistant")]
    view = view_of(chat, TokenBudgetManager(1_000), folds=[Fold("f1", 0, 4, NOTE, "turns 1-2")])

    lines = view.explain().lines
    assert [line.status for line in lines if line.index in range(4)] == [Status.FOLDED] * 4
    assert lines[1].reason == "fold f1: turns 1-2"
    assert [line.status for line in lines if line.index is None] == [Status.ADDED]
