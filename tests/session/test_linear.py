"""Appending costs the same however long the slice is: what is copied is counted, not timed."""

from contextlib import suppress

from minutebook import ConversationEntry, ConversationRecorded
from minutebook.errors import ReducerFailed
from minutebook.session import Append, Session, append
from minutebook.session.slices import Values
from tests.session.parts import Added, Note, Noted, fail, recorded

MANY = 2_000


class Counted(type):
    """Counts how often values of a type are looked at."""

    looks = 0

    def __instancecheck__(cls, value):
        Counted.looks += 1
        return super().__instancecheck__(value)


class Base(metaclass=Counted):
    pass


class Item(Base):
    pass


def lists_used(session, slice_type, act, times=MANY):
    """The lists that held the slice, one after the other: a copy would be another list."""
    lists = []
    for at in range(times):
        act(at)
        shared = session._table.values(slice_type)._shared
        if not lists or lists[-1] is not shared:
            lists.append(shared)
    return len(lists)


def test_appending_copies_nothing_by_whichever_way():
    session = Session()
    session.mutate(Note).register(Note, append)
    record = session.session_id

    assert lists_used(session, Note, lambda at: session.dispatch(Note("a", at))) == 1
    assert lists_used(session, Note, lambda at: session.mutate(Note).append(Note("b", at))) == 1
    assert lists_used(session, ConversationEntry, lambda at: session.bus.publish(recorded(record, at))) == 1
    assert len(session.query(Note).all()) == 2 * MANY


def test_each_appended_value_is_looked_at_once():
    session = Session()
    session.mutate(Base).register(Item, append)
    for expected in (MANY, MANY):
        Counted.looks = 0
        for _ in range(MANY):
            session.dispatch(Item())
        assert Counted.looks == expected


def test_snapshots_copy_nothing_and_cause_no_copy():
    session = Session()

    def act(at):
        session.mutate(Note).append(Note("a", at))
        kept.append(session.snapshot())

    kept = []
    assert lists_used(session, Note, act) == 1
    assert [len(snapshot.query(Note).slice()) for snapshot in kept] == list(range(1, MANY + 1))


def test_a_failed_event_causes_no_copy():
    session = Session()
    session.mutate(Note).register(Note, append)
    session.mutate(Note).register(Noted, lambda values, event, *, context: Append(Note("never")))
    session.mutate(Added).register(Noted, fail)

    def act(at):
        session.dispatch(Note("a", at))
        with suppress(ReducerFailed):
            session.dispatch(Noted("x"))

    assert lists_used(session, Note, act) == 1
    assert session.query(Note).all() == tuple(Note("a", at) for at in range(MANY))


def test_going_on_after_a_rollback_copies_once():
    session = Session()
    session.mutate(Note).seed([Note("a", at) for at in range(10)])
    early = session.snapshot()
    session.mutate(Note).append(Note("gone"))
    session.rollback(early)

    assert lists_used(session, Note, lambda at: session.mutate(Note).append(Note("b", at))) == 1
    assert early.query(Note).all() == tuple(Note("a", at) for at in range(10))


def test_a_reducer_that_returns_its_slice_copies_nothing():
    session = Session()
    session.mutate(Note).register(Noted, lambda values, event, *, context: values).seed([Note("a")])
    before = session.query(Note).slice()
    session.dispatch(Noted("x"))

    assert session.query(Note).slice() is before


def test_the_tuple_is_made_once_per_change():
    session = Session()
    session.mutate(Note).append(Note("a"))

    assert session.query(Note).all() is session.query(Note).all()
    assert session.snapshot().query(Note).all() is session.query(Note).all()


def test_a_reducer_of_one_event_into_two_appends_copies_nothing():
    session = Session()
    session.mutate(Note).register(Noted, lambda values, event, *, context: Append(Note("x"), Note("y")))
    session.mutate(Note).register(Noted, lambda values, event, *, context: Append(Note(str(len(values)))))

    assert lists_used(session, Note, lambda _: session.dispatch(Noted("a"))) == 1
    assert session.query(Note).all()[:6] == tuple(map(Note, ["x", "y", "2", "x", "y", "5"]))


def test_values_read_like_the_tuple_they_are_equal_to():
    values = Values("abc").plus(("d",))
    assert values == tuple("abcd")
    assert (values[0], values[-1], values[1:3], values[::-1]) == ("a", "d", ("b", "c"), ("d", "c", "b", "a"))
    assert values + ("e",) == tuple("abcde")  # noqa: RUF005 - the operator is what is tested
    assert ("z",) + values == tuple("zabcd")  # noqa: RUF005 - same
    assert hash(values) == hash(tuple("abcd"))
    assert repr(values) == repr(tuple("abcd"))
    assert values != list("abcd")
    assert ConversationRecorded not in values
