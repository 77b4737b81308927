"""Views that the guard repairs during a run are published and logged; with `strict` they raise."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationRunner, HistoryCurated, ObservableManager, Session, counter_for
from minutebook.errors import GuaranteeViolated
from minutebook.testing import LoopbackProvider, ScriptedModel, call
from tests.agent.parts import adapter_for, open_adapter, prompt_of


class Cut:
    """A bad manager: it keeps the messages at these indexes."""

    def __init__(self, indexes):
        self.indexes = indexes

    def curate(self, messages, *, session):
        return [message for index, message in enumerate(messages) if index % 6 in self.indexes]


MODEL = [call("read", path="a.py") + call("read", path="b.py"), call("read", path="c.py"), "Done."]
DROPS_RESULTS = Cut({0, 1, 2})


def run(manager, *, session=None, **options):
    """Run the manager. Returns the events and the bodies of the requests."""
    session, events = session or Session(), []
    session.bus.subscribe(HistoryCurated, events.append)
    with LoopbackProvider(ScriptedModel(*MODEL)) as provider, adapter_for(provider) as adapter:
        adapter.evaluate_sync(prompt_of(), session=session, request="Go.", history_manager=manager, **options)
        assert provider.problems == []
        return events, [request.messages for request in provider.requests]


def test_a_repaired_view_is_published_and_logged(caplog):
    with caplog.at_level(logging.WARNING, logger="minutebook.agent"):
        events, _ = run(DROPS_RESULTS)

    assert [bool(event.violations) for event in events] == [False, True, True]
    assert str(events[1].violations[0]) in caplog.text
    assert "prompt worker: the view was repaired:" in caplog.text


def test_a_run_without_violations_logs_nothing(caplog):
    with caplog.at_level(logging.WARNING, logger="minutebook.agent"):
        events, _ = run(None)

    assert not any(event.violations for event in events)
    assert caplog.text == ""


@pytest.mark.fuzz
@given(st.sets(st.integers(0, 5)), st.booleans())
def test_the_event_describes_the_view_that_was_sent(indexes, is_observed):
    session, count = Session(), counter_for("gpt-4o").message
    manager = Cut(indexes)

    events, requests = run(
        ObservableManager(manager, session.bus, "worker") if is_observed else manager, session=session
    )

    assert [event.curated_count for event in events] == [len(messages) for messages in requests]
    assert [event.original_count for event in events] == [2, 5, 7]
    assert [event.tokens_after for event in events] == [sum(map(count, messages)) for messages in requests]
    assert {event.strategy for event in events} == {"cut"}


async def evaluate(adapter, options):
    await adapter.evaluate(prompt_of(), **options)


async def evaluate_sync(adapter, options):
    await asyncio.to_thread(adapter.evaluate_sync, prompt_of(), **options)


async def stream(adapter, options):
    async for _ in adapter.stream(prompt_of(), **options):
        pass


async def runner(adapter, options):
    await ConversationRunner(adapter=adapter, prompt=prompt_of(), **options).run()


async def run_and_close(run_prompt, provider, **options):
    async with open_adapter(provider) as adapter:
        try:
            await run_prompt(adapter, {"session": Session(), "request": "Go.", **options})
        finally:
            await asyncio.to_thread(adapter.close)  # the connections of evaluate_sync


@pytest.mark.parametrize("run_prompt", [evaluate, evaluate_sync, stream, runner])
def test_a_strict_run_raises_instead_of_repairing(run_prompt):
    with LoopbackProvider(ScriptedModel(*MODEL)) as provider:
        with pytest.raises(GuaranteeViolated):
            asyncio.run(run_and_close(run_prompt, provider, history_manager=DROPS_RESULTS, strict=True))

        assert len(provider.requests) == 1  # the bad view was not sent


def test_a_strict_run_without_violations_is_unchanged():
    events, requests = run(None, strict=True)

    assert [len(messages) for messages in requests] == [event.original_count for event in events] == [2, 5, 7]
