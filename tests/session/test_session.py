import pickle
from uuid import UUID

import pytest

from minutebook import ConversationEntry, ConversationRecorded
from minutebook.errors import InvalidSetting, NoReducer, ReducerFailed
from minutebook.history import SessionProtocol
from minutebook.record import MessageRole
from minutebook.session import (
    InProcessEventBus,
    Session,
    append,
    get_evaluation_history,
    replace_latest,
    select_all,
    select_where,
    upsert_by,
)
from tests.session.parts import (
    MONDAY,
    OTHER_RUN,
    RUN,
    Added,
    Addressed,
    Note,
    Noted,
    Total,
    add,
    entry,
    fail,
    note,
    recorded,
)


def test_a_slice_begins_empty():
    notes = Session().query(Note)

    assert notes.all() == ()
    assert notes.latest() is None
    assert notes.where(lambda _: True) == ()
    assert list(notes.slice()) == []


def test_reads_all_the_latest_and_those_that_satisfy():
    session = Session()
    session.mutate(Note).seed([Note("a"), Note("b"), Note("ab")])

    assert session.query(Note).all() == (Note("a"), Note("b"), Note("ab"))
    assert session.query(Note).latest() == Note("ab")
    assert session.query(Note).where(lambda one: "a" in one.text) == (Note("a"), Note("ab"))


def test_seeds_appends_and_clears():
    session = Session()
    session.mutate(Note).seed(Note("one alone"))
    session.mutate(Note).append(Note("two"))
    assert session.query(Note).all() == (Note("one alone"), Note("two"))

    session.mutate(Note).seed(Note(text) for text in "ab")
    assert session.query(Note).all() == (Note("a"), Note("b"))

    session.mutate(Note).clear()
    assert session.query(Note).all() == ()


def test_an_event_goes_to_every_reducer_registered_for_exactly_its_type():
    class LoudlyAdded(Added):
        pass

    session = Session()
    session.mutate(Total).register(Added, add)
    session.mutate(Note).register(Added, lambda values, event, *, context: (*values, Note(f"+{event.amount}")))
    session.mutate(Note).register(Noted, note)
    session.mutate(Total).dispatch(Added(2))
    session.dispatch(Added(3))

    assert session.query(Total).all() == (Total(5),)
    assert session.query(Note).all() == (Note("+2"), Note("+3"))
    with pytest.raises(NoReducer):
        session.dispatch(LoudlyAdded(1))


def test_an_event_without_a_reducer_raises():
    session = Session()
    session.mutate(Total).register(Added, add)

    with pytest.raises(
        NoReducer, match=r"no reducer for event Noted; .* Registered events: ConversationRecorded, Added$"
    ):
        session.dispatch(Noted("lost"))
    with pytest.raises(
        NoReducer, match=r"no reducer for event Added in slice Note; .*mutate\(Note\)\.register\(Added, reducer\)"
    ):
        session.mutate(Note).dispatch(Added(1))
    assert session.query(Total).all() == ()


def test_reducers_of_one_event_and_slice_run_one_after_the_other():
    session = Session()
    session.mutate(Note).register(Note, append)
    session.mutate(Note).register(Note, lambda values, event, *, context: (*values, Note(f"{len(values)} so far")))
    session.dispatch(Note("a"))

    assert session.query(Note).all() == (Note("a"), Note("1 so far"))


def test_registering_a_reducer_twice_has_no_second_effect():
    session = Session()
    for _ in range(2):
        session.mutate(Total).register(Added, add)
        session.register_reducer(Noted, lambda values, event, *, context: (*values, Note(event.text)), slice_type=Note)
    session.dispatch(Added(1))
    session.dispatch(Noted("once"))

    assert session.query(Total).latest() == Total(1)
    assert session.query(Note).all() == (Note("once"),)


