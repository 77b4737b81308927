"""google-adk's Runner against a provider with a small context window, with and without the plugin."""

import asyncio
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from integrations.adk.conftest import (
    CONVERSATION,
    WINDOW,
    RunnerHarness,
    folds,
    log_reader,
    pages,
    reading_script,
    recorded,
)
from minutebook import (
    CannotFit,
    CompactionManager,
    HistoryCompacted,
    ModelInfo,
    Transcript,
    check,
    counter_for,
    open_store,
)
from minutebook.compaction import strategy_names
from minutebook.integrations.adk.compaction import AdkCompaction
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail

ROOT = Path(__file__).parents[2]
STRATEGIES = ["hybrid", "summarize", "truncate"]
NOTICE = "[History compacted using {} strategy]"


class RecordingBus:
    def __init__(self):
        self.events = []

    def publish(self, event):
        self.events.append(event)


def notices(events):
    return [notice for event in events for notice in (event.custom_metadata or {}).get("minutebook", ())]


def test_without_the_plugin_the_run_fails_with_the_provider_overflow(provider):
    with pytest.raises(httpx.HTTPStatusError) as raised:
        RunnerHarness(provider.base_url).run("Read the whole log.")

    assert raised.value.response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_the_plugin_the_run_finishes_without_rejected_requests(provider, store, model, strategy):
    events = RunnerHarness(provider.base_url, AdkCompaction(store, model, strategy)).run("Read the whole log.")

    assert events[-1].content.parts[0].text == "The log is read."
    assert provider.problems == []
    assert len(provider.requests) == 13
    assert folds(store)
    assert not any(check(request.messages) for request in provider.requests)


@pytest.mark.parametrize(
    ("strategy", "sign"),
    [("hybrid", "[cleared: "), ("summarize", "[Earlier conversation summary: "), ("truncate", "[20 earlier messages ")],
)
def test_the_text_of_a_fold_is_sent_once(provider, store, model, strategy, sign):
    RunnerHarness(provider.base_url, AdkCompaction(store, model, strategy)).run("Read the whole log.")

    shown = sum(sign in str(message.get("content")) for message in provider.requests[-1].messages)
    assert shown == (12 if strategy == "hybrid" else 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_record_is_complete_and_in_order_and_the_session_is_unchanged(provider, store, model, strategy):
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model, strategy))
    ship.run("Read the whole log.", "Thank you.")

    messages = recorded(store)
    assert messages == ship.session_messages()
    assert not check(messages)
    assert [message["role"] for message in messages].count("tool") == 18
    assert messages[-1]["content"] == "Noted."
    assert all(event.actions.compaction is None for event in ship.session().events)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_events_and_bus_have_the_notices_and_requests_do_not(provider, store, model, strategy):
    bus = RecordingBus()
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model, strategy, bus=bus))
    events = ship.run("Read the whole log.")

    assert set(notices(events)) == {NOTICE.format(strategy)}
    assert notices(ship.session().events) == notices(events)
    assert len(bus.events) == len(notices(events))
    assert all(isinstance(event, HistoryCompacted) for event in bus.events)
    assert {fold for event in bus.events for fold in event.folds} == {stored.fold.id for stored in folds(store)}
    assert not any("History compacted" in str(request.body) for request in provider.requests)
    assert "History compacted" not in str(recorded(store))


def test_a_request_that_fits_is_sent_unchanged(store, model):
    sent = []
    for plugins in ([], [AdkCompaction(store, model)]):
        with LoopbackProvider(reading_script(3), max_context_tokens=WINDOW) as provider:
            RunnerHarness(provider.base_url, *plugins).run("Read the whole log.", "And again.")
            sent.append([request.body for request in provider.requests])

    assert sent[0] == sent[1]


