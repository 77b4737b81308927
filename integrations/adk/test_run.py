"""google-adk's Runner against a provider that enforces its window, with our plugin and without."""

import asyncio
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from integrations.adk.conftest import CONVERSATION, WINDOW, Ship, folds, mate, pages, reads_many, recorded
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


class Heard:
    def __init__(self):
        self.events = []

    def publish(self, event):
        self.events.append(event)


def notices(events):
    return [notice for event in events for notice in (event.custom_metadata or {}).get("minutebook", ())]


def test_without_the_plugin_the_run_breaks_with_the_overflow_of_the_provider(provider):
    with pytest.raises(httpx.HTTPStatusError) as raised:
        Ship(provider.base_url).run("Read the whole log.")

    assert raised.value.response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_it_the_run_finishes_and_nothing_is_refused(provider, store, model, strategy):
    events = Ship(provider.base_url, AdkCompaction(store, model, strategy)).run("Read the whole log.")

    assert events[-1].content.parts[0].text == "The log is read."
    assert provider.problems == []
    assert len(provider.requests) == 13
    assert folds(store)
    assert not any(check(request.messages) for request in provider.requests)


@pytest.mark.parametrize(
    ("strategy", "sign"),
    [("hybrid", "[cleared: "), ("summarize", "[Earlier conversation summary: "), ("truncate", "[20 earlier messages ")],
)
def test_the_model_is_shown_once_what_stands_for_the_rest(provider, store, model, strategy, sign):
    Ship(provider.base_url, AdkCompaction(store, model, strategy)).run("Read the whole log.")

    shown = sum(sign in str(message.get("content")) for message in provider.requests[-1].messages)
    assert shown == (12 if strategy == "hybrid" else 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_record_is_complete_and_in_order_and_the_session_is_left_alone(provider, store, model, strategy):
    ship = Ship(provider.base_url, AdkCompaction(store, model, strategy))
    ship.run("Read the whole log.", "Thank you.")

    whole = recorded(store)
    assert whole == ship.said()
    assert not check(whole)
    assert [message["role"] for message in whole].count("tool") == 18
    assert whole[-1]["content"] == "Noted."
    assert all(event.actions.compaction is None for event in ship.session().events)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whoever_reads_the_run_is_told_and_the_model_is_not(provider, store, model, strategy):
    heard = Heard()
    ship = Ship(provider.base_url, AdkCompaction(store, model, strategy, bus=heard))
    events = ship.run("Read the whole log.")

    assert set(notices(events)) == {NOTICE.format(strategy)}
    assert notices(ship.session().events) == notices(events)
    assert len(heard.events) == len(notices(events))
    assert all(isinstance(event, HistoryCompacted) for event in heard.events)
    assert {fold for event in heard.events for fold in event.folds} == {stored.fold.id for stored in folds(store)}
    assert not any("History compacted" in str(request.body) for request in provider.requests)
    assert "History compacted" not in str(recorded(store))


def test_what_fits_is_sent_as_google_adk_made_it(store, model):
    sent = []
    for plugins in ([], [AdkCompaction(store, model)]):
        with LoopbackProvider(reads_many(3), max_context_tokens=WINDOW) as provider:
            Ship(provider.base_url, *plugins).run("Read the whole log.", "And again.")
            sent.append([request.body for request in provider.requests])

    assert sent[0] == sent[1]


def test_between_two_folds_each_request_begins_with_the_one_before(provider, store, model):
    Ship(provider.base_url, AdkCompaction(store, model)).run("Read the whole log.")

    sent = [request.messages for request in provider.requests]
    broken = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(sent))
    assert broken == len({stored.created_at for stored in folds(store)})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_undoing_every_fold_gives_the_whole_back(provider, store, model, strategy):
    ship = Ship(provider.base_url, AdkCompaction(store, model, strategy))
    ship.run("Read the whole log.")
    for stored in folds(store):
        asyncio.run(store.undo_fold(CONVERSATION, stored.fold.id))
    with LoopbackProvider(ScriptedModel("Yes.")) as wide:
        large = ModelInfo("gpt-4o", max_input_tokens=200_000)
        again = Ship(wide.base_url, AdkCompaction(store, large, strategy), sessions=ship.sessions)
        again.run("Is that all?")

        assert len(wide.requests[0].messages) == 1 + len(recorded(store)) - 1  # the instruction, and not yet the answer
        assert wide.problems == []