def test_two_reducers_made_alike_over_different_things_are_two():
    def counting(times):
        return lambda values, event, *, context: (*values, *[Note(event.text)] * times)

    session = Session()
    session.mutate(Note).register(Noted, counting(1)).register(Noted, counting(2)).register(Noted, counting(2))
    session.dispatch(Noted("x"))

    assert len(session.query(Note).all()) == 3


def test_a_reducer_that_refers_to_itself_can_be_registered():
    def made():
        def reducer(values, event, *, context):
            return reducer and (*values, Note(event.text))

        return reducer

    session = Session()
    session.mutate(Note).register(Noted, made()).register(Noted, made())
    session.dispatch(Noted("x"))

    assert session.query(Note).latest() == Note("x")


def test_the_built_in_reducers_append_replace_and_upsert():
    def after(reducer, *events, seeded=()):
        session = Session()
        session.mutate(Note).seed(seeded)
        session.mutate(Note).register(Note, reducer)
        for event in events:
            session.dispatch(event)
        return session.query(Note).all()

    a1, b1, a2 = Note("a", 1), Note("b", 1), Note("a", 2)
    assert after(append, a1, b1, a2) == (a1, b1, a2)
    assert after(replace_latest, a1, b1, a2) == (a2,)
    assert after(replace_latest, a1, seeded=[b1, b1]) == (a1,)
    assert after(upsert_by(lambda one: one.text), a1, b1, a2) == (a2, b1)


def test_a_reducer_knows_the_session_and_when_the_event_was_dispatched():
    session, seen = Session(clock=lambda: MONDAY), []

    def look(values, event, *, context):
        seen.append((context.session, context.now))
        return values

    session.mutate(Note).register(Noted, look)
    session.dispatch(Noted("x"))

    assert seen == [(session, MONDAY)]
    assert session.query(Note).all() == ()


def test_a_failing_reducer_raises_and_leaves_every_slice_as_it_was():
    session = Session()
    session.mutate(Note).register(Added, lambda values, event, *, context: (*values, Note("added")))
    session.mutate(Total).register(Added, add).seed(Total(1))
    session.mutate(Addressed).register(Added, fail)
    before = session.snapshot().slices

    with pytest.raises(
        ReducerFailed, match="reducer fail of Added for slice Addressed failed: ZeroDivisionError: no"
    ) as caught:
        session.dispatch(Added(5))

    assert session.snapshot().slices == before
    assert (caught.value.event, caught.value.reducer) == (Added(5), "fail")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("slice_type", [Note, str])  # a text is no slice of texts
@pytest.mark.parametrize("result", [None, "text", 3, [Total(1)], iter(())], ids=lambda value: type(value).__name__)
def test_a_reducer_that_returns_no_slice_has_failed(slice_type, result):
    session = Session()
    session.mutate(slice_type).register(Noted, lambda values, event, *, context: result)

    with pytest.raises(
        ReducerFailed,
        match=r"expected (a sequence with all values of the slice, or Append\(value\)|an instance of (Note|str))",
    ):
        session.dispatch(Noted("x"))


def test_only_values_of_its_type_go_into_a_slice():
    session = Session()
    with pytest.raises(InvalidSetting, match="value for slice Note=Total"):
        session.mutate(Note).append(Total(1))
    with pytest.raises(InvalidSetting, match="expected an instance of Note"):
        session.mutate(Note).seed([Note("a"), Total(1)])
    with pytest.raises(InvalidSetting, match="slice_type='Note': expected a class"):
        session.query("Note")

    assert session.query(Note).all() == ()


class Opaque:
    pass


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda session: session.query(Opaque()), "slice_type=Opaque object: expected a class"),
        (lambda session: session.mutate(Note).append(Opaque()), "value for slice Note=Opaque object: expected"),
        (lambda session: session.mutate(Note).seed([[Opaque()]]), r"value for slice Note=\[Opaque object\]: expected"),
        (lambda session: session.mutate(Note).append(fail), "value for slice Note=<function fail>: expected"),
    ],
)
def test_an_error_message_has_no_memory_address(action, message):
    with pytest.raises(InvalidSetting, match=message) as caught:
        action(Session())

    assert "0x" not in str(pickle.loads(pickle.dumps(caught.value)))


