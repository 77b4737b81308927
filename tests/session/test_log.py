"""Logs only grow; snapshots, rollbacks and restoring respect that."""

import pytest

from minutebook import ConversationEntry
from minutebook.errors import InvalidSetting, LogIsAppendOnly, ReducerFailed
from minutebook.session import Session, SliceKind, append
from tests.session.parts import MONDAY, Added, Note, Noted, Total, add, entry, note, recorded


def test_the_record_is_a_log_and_other_slices_become_one_when_declared():
    session = Session()
    session.log(Note).register(Noted, note)
    session.dispatch(Noted("kept"))

    assert session.kind(ConversationEntry) is session.kind(Note) is SliceKind.LOG
    assert session.kind(Total) is SliceKind.STATE
    assert session.query(Note).all() == (Note("kept"),)


@pytest.mark.parametrize("values", [[], [entry(0)]], ids=["empty", "not empty"])
def test_a_log_is_never_cleared_or_seeded_over(values):
    session = Session()
    for value in values:
        session.mutate(ConversationEntry).append(value)

    with pytest.raises(LogIsAppendOnly, match="clear would change slice ConversationEntry"):
        session.mutate(ConversationEntry).clear()
    with pytest.raises(LogIsAppendOnly, match="seed would change"):
        session.mutate(ConversationEntry).seed([entry(1)])
    assert list(session.query(ConversationEntry).all()) == values


@pytest.mark.parametrize(
    "reducer",
    [
        lambda values, event, *, context: values[1:],
        lambda values, event, *, context: (Note("another"), *values[1:]),
        lambda values, event, *, context: (Note("in front"), *values),
    ],
    ids=["shortens", "changes", "moves"],
)
def test_a_reducer_cannot_change_what_a_log_holds(reducer):
    session = Session()
    session.log(Note).register(Added, reducer).append(Note("a"))
    session.mutate(Note).append(Note("b"))

    with pytest.raises(ReducerFailed) as caught:
        session.dispatch(Added(1))

    assert isinstance(caught.value.__cause__, LogIsAppendOnly)
    assert session.query(Note).all() == (Note("a"), Note("b"))


def test_a_rollback_takes_back_state_and_keeps_the_log():
    session = Session()
    session.mutate(Total).register(Added, add)
    session.dispatch(Added(1))
    session.bus.publish(recorded(session.session_id, 0))
    before = session.snapshot()
    session.dispatch(Added(1))
    session.bus.publish(recorded(session.session_id, 1))
    session.mutate(Note).append(Note("did not exist then"))

    session.rollback(before)

    assert session.query(Total).all() == (Total(1),)
    assert session.query(ConversationEntry).all() == (entry(0), entry(1))
    assert session.query(Note).all() == ()
    assert Note not in session.snapshot().slices


def test_a_snapshot_never_changes_and_can_be_returned_to_more_than_once():
    session = Session()
    session.mutate(Note).register(Note, append)
    session.dispatch(Note("a"))
    first = session.snapshot()
    for text in "bc":
        session.rollback(first)
        session.dispatch(Note(text))
        assert session.query(Note).all() == (Note("a"), Note(text))
    second = session.snapshot()
    session.rollback(first)

    assert first.query(Note).all() == session.query(Note).all() == (Note("a"),)
    assert second.query(Note).all() == (Note("a"), Note("c"))
    with pytest.raises(TypeError):
        first.slices[Note] = ()


def test_a_snapshot_of_another_session_is_refused():
    session, other = Session(), Session()

    with pytest.raises(InvalidSetting, match=f"the id of this session, {session.session_id}"):
        session.rollback(other.snapshot())


def test_a_new_session_takes_over_a_snapshot_with_its_logs_and_goes_on():
    old = Session(clock=lambda: MONDAY)
    old.mutate(Total).append(Total(3))
    old.log(Note).append(Note("a"))
    old.bus.publish(recorded(old.session_id, 0))
    snapshot = old.snapshot()

    new = Session(session_id=snapshot.session_id, clock=lambda: MONDAY)
    new.restore(snapshot)
    assert new.snapshot() == snapshot

    for session, number in [(new, 1), (old, 2)]:
        session.bus.publish(recorded(session.session_id, number)).raise_errors()
    assert new.query(ConversationEntry).all() == (entry(0), entry(1))
    assert old.query(ConversationEntry).all() == (entry(0), entry(2))
    assert new.kind(Note) is SliceKind.LOG


def test_a_session_that_has_recorded_something_does_not_take_over_another():
    session = Session()
    session.mutate(ConversationEntry).append(entry(0))
    session.mutate(Total).append(Total(1))

    with pytest.raises(LogIsAppendOnly, match="restore into a session with recorded values"):
        session.restore(Session().snapshot())
    assert session.query(Total).all() == (Total(1),)
