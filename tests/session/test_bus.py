import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from minutebook import MinutebookError
from minutebook.errors import EventFailed
from minutebook.session import InProcessEventBus
from tests.session.parts import Added, Addressed, Noted

ALICE, BOB = UUID(int=10), UUID(int=11)


class LoudNoted(Noted):
    pass


def fails(event):
    raise ValueError(event.amount)


def test_hands_an_event_to_those_who_subscribed_in_their_order():
    bus, heard = InProcessEventBus(), []
    for name in "abc":
        bus.subscribe(Added, lambda event, name=name: heard.append((name, event)))

    result = bus.publish(Added(1))

    assert heard == [(name, Added(1)) for name in "abc"]
    assert (result.event, result.handled, result.errors) == (Added(1), 3, ())


def test_hands_an_event_to_handlers_of_exactly_its_type():
    bus, heard = InProcessEventBus(), []
    bus.subscribe(Noted, heard.append)
    bus.subscribe(object, heard.append)

    assert bus.publish(LoudNoted("x")).handled == 0
    assert heard == []


def test_every_handler_runs_even_if_one_fails():
    bus, heard = InProcessEventBus(), []
    bus.subscribe(Added, fails)
    bus.subscribe(Added, heard.append)

    result = bus.publish(Added(7))

    assert heard == [Added(7)]
    assert result.handled == 1
    assert [(one.handler, type(one.error), one.error.args) for one in result.errors] == [(fails, ValueError, (7,))]


def test_the_errors_of_a_result_can_be_raised_together():
    bus = InProcessEventBus()
    bus.publish(Added(7)).raise_errors()
    bus.subscribe(Added, fails)
    bus.subscribe(Added, fails)

    with pytest.raises(EventFailed, match="2 handlers of Added failed: ValueError: 7; ValueError: 7") as caught:
        bus.publish(Added(7)).raise_errors()

    assert isinstance(caught.value, MinutebookError)
    assert [type(error) for error in caught.value.exceptions] == [ValueError, ValueError]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert isinstance(caught.value.subgroup(ValueError), EventFailed)


def test_an_interrupt_is_no_error_of_a_handler():
    bus = InProcessEventBus()

    def interrupt(_):
        raise KeyboardInterrupt

    bus.subscribe(Added, interrupt)

    with pytest.raises(KeyboardInterrupt):
        bus.publish(Added(1))


def test_who_unsubscribes_hears_nothing_more_and_may_do_it_twice():
    bus, heard = InProcessEventBus(), []
    leave = bus.subscribe(Added, heard.append)
    bus.subscribe(Added, heard.append)
    leave()
    leave()

    assert bus.publish(Added(1)).handled == 1
    assert bus.subscriber_count() == bus.subscriber_count(Added) == 1


def test_who_subscribes_during_an_event_hears_the_next_one():
    bus, heard = InProcessEventBus(), []
    bus.subscribe(Added, lambda _: bus.subscribe(Added, heard.append))

    assert bus.publish(Added(1)).handled == 1
    assert heard == []
    bus.publish(Added(2))
    assert heard == [Added(2)]


def test_who_is_unsubscribed_during_an_event_does_not_hear_it():
    bus, heard = InProcessEventBus(), []
    bus.subscribe(Added, lambda _: leave())
    leave = bus.subscribe(Added, heard.append)

    assert bus.publish(Added(1)).handled == 1
    assert heard == []


def test_an_event_published_by_a_handler_is_handled_before_the_handler_returns():
    bus, heard = InProcessEventBus(), []

    def answer(_):
        heard.append("before")
        assert bus.publish(Noted("inner")).handled == 1
        heard.append("after")

    bus.subscribe(Added, answer)
    bus.subscribe(Added, lambda _: heard.append("next"))
    bus.subscribe(Noted, lambda event: heard.append(event.text))
    bus.publish(Added(1))

    assert heard == ["before", "inner", "after", "next"]


def test_an_event_with_a_session_id_reaches_that_session_and_those_who_hear_all():
    bus, heard = InProcessEventBus(), []
    for name, session_id in [("alice", ALICE), ("all", None), ("bob", BOB)]:
        bus.subscribe(Addressed, lambda _, name=name: heard.append(name), session_id=session_id)
        bus.subscribe(Noted, lambda _, name=name: heard.append(name), session_id=session_id)

    def hearers(event):
        heard.clear()
        assert bus.publish(event).handled == len(heard)
        return heard.copy()

    assert hearers(Addressed(ALICE)) == ["alice", "all"]
    assert hearers(Addressed(BOB)) == ["all", "bob"]
    assert hearers(Addressed(None)) == ["all"]
    assert hearers(Addressed(UUID(int=12))) == ["all"]
    assert hearers(Noted("everybody")) == ["alice", "all", "bob"]


def test_threads_may_publish_and_subscribe_at_once():
    bus, heard = InProcessEventBus(), []
    bus.subscribe(Added, heard.append)
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for at in range(100):
            leave = bus.subscribe(Noted, fails)
            assert bus.publish(Added(number * 100 + at)).handled == 1
            leave()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert sorted(event.amount for event in heard) == list(range(800))
    assert bus.subscriber_count() == 1
