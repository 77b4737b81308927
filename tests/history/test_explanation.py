import json

from hypothesis import given

from minutebook import (
    ComposedManager,
    SlidingWindowManager,
    TokenBudgetManager,
    ToolResultTruncator,
    Transcript,
    view_of,
)
from minutebook.history import NoteStatus, ToolStripper, explain
from tests.every import MANAGERS
from tests.history.test_manager_guarantees import curated, every_manager
from tests.history.test_managers import BUDGET, SYSTEM, assistant, big, budget, call_message, result_message, turn, user
from tests.strategies import broken, conversations

CHAT = [SYSTEM, *turn(1), user("go"), call_message("a"), result_message("a", "r" * 99)]


def statuses(explanation):
    return [
        (line.index, line.status.value, line.reason) for line in explanation.lines if line.status is not NoteStatus.SENT
    ]


def test_explains_which_messages_a_window_drops():
    assert statuses(explain(CHAT, SlidingWindowManager(3).curate(CHAT))) == [
        (at, "dropped", "older than the window of 3 messages") for at in range(1, 5)
    ]


def test_explains_the_changes_of_each_composed_manager():
    manager = ComposedManager((ToolResultTruncator(20), ToolStripper(1)))

    assert statuses(explain(CHAT, manager.curate(CHAT))) == [
        (2, "dropped", "tool details older than the last 1 turns"),
        (3, "dropped", "tool details older than the last 1 turns"),
        (7, "truncated", "longer than 20 characters"),
    ]


def test_explains_what_a_budget_clears_and_drops():
    chat = [
        SYSTEM,
        user("task"),
        call_message("a"),
        big("a"),
        assistant("word " * 90),
        user("go"),
        call_message("b"),
        big("b"),
        call_message("c"),
        big("c"),
        call_message("d"),
        big("d"),
    ]
    found = statuses(explain(chat, budget(target=0.9).curate(chat)))

    assert found == [
        (2, "dropped", f"over {BUDGET} tokens: one of the oldest turns"),
        (3, "dropped", f"over {BUDGET} tokens: one of the oldest turns"),
        (4, "dropped", f"over {BUDGET} tokens: one of the oldest turns"),
        (7, "cleared", f"over {BUDGET} tokens: an old tool result"),
        (9, "cleared", f"over {BUDGET} tokens: an old tool result"),
    ]


def test_explains_a_plain_list_by_its_content():
    view = [
        dict(CHAT[0]),
        dict(CHAT[5]),
        dict(CHAT[6]),
        {**CHAT[7], "content": "r"},
        {"role": "user", "content": "extra"},
    ]

    assert statuses(explain(CHAT, view)) == [
        *((at, "dropped", "not in the view") for at in range(1, 5)),
        (7, "changed", "changed from the record"),
        (None, "added", "not in the record"),
    ]


def test_explains_repairs():
    chat = [user("a"), result_message("x"), call_message("b"), user("c"), result_message("b")]

    assert statuses(view_of(chat).explain()) == [(1, "dropped", "orphan result ('x'): dropped")]
    moved = next(line for line in view_of(chat).explain().lines if line.index == 4)
    assert (moved.status, moved.reason) == (NoteStatus.SENT, "interleaved ('b'): moved")


def test_counts_the_cached_tokens():
    transcript = Transcript(CHAT)
    first = view_of(transcript, TokenBudgetManager(5_000))
    transcript.append(assistant("done"))
    second = view_of(transcript, TokenBudgetManager(5_000)).explain(previous=first)

    assert second.cached_tokens == sum(transcript.token_counts()[:-1])
    assert second.view_tokens == transcript.tokens


def test_has_a_text_form_and_a_json_form():
    explanation = explain(CHAT, SlidingWindowManager(3).curate(CHAT))

    assert str(explanation).splitlines()[2] == "    1  user       dropped    older than the window of 3 messages"
    assert json.loads(json.dumps(explanation.to_json()))["messages"][1]["status"] == "dropped"
    assert explanation.counts() == {NoteStatus.SENT: 4, NoteStatus.DROPPED: 4}


@every_manager(chat=conversations())
def test_every_message_has_a_status_and_every_loss_a_reason(manager, chat):
    view = curated(manager, chat)
    if view is None:
        return
    explanation = explain(chat, view)

    assert [line.index for line in explanation.lines if line.index is not None] == list(range(len(chat)))
    assert sum(line.status is not NoteStatus.DROPPED for line in explanation.lines) == len(view)
    assert all(line.reason for line in explanation.lines if line.status is not NoteStatus.SENT)
    if manager is not MANAGERS["passthrough"]:
        assert not [line for line in explanation.lines if line.reason in {"not in the view", "changed from the record"}]


@given(chat=broken())
def test_a_broken_record_is_explained_too(chat):
    explanation = view_of(chat).explain()

    assert [line.index for line in explanation.lines if line.index is not None] == list(range(len(chat)))
    assert not [line for line in explanation.lines if line.reason == "not in the view"]
