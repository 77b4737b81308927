import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Fold, InvalidSetting, Status, TokenBudgetManager, Transcript, exchanges, view_of
from minutebook.record.fold import folded
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