def test_between_two_folds_each_request_starts_with_the_previous_one(provider, store, model):
    RunnerHarness(provider.base_url, AdkCompaction(store, model)).run("Read the whole log.")

    sent = [request.messages for request in provider.requests]
    broken = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(sent))
    assert broken == len({stored.created_at for stored in folds(store)})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_undoing_every_fold_restores_all_messages(provider, store, model, strategy):
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model, strategy))
    ship.run("Read the whole log.")
    for stored in folds(store):
        asyncio.run(store.undo_fold(CONVERSATION, stored.fold.id))
    with LoopbackProvider(ScriptedModel("Yes.")) as wide:
        large = ModelInfo("gpt-4o", max_input_tokens=200_000)
        next_harness = RunnerHarness(wide.base_url, AdkCompaction(store, large, strategy), sessions=ship.sessions)
        next_harness.run("Is that all?")

        assert (
            len(wide.requests[0].messages) == 1 + len(recorded(store)) - 1
        )  # with the instruction, without the answer
        assert wide.problems == []


def test_undone_messages_are_folded_again_if_they_do_not_fit(provider, store, model):
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model, "truncate"))
    ship.run("Read the whole log.")
    before = [stored.fold.id for stored in folds(store)]
    for name in before:
        asyncio.run(store.undo_fold(CONVERSATION, name))
    RunnerHarness(provider.base_url, AdkCompaction(store, model, "truncate"), sessions=ship.sessions).run(
        "Is that all?"
    )

    assert provider.problems == []
    assert any(stored.undone_at is None for stored in folds(store))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_process_that_continues_the_session_sends_the_same_messages(provider, tmp_path, model, strategy):
    url, sessions = f"sqlite:///{tmp_path / 'book.db'}", str(tmp_path / "sessions.db")

    async def run_first():
        async with open_store(url) as store:
            ship = RunnerHarness(
                provider.base_url, AdkCompaction(store, model, strategy), sessions=SqliteSessionService(sessions)
            )
            await ship.ask("Read the whole log.")
            await ship.close()

    asyncio.run(run_first())
    first_messages = provider.requests[-1].messages
    command = [sys.executable, "-m", "integrations.adk.resume", provider.base_url, url, sessions, strategy]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert process.returncode == 0, process.stderr
    assert provider.requests[-1].messages == [
        *first_messages,
        {"role": "assistant", "content": "The log is read."},
        {"role": "user", "content": "And what does it say?"},
    ]
    assert provider.problems == []


def test_after_a_run_the_record_is_folded_for_the_next_call(store):
    """The call fits; with its long answer the next one would not, so the compaction runs between the two."""
    bus, tale = RecordingBus(), "Then the wind turned. " * 60
    model = ModelInfo("gpt-4o", max_input_tokens=1_000)
    steps = ScriptedModel(*[f"{number}: {tale}" for number in range(3)], "Good night.")
    with LoopbackProvider(steps, max_context_tokens=1_000) as provider:
        ship = RunnerHarness(provider.base_url, AdkCompaction(store, model, "truncate", bus=bus))
        events = ship.run("Tell me a tale.", "Another.", "And another.")
        after = folds(store)
        before = ship.session_messages()
        next_harness = RunnerHarness(
            provider.base_url, AdkCompaction(store, model, "truncate", bus=bus), sessions=ship.sessions
        )
        next_harness.run("Enough.")

    assert provider.problems == []
    assert notices(events) == []  # no call waited for a compaction
    assert {fold for event in bus.events for fold in event.folds} == {stored.fold.id for stored in after}
    assert len(after) >= 1
    assert recorded(store)[: len(before)] == before
    assert "truncated to fit" in str(provider.requests[-1].messages)


def test_a_finished_run_does_not_fail_because_the_next_call_cannot_fit(store):
    tiny = ModelInfo("gpt-4o", max_input_tokens=300)
    with LoopbackProvider(ScriptedModel("It was a long voyage. " * 200)) as provider:
        ship = RunnerHarness(provider.base_url, AdkCompaction(store, tiny))
        events = ship.run("Tell me of the voyage.")

    assert events[-1].content.parts[0].text.startswith("It was a long voyage.")
    assert recorded(store) == ship.session_messages()


def test_a_streamed_run_is_recorded_once(provider, store, model):
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    ship = RunnerHarness(provider.base_url, AdkCompaction(store, model), run_config=config)
    events = ship.run("Read the whole log.")

    assert any(event.partial for event in events)
    assert recorded(store) == ship.session_messages()
    assert provider.problems == []
    assert len(notices(events)) >= 1


