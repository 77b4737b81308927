"""What holds of every session, whatever happens to it and in whatever order."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from minutebook import ConversationEntry
from minutebook.errors import ReducerFailed
from minutebook.session import InProcessEventBus, Session, Snapshot, TypeRegistry, append
from tests.session.parts import Added, Note, Noted, Total, add, entry, note, recorded

events = st.one_of(
    st.builds(Added, st.integers(-3, 3)),
    st.builds(Noted, st.sampled_from("abc")),
    st.builds(Note, st.sampled_from("xyz")),
)


def set_up(session):
    session.mutate(Total).register(Added, add)
    session.mutate(Note).register(Noted, note).register(Note, append)
    session.log(Added).register(Added, append)
    return session


def folded(events):
    """What a session holds after the events, without a session."""
    amounts = [event.amount for event in events if isinstance(event, Added)]
    notes = [Note(event.text) for event in events if isinstance(event, (Noted, Note))]
    return {
        Total: (Total(sum(amounts)),) if amounts else (),
        Note: tuple(notes),
        Added: tuple(map(Added, amounts)),
    }


def held(session):
    return {kind: session.query(kind).all() for kind in (Total, Note, Added)}


@given(st.lists(st.tuples(st.booleans(), events)))
def test_any_interleaving_of_events_is_their_fold_in_order(happenings):
    session = set_up(Session())
    for is_published, event in happenings:
        if is_published:
            session.bus.publish(event).raise_errors()
        else:
            session.dispatch(event)

    assert held(session) == folded([event for _, event in happenings])


@given(st.lists(events), st.sets(st.integers(0, 30)), st.integers(0, 2))
def test_an_event_changes_everything_it_should_or_nothing(happenings, failing, place):
    """A reducer fails now and then, before, between or after the others."""
    at = 0

    def flaky(values, event, *, context):
        if at in failing:
            raise RuntimeError(at)
        return values

    session = Session()
    for step in range(3):
        if step == place:
            for kind in (Added, Noted, Note):
                session.mutate(Note).register(kind, flaky)
        if step == 0:
            session.mutate(Total).register(Added, add)
        if step == 1:
            session.mutate(Note).register(Noted, note).register(Note, append)
            session.log(Added).register(Added, append)
    for event in happenings:
        before = session.snapshot()
        if at in failing:
            with pytest.raises(ReducerFailed):
                session.dispatch(event)
            assert session.snapshot().slices == before.slices
        else:
            session.dispatch(event)
        at += 1

    assert held(session) == folded([event for number, event in enumerate(happenings) if number not in failing])


@given(st.lists(st.integers(0, 4)), st.integers(1, 4))
def test_a_session_takes_only_its_own_events_from_a_shared_bus(owners, count):
    bus = InProcessEventBus()
    ids = [*(UUID(int=number + 1) for number in range(4)), None]
    sessions = [Session(bus=bus, session_id=ids[number]) for number in range(count)]
    for at, owner in enumerate(owners):
        result = bus.publish(recorded(ids[owner], at))
        assert result.handled == (owner < count)

    for number, session in enumerate(sessions):
        mine = tuple(entry(at) for at, owner in enumerate(owners) if owner == number)
        assert session.query(ConversationEntry).all() == mine


class SessionMachine(RuleBasedStateMachine):
    """A session beside a model of it: plain lists, copied at every snapshot."""

    snapshots = Bundle("snapshots")

    def __init__(self):
        super().__init__()
        self.session = set_up(Session())
        self.state = {Total: [], Note: []}
        self.logs = {Added: [], ConversationEntry: []}

    @rule(amount=st.integers(-3, 3))
    def add(self, amount):
        self.session.dispatch(Added(amount))
        self.logs[Added].append(Added(amount))
        self.state[Total] = [Total(sum(total.amount for total in self.state[Total]) + amount)]

    @rule(text=st.sampled_from("abc"), how=st.sampled_from([Noted, Note, None]))
    def note(self, text, how):
        if how is None:
            self.session.mutate(Note).append(Note(text))
        else:
            self.session.dispatch(how(text))
        self.state[Note].append(Note(text))

    @rule(texts=st.text("abc", max_size=3))
    def seed(self, texts):
        self.session.mutate(Note).seed(map(Note, texts))
        self.state[Note] = list(map(Note, texts))

    @rule()
    def clear(self):
        self.session.mutate(Total).clear()
        self.state[Total] = []

    @rule()
    def record(self):
        number = len(self.logs[ConversationEntry])
        self.session.bus.publish(recorded(self.session.session_id, number)).raise_errors()
        self.logs[ConversationEntry].append(entry(number))

    @rule(target=snapshots)
    def take_snapshot(self):
        model = {kind: list(values) for kind, values in (self.state | self.logs).items()}
        return multiple((self.session.snapshot(), model))

    @rule(taken=snapshots, through_json=st.booleans())
    def rollback(self, taken, through_json):
        snapshot, model = taken
        if through_json:
            snapshot = Snapshot.from_json(snapshot.to_json(), TypeRegistry(Total, Note, Added))
        self.session.rollback(snapshot)
        self.state = {kind: list(model[kind]) for kind in self.state}

    @rule(taken=snapshots)
    def go_on_in_a_new_session(self, taken):
        snapshot, model = taken
        self.session = set_up(Session(session_id=snapshot.session_id))
        self.session.restore(snapshot)
        self.state = {kind: list(model[kind]) for kind in self.state}
        self.logs = {kind: list(model[kind]) for kind in self.logs}

    @rule(taken=snapshots)
    def a_snapshot_is_what_it_was(self, taken):
        snapshot, model = taken
        for kind, values in model.items():
            assert snapshot.query(kind).all() == tuple(values)

    @invariant()
    def the_session_holds_what_the_model_holds(self):
        for kind, values in (self.state | self.logs).items():
            assert self.session.query(kind).all() == tuple(values)


TestSession = SessionMachine.TestCase