def test_what_was_undone_is_folded_anew_when_there_is_no_room_for_it(provider, store, model):
    ship = Ship(provider.base_url, AdkCompaction(store, model, "truncate"))
    ship.run("Read the whole log.")
    before = [stored.fold.id for stored in folds(store)]
    for name in before:
        asyncio.run(store.undo_fold(CONVERSATION, name))
    Ship(provider.base_url, AdkCompaction(store, model, "truncate"), sessions=ship.sessions).run("Is that all?")

    assert provider.problems == []
    assert any(stored.undone_at is None for stored in folds(store))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_process_that_goes_on_with_the_session_sees_the_same(provider, tmp_path, model, strategy):
    url, sessions = f"sqlite:///{tmp_path / 'book.db'}", str(tmp_path / "sessions.db")

    async def first():
        async with open_store(url) as store:
            ship = Ship(
                provider.base_url, AdkCompaction(store, model, strategy), sessions=SqliteSessionService(sessions)
            )
            await ship.ask("Read the whole log.")
            await ship.close()

    asyncio.run(first())
    seen = provider.requests[-1].messages
    command = [sys.executable, "-m", "integrations.adk.resume", provider.base_url, url, sessions, strategy]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert provider.requests[-1].messages == [
        *seen,
        {"role": "assistant", "content": "The log is read."},
        {"role": "user", "content": "And what does it say?"},
    ]
    assert provider.problems == []


def test_after_a_run_what_the_next_call_would_have_no_room_for_is_folded(store):
    """The call fitted; its long answer made it too much, and nobody has to wait for that at the next one."""
    heard, tale = Heard(), "Then the wind turned. " * 60
    model = ModelInfo("gpt-4o", max_input_tokens=1_000)
    steps = ScriptedModel(*[f"{number}: {tale}" for number in range(3)], "Good night.")
    with LoopbackProvider(steps, max_context_tokens=1_000) as provider:
        ship = Ship(provider.base_url, AdkCompaction(store, model, "truncate", bus=heard))
        events = ship.run("Tell me a tale.", "Another.", "And another.")
        after = folds(store)
        before = ship.said()
        again = Ship(provider.base_url, AdkCompaction(store, model, "truncate", bus=heard), sessions=ship.sessions)
        again.run("Enough.")

    assert provider.problems == []
    assert notices(events) == []  # no call had to wait for one
    assert {fold for event in heard.events for fold in event.folds} == {stored.fold.id for stored in after}
    assert len(after) >= 1
    assert recorded(store)[: len(before)] == before
    assert "truncated to fit" in str(provider.requests[-1].messages)


def test_a_run_that_is_over_does_not_fail_because_the_next_could_not_be_made(store):
    tiny = ModelInfo("gpt-4o", max_input_tokens=300)
    with LoopbackProvider(ScriptedModel("It was a long voyage. " * 200)) as provider:
        ship = Ship(provider.base_url, AdkCompaction(store, tiny))
        events = ship.run("Tell me of the voyage.")

    assert events[-1].content.parts[0].text.startswith("It was a long voyage.")
    assert recorded(store) == ship.said()


def test_a_streamed_run_is_recorded_once(provider, store, model):
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    ship = Ship(provider.base_url, AdkCompaction(store, model), run_config=config)
    events = ship.run("Read the whole log.")

    assert any(event.partial for event in events)
    assert recorded(store) == ship.said()
    assert provider.problems == []
    assert len(notices(events)) >= 1