def test_messages_before_a_failure_are_recorded(store, model):
    with LoopbackProvider(ScriptedModel(pages(1), pages(2, 3), fail(400, "no"))) as provider:
        ship = RunnerHarness(provider.base_url, AdkCompaction(store, model))
        with pytest.raises(httpx.HTTPStatusError):
            ship.run("Read the whole log.")

    assert [message["role"] for message in recorded(store)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "tool",
    ]
    assert recorded(store) == ship.session_messages()


def test_a_session_started_without_the_plugin_is_recorded_from_its_beginning(store, model):
    with LoopbackProvider(reading_script(2)) as provider:
        ship = RunnerHarness(provider.base_url)
        ship.run("Read the whole log.")
        RunnerHarness(provider.base_url, AdkCompaction(store, model), sessions=ship.sessions).run("And now?")

    assert recorded(store) == ship.session_messages()


def test_two_runners_of_one_session_record_each_event_once(store, model):
    with LoopbackProvider(reading_script(2)) as provider:
        ship = RunnerHarness(provider.base_url, AdkCompaction(store, model))
        other = RunnerHarness(provider.base_url, AdkCompaction(store, model), sessions=ship.sessions)
        ship.run("Read the whole log.")
        other.run("And now?")
        ship.run("And then?")

    assert recorded(store) == ship.session_messages()


def test_quoted_messages_of_another_agent_are_folded(store, model):
    """google-adk quotes the messages of another agent, so they differ from the recorded event."""
    steps = [call("transfer_to_agent", agent_name="cook"), *(pages(n) for n in range(8))]
    back = [call("transfer_to_agent", agent_name="mate"), *(pages(10 + n) for n in range(8)), "All is read."]
    with LoopbackProvider(ScriptedModel(*steps, *back), max_context_tokens=WINDOW) as provider:
        cook = log_reader(provider.base_url, name="cook", description="Cooks.")
        agent = log_reader(provider.base_url, sub_agents=[cook])
        ship = RunnerHarness(provider.base_url, AdkCompaction(store, model), agent=agent)
        events = ship.run("Read the whole log.")

        assert events[-1].content.parts[0].text == "All is read."
        assert provider.problems == []
    assert recorded(store) == ship.session_messages()
    assert folds(store)


def test_messages_that_cannot_fit_raise_cannot_fit(provider, store):
    tiny = ModelInfo("gpt-4o", max_input_tokens=40)
    with pytest.raises(RuntimeError) as raised:
        RunnerHarness(provider.base_url, AdkCompaction(store, tiny)).run("Read the whole log. " * 20)

    assert isinstance(raised.value.__cause__, CannotFit)
    assert provider.requests == []


@pytest.mark.parametrize("name", strategy_names())
def test_a_strategy_is_found_by_its_name(store, model, name):
    assert AdkCompaction(store, model, name).strategy == CompactionManager(name, model).strategy


def test_twelve_turns_are_folded_as_in_a_record_in_memory(store):
    """All paths compact by turns in the same way: see tests/conversation/test_one_compaction.py."""
    wide, bus = ModelInfo("gpt-4o", max_input_tokens=100_000), RecordingBus()
    texts = [f"Please look at /srv/app/module_{number}.py, ticket ERR-44{number:02d}." for number in range(12)]
    with LoopbackProvider(ScriptedModel(otherwise="I looked, and there is nothing unusual. " * 6)) as provider:
        RunnerHarness(provider.base_url, AdkCompaction(store, wide, "turns", bus=bus)).run(*texts)
    messages = recorded(store)
    manager = CompactionManager("turns", wide)
    for stop in range(1, len(messages) + 1):
        asyncio.run(manager.check_and_apply(Transcript(messages[:stop], counter=counter_for("gpt-4o"))))

    stored = [stored_fold.fold for stored_fold in folds(store)]
    assert [(fold.start, fold.stop, fold.shown) for fold in stored] == [
        (fold.start, fold.stop, fold.shown) for fold in manager.folds
    ]
    assert all(f"module_{number}.py" in str(stored[-1].shown) for number in range(8))
    assert [(event.conversation, event.folds) for event in bus.events] == [
        (CONVERSATION, (fold.id,)) for fold in stored
    ]