def test_collects_its_own_entries_from_its_bus():
    bus = InProcessEventBus()
    mine, yours = Session(bus=bus), Session(bus=bus)
    for event in (
        recorded(mine.session_id, 0),
        recorded(yours.session_id, 1),
        recorded(None, 2),
        recorded(UUID(int=9), 3),
    ):
        bus.publish(event).raise_errors()

    assert mine.query(ConversationEntry).all() == (entry(0),)
    assert yours.query(ConversationEntry).all() == (entry(1),)


def test_an_event_of_no_session_is_for_every_session_that_registered_for_it():
    bus = InProcessEventBus()
    sessions = [Session(bus=bus) for _ in range(3)]
    for session in sessions[:2]:
        session.mutate(Total).register(Added, add)

    assert bus.publish(Added(4)).handled == 2
    assert [session.query(Total).latest() for session in sessions] == [Total(4), Total(4), None]


def test_a_reducer_that_fails_on_a_published_event_is_in_the_result():
    session = Session()
    session.mutate(Note).register(ConversationRecorded, fail)

    result = session.bus.publish(recorded(session.session_id))

    assert [type(failure.error) for failure in result.errors] == [ReducerFailed]
    assert session.query(ConversationEntry).all() == ()


def test_the_registration_that_000_shows_does_not_record_twice():
    session = Session()
    for _ in range(2):
        session.register_reducer(
            ConversationRecorded,
            lambda slice, event, *, context: (*slice, event.entry),  # noqa: A006 - as the document has it
            slice_type=ConversationEntry,
        )
    session.bus.publish(recorded(session.session_id, 0)).raise_errors()
    session.bus.publish(recorded(session.session_id, 1)).raise_errors()

    assert session.query(ConversationEntry).all() == (entry(0), entry(1))


def test_the_functions_of_000_read_what_the_session_reads():
    session = Session()
    for number, run in [(1, RUN), (0, OTHER_RUN), (0, RUN), (1, OTHER_RUN)]:
        session.bus.publish(recorded(session.session_id, number, run=run)).raise_errors()

    for source in (session, session.snapshot()):
        assert select_all(source, ConversationEntry) == session.query(ConversationEntry).all()
        assert source.query(ConversationEntry).latest() == entry(1, run=OTHER_RUN)
        assert len(select_where(source, ConversationEntry, lambda one: one.role == MessageRole.USER)) == 4
        assert get_evaluation_history(source, RUN) == (entry(0), entry(1))


def test_a_closed_session_hears_nothing_more():
    bus = InProcessEventBus()
    with Session(bus=bus) as session:
        session.mutate(Total).register(Added, add)
        bus.publish(Added(1))
    session.mutate(Note).register(Noted, note)

    assert bus.publish(Added(1)).handled == bus.publish(Noted("x")).handled == 0
    assert bus.subscriber_count() == 0
    session.dispatch(Added(1))
    assert session.query(Total).latest() == Total(2)


def test_ten_thousand_sessions_come_and_go_on_one_bus_and_leave_nobody():
    bus = InProcessEventBus()
    for _ in range(10_000):
        Session(bus=bus).close()
    assert bus.subscriber_count() == 0
    assert bus._subscriptions == {}

    with Session(bus=bus) as session:
        assert bus.publish(recorded(session.session_id)).handled == 1


def test_is_what_a_manager_sees_of_a_session():
    session = Session(session_id=UUID(int=5))

    assert isinstance(session, SessionProtocol)
    assert session.session_id == UUID(int=5)
    assert Session().session_id != Session().session_id
    assert repr(session) == f"<Session {UUID(int=5)} {{ConversationEntry: 0}}>"