def test_what_was_said_before_a_run_broke_is_recorded(store, model):
    with LoopbackProvider(ScriptedModel(pages(1), pages(2, 3), fail(400, "no"))) as provider:
        ship = Ship(provider.base_url, AdkCompaction(store, model))
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
    assert recorded(store) == ship.said()


def test_a_session_that_began_without_us_is_recorded_from_its_beginning(store, model):
    with LoopbackProvider(reads_many(2)) as provider:
        ship = Ship(provider.base_url)
        ship.run("Read the whole log.")
        Ship(provider.base_url, AdkCompaction(store, model), sessions=ship.sessions).run("And now?")

    assert recorded(store) == ship.said()


def test_two_runners_of_one_session_do_not_record_it_twice(store, model):
    with LoopbackProvider(reads_many(2)) as provider:
        ship = Ship(provider.base_url, AdkCompaction(store, model))
        other = Ship(provider.base_url, AdkCompaction(store, model), sessions=ship.sessions)
        ship.run("Read the whole log.")
        other.run("And now?")
        ship.run("And then?")

    assert recorded(store) == ship.said()


def test_what_another_agent_said_is_folded_too(store, model):
    """google-adk puts the words of another agent in quotes: they are no longer what the event said."""
    steps = [call("transfer_to_agent", agent_name="cook"), *(pages(n) for n in range(8))]
    back = [call("transfer_to_agent", agent_name="mate"), *(pages(10 + n) for n in range(8)), "All is read."]
    with LoopbackProvider(ScriptedModel(*steps, *back), max_context_tokens=WINDOW) as provider:
        cook = mate(provider.base_url, name="cook", description="Cooks.")
        agent = mate(provider.base_url, sub_agents=[cook])
        ship = Ship(provider.base_url, AdkCompaction(store, model), agent=agent)
        events = ship.run("Read the whole log.")

        assert events[-1].content.parts[0].text == "All is read."
        assert provider.problems == []
    assert recorded(store) == ship.said()
    assert folds(store)


def test_what_cannot_fit_says_what_is_too_large(provider, store):
    tiny = ModelInfo("gpt-4o", max_input_tokens=40)
    with pytest.raises(RuntimeError) as raised:
        Ship(provider.base_url, AdkCompaction(store, tiny)).run("Read the whole log. " * 20)

    assert isinstance(raised.value.__cause__, CannotFit)
    assert provider.requests == []


@pytest.mark.parametrize("name", strategy_names())
def test_a_strategy_goes_by_its_name_as_everywhere(store, model, name):
    assert AdkCompaction(store, model, name).strategy == CompactionManager(name, model).strategy


def test_twelve_turns_are_shown_as_those_of_a_record_in_memory_are(store):
    """Compaction by turns is one path: see tests/conversation/test_one_compaction.py."""
    wide, heard = ModelInfo("gpt-4o", max_input_tokens=100_000), Heard()
    asked = [f"Please look at /srv/app/module_{number}.py, ticket ERR-44{number:02d}." for number in range(12)]
    with LoopbackProvider(ScriptedModel(otherwise="I looked, and there is nothing unusual. " * 6)) as provider:
        Ship(provider.base_url, AdkCompaction(store, wide, "turns", bus=heard)).run(*asked)
    messages = recorded(store)
    manager = CompactionManager("turns", wide)
    for stop in range(1, len(messages) + 1):
        asyncio.run(manager.check_and_apply(Transcript(messages[:stop], counter=counter_for("gpt-4o"))))

    stored = [each.fold for each in folds(store)]
    assert [(fold.start, fold.stop, fold.shown) for fold in stored] == [
        (fold.start, fold.stop, fold.shown) for fold in manager.folds
    ]
    assert all(f"module_{number}.py" in str(stored[-1].shown) for number in range(8))
    assert [(event.conversation, event.folds) for event in heard.events] == [
        (CONVERSATION, (fold.id,)) for fold in stored
    ]
