"""Many threads, one session: nothing is lost, each thread's order is kept, every reading is whole."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pytest

from minutebook import ConversationEntry
from minutebook.session import Append, InProcessEventBus, Session, append
from minutebook.session.slices import Values
from tests.session.parts import Added, Note, Noted, Total, add, entry, recorded

WRITERS, TIMES = 8, 60


@pytest.fixture(autouse=True)
def _switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work, count=WRITERS):
    start = threading.Barrier(count)

    def run(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_nothing_is_lost_and_each_threads_order_is_kept():
    session = Session()
    session.mutate(Note).register(Note, append)

    def work(number):
        for at in range(TIMES):
            if at % 2:
                session.dispatch(Note(str(number), at))
            else:
                session.mutate(Note).append(Note(str(number), at))

    together(work)

    found = sorted(session.query(Note).all(), key=lambda one: one.text)
    for number, notes in groupby(found, key=lambda one: one.text):
        assert [one.number for one in notes] == list(range(TIMES)), number
    assert len(found) == WRITERS * TIMES


def test_every_snapshot_is_of_a_moment_between_two_events():
    session = Session()
    session.mutate(Total).register(Added, add)
    session.mutate(Note).register(Added, lambda values, event, *, context: (*values[-3:], Note("", len(values))))
    session.log(Added).register(Added, append)

    def work(number):
        for _ in range(TIMES):
            if number % 2:
                session.dispatch(Added(1))
            else:
                snapshot = session.snapshot()
                events, totals = snapshot.query(Added).all(), snapshot.query(Total).all()
                assert sum(event.amount for event in events) == (totals[-1].amount if totals else 0)
                assert len(snapshot.query(Note).all()) == min(len(events), 4)

    together(work)

    assert session.query(Total).latest() == Total(TIMES * WRITERS // 2)


def test_sessions_on_one_bus_hear_only_their_own():
    bus = InProcessEventBus()

    def work(number):
        with Session(bus=bus) as session:
            for at in range(TIMES):
                assert bus.publish(recorded(session.session_id, number * TIMES + at)).handled == 1
            return session.query(ConversationEntry).all()

    for number, entries in enumerate(together(work)):
        assert entries == tuple(entry(number * TIMES + at) for at in range(TIMES))
    assert bus.subscriber_count() == 0


def test_sessions_that_took_over_one_snapshot_go_on_apart():
    first = Session()
    first.mutate(ConversationEntry).append(entry(0))
    snapshot = first.snapshot()

    def work(number):
        session = Session()
        session.restore(snapshot)
        for at in range(TIMES):
            session.mutate(ConversationEntry).append(entry(number * TIMES + at))
        return session.query(ConversationEntry).all()

    for number, entries in enumerate(together(work)):
        assert entries == (entry(0), *(entry(number * TIMES + at) for at in range(TIMES)))
    assert first.query(ConversationEntry).all() == (entry(0),)


def test_who_appends_looks_at_the_shared_list_only_while_nobody_else_can():
    """Two sessions may go on from the same values; between looking and appending, no other may come in."""
    values, alone = Values([0]), []

    class Watched(list):
        def __len__(self):
            alone.append(values._shared.lock.locked())
            return super().__len__()

        def extend(self, more):
            alone.append(values._shared.lock.locked())
            super().extend(more)

    values._shared.items = Watched([0])

    assert values.plus((1,)) == (0, 1)
    assert alone == [True, True]


def test_no_registration_is_lost():
    session = Session()

    def work(number):
        for at in range(TIMES):
            text = f"{number}/{at}"
            session.mutate(Note).register(Noted, lambda values, event, *, context, text=text: Append(Note(text)))

    together(work)
    session.dispatch(Noted("x"))

    assert {one.text for one in session.query(Note).all()} == {f"{a}/{b}" for a in range(WRITERS) for b in range(TIMES)}


def test_registering_from_many_threads_registers_once():
    session = Session()
    together(lambda _: session.mutate(Total).register(Added, add).register(Noted, add))
    session.dispatch(Added(1))

    assert session.query(Total).all() == (Total(1),)
    assert session.bus.subscriber_count() == 3
