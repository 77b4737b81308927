"""What a reducer or handler sets off waits its turn."""

import pytest

from minutebook.errors import EventFailed, LogIsAppendOnly, ReducerFailed
from minutebook.session import Session
from tests.session.parts import Added, Note, Noted, Total, add, fail, note


def noting(*texts):
    """A reducer that dispatches notes, then counts what it sees."""

    def reducer(values, event, *, context):
        for text in texts:
            context.session.dispatch(Noted(text))
        return (*values, Total(len(context.session.query(Note).all())))

    return reducer


def test_an_event_dispatched_by_a_reducer_is_reduced_after_the_first_is_committed():
    session, seen = Session(), []

    def look(values, event, *, context):
        seen.append((event.text, context.session.query(Total).all()))
        return (*values, Note(event.text))

    session.mutate(Note).register(Noted, look)
    session.mutate(Total).register(Added, noting("a", "b"))
    session.dispatch(Added(1))

    assert seen == [("a", (Total(0),)), ("b", (Total(0),))]
    assert session.query(Note).all() == (Note("a"), Note("b"))
    assert session.query(Total).all() == (Total(0),)


def test_what_reducers_set_off_is_done_in_the_order_in_which_it_was_asked_for():
    session = Session()

    def chain(values, event, *, context):
        if len(event.text) < 3:
            context.session.dispatch(Noted(event.text + "x"))
            context.session.dispatch(Noted(event.text + "y"))
        return (*values, Note(event.text))

    session.mutate(Note).register(Noted, chain)
    session.dispatch(Noted("-"))

    assert [one.text for one in session.query(Note).all()] == ["-", "-x", "-y", "-xx", "-xy", "-yx", "-yy"]


def test_every_other_change_a_reducer_makes_waits_too():
    session = Session()
    session.mutate(Note).seed([Note("old")])
    before = session.snapshot()

    def meddle(values, event, *, context):
        notes = context.session.mutate(Note)
        notes.append(Note("appended"))
        assert context.session.query(Note).all() == (Note("old"),)
        context.session.rollback(before)
        notes.append(Note("after"))
        return (*values, Total(1))

    session.mutate(Total).register(Added, meddle)
    session.dispatch(Added(1))

    assert session.query(Note).all() == (Note("old"), Note("after"))
    assert session.query(Total).all() == ()


def test_what_a_failed_event_set_off_does_not_happen():
    session = Session()
    session.mutate(Note).register(Noted, note)
    session.mutate(Total).register(Added, noting("a"))
    session.mutate(Total).register(Added, fail)

    with pytest.raises(ReducerFailed):
        session.dispatch(Added(1))

    assert session.query(Note).all() == session.query(Total).all() == ()
    session.dispatch(Noted("next"))
    assert session.query(Note).all() == (Note("next"),)


def test_an_event_that_fails_in_turn_is_raised_and_takes_nothing_else_with_it():
    session = Session()

    def not_a(values, event, *, context):
        return fail(values, event, context=context) if event.text == "a" else (*values, Note(event.text))

    session.mutate(Note).register(Noted, not_a)
    session.mutate(Total).register(Added, noting("a", "b"))

    with pytest.raises(ReducerFailed) as caught:
        session.dispatch(Added(1))

    assert caught.value.event == Noted("a")
    assert session.query(Total).all() == (Total(0),)
    assert session.query(Note).all() == (Note("b"),)


def test_several_failures_are_raised_together():
    session = Session()
    session.mutate(Note).register(Noted, fail)
    session.mutate(Total).register(Added, noting("a", "b"))
    session.mutate(Total).register(
        Added,
        lambda values, event, *, context: session.log(Note).clear() or session.mutate(Note).append(Note("c")) or values,
    )

    with pytest.raises(EventFailed, match="3 handlers of Added failed") as caught:
        session.dispatch(Added(1))

    assert [type(error) for error in caught.value.exceptions] == [ReducerFailed, ReducerFailed, LogIsAppendOnly]
    assert session.query(Note).all() == (Note("c"),)


def test_a_handler_that_dispatches_finds_the_event_committed():
    session = Session()
    session.mutate(Total).register(Added, add)
    session.mutate(Note).register(Noted, note)
    session.bus.subscribe(Added, lambda _: session.dispatch(Noted(f"total {session.query(Total).latest().amount}")))

    session.bus.publish(Added(5)).raise_errors()

    assert session.query(Note).all() == (Note("total 5"),)


def test_an_event_published_by_a_reducer_waits_like_one_it_dispatches():
    session = Session()
    session.mutate(Note).register(Noted, note)

    def publish(values, event, *, context):
        context.session.bus.publish(Noted("published")).raise_errors()
        return (*values, Total(len(context.session.query(Note).all())))

    session.mutate(Total).register(Added, publish)
    session.dispatch(Added(1))

    assert session.query(Total).all() == (Total(0),)
    assert session.query(Note).all() == (Note("published"),)


def test_an_interrupted_reducer_leaves_the_session_usable():
    session = Session()

    def interrupted(values, event, *, context):
        context.session.mutate(Note).append(Note("never"))
        raise KeyboardInterrupt

    session.mutate(Total).register(Added, interrupted)
    session.mutate(Note).register(Noted, note)
    with pytest.raises(KeyboardInterrupt):
        session.dispatch(Added(1))
    session.dispatch(Noted("next"))

    assert session.query(Note).all() == (Note("next"),)
