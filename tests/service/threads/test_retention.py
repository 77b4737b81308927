"""Document 002 through HTTP: what the model is sent, what is kept, and what clients are told, flag by flag.

Every test talks to a running service on SQLite. What is kept is written by the same code whatever the database, so
PostgreSQL has one quick test here, and the others with `make test-all`.
"""

import asyncio
import json
import logging

import pytest

from minutebook.conversation.config import PERSISTENCE_RULES, SENDING_RULES, Persistence, Sent
from minutebook.conversation.trimming import TRIMMED_MARKER
from minutebook.tokens import model_info
from tests.service.parts import has_tools
from tests.service.talking import TOOLS, adding, empty_database, talking
from tests.service.talking_tools import found

TURNS = 5
PRESERVED = 1
"""Minimum turns with tools."""
STEPPED_TURNS = 12
"""The last of these questions comes after two steps of `STEPS`: of the finished turns, the last two are sent."""
STEPS = {"max_loaded_messages": 10}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def db(request, tmp_path):
    return empty_database(request.param, tmp_path)


def config_of(**retention):
    return TOOLS + f"conversation: {{retention: {json.dumps({'preserve_turns': PRESERVED, **retention})}}}\n"


def talk(here, turns=TURNS):
    thread = here.thread()
    for turn in range(turns):
        answer = thread.ask(f"Question {turn}")
        assert answer.status_code == 200, answer.text
    return thread


def turns_of(messages):
    """Messages by the turn that they belong to."""
    turns = []
    for message in messages:
        if message["role"] == "user":
            turns.append([])
        turns[-1].append(message)
    return turns


def recorded(here, thread):
    async def load():
        return await here.service.store.load(thread.id)

    return asyncio.run(load()).messages


def question(at):
    """The first request of a turn: what the provider is sent when the user has just spoken."""
    return 2 * at


def test_older_turns_are_sent_as_text_only(db, tmp_path):  # C28, C9, C24
    with talking(adding(STEPPED_TURNS), db=db, config=config_of(**STEPS), folder=tmp_path) as here:
        talk(here, STEPPED_TURNS)
        older, preserved, asked = turns_of(here.sent()[question(STEPPED_TURNS - 1)])

    assert [message["role"] for message in older] == ["user", "assistant"]
    assert has_tools(preserved)
    assert [message["role"] for message in asked] == ["user"]
    assert not here.provider.problems


def test_preserved_turns_are_sent_with_all_their_tools(db, tmp_path):  # C29, C2, C10
    with talking(adding(TURNS), db=db, config=config_of(), folder=tmp_path) as here:
        talk(here)
        sent = here.sent()[question(TURNS - 1)]

    answered = turns_of(sent)[-PRESERVED - 1]
    assert [message["role"] for message in answered] == ["user", "assistant", "tool", "assistant"]
    asked = answered[1]["tool_calls"][0]["function"]
    assert json.loads(asked["arguments"]) == {"a": TURNS - 2, "b": 1_000_000}
    assert answered[2]["content"] == found(TURNS - 2)


def test_the_stream_is_whole_and_the_history_has_the_preserved_turns_with_their_tools(db, tmp_path):  # C30
    config = config_of(expose_tool_details=True, tool_persistence="trimmed")
    with talking(adding(TURNS), db=db, config=config, folder=tmp_path) as here:
        thread = here.thread()
        streams = [thread.hear(f"Question {turn}") for turn in range(TURNS)]
        rows = [row for row in thread.messages(limit=100) if row["role"] == "assistant"]

    assert all(stream[-1].event == "done" for stream in streams)
    assert [stream[-1].data["text"] for stream in streams] == [row["text"] for row in rows]
    full = {"id", "name", "arguments", "status", "result"}
    assert [set(row["tools_used"][0]) == full for row in rows] == [False] * (TURNS - PRESERVED) + [True] * PRESERVED


def test_the_context_is_shorter_than_the_record_after_several_turns(db, tmp_path):  # C32
    with talking(adding(TURNS), db=db, config=config_of(max_loaded_messages=6), folder=tmp_path) as here:
        talk(here)
        pruned = [request.body["messages"] for request in here.provider.requests]
    with talking(adding(TURNS), config=config_of(mode="off"), folder=tmp_path) as here:
        talk(here)
        whole = [request.body["messages"] for request in here.provider.requests]

    sizes = [(len(json.dumps(one)), len(json.dumps(other))) for one, other in zip(pruned, whole, strict=True)]
    assert all(one <= other for one, other in sizes)
    assert sizes[-1][0] < sizes[-1][1]


FLAGS = [
    (row, prune, preserve)
    for row in SENDING_RULES
    for prune in ((True, False) if row.prune_tools_for_llm is None else (row.prune_tools_for_llm,))
    for preserve in (
        (prune,) if row.preserve_tools_for_latest_turns is None else (row.preserve_tools_for_latest_turns,)
    )
]


@pytest.mark.parametrize(
    ("row", "prune", "preserve"), FLAGS, ids=[f"{row.mode}-{one}-{two}" for row, one, two in FLAGS]
)
def test_what_is_sent_is_what_the_truth_table_says(row, prune, preserve, db, tmp_path):
    flags = {"mode": row.mode, "prune_tools_for_llm": prune, "preserve_tools_for_latest_turns": preserve}
    with talking(adding(STEPPED_TURNS), db=db, config=config_of(**STEPS, **flags), folder=tmp_path) as here:
        talk(here, STEPPED_TURNS)
        turns = turns_of(here.sent()[question(STEPPED_TURNS - 1)])

    with_tools = [has_tools(turn) for turn in turns]
    older, latest = with_tools[: -PRESERVED - 1], with_tools[-PRESERVED - 1 : -1]
    assert older == [row.older is Sent.WITH_TOOLS] * (1 if row.mode == "on" else STEPPED_TURNS - PRESERVED - 1)
    assert latest == [row.latest is Sent.WITH_TOOLS] * PRESERVED
    assert not here.provider.problems


@pytest.mark.parametrize("row", PERSISTENCE_RULES, ids=lambda row: f"{row.mode}-{row.tool_persistence}")
def test_what_is_kept_is_what_the_truth_table_says(row, db, tmp_path):  # C31, C12, C25
    config = config_of(mode=row.mode, tool_persistence=row.tool_persistence or "trimmed", expose_tool_details=True)
    with talking(adding(TURNS), db=db, config=config, folder=tmp_path) as here:
        thread = talk(here)
        results = [message["content"] for message in recorded(here, thread) if message["role"] == "tool"]
        rows = [row["tools_used"] for row in thread.messages(limit=100) if row["role"] == "assistant"]

    whole = [found(turn) for turn in range(TURNS)]
    short = {Persistence.ALL: whole[0], Persistence.STATUS: TRIMMED_MARKER.format(status="ok"), Persistence.NAME: ""}[
        row.older
    ]
    older = TURNS - PRESERVED
    assert results[older:] == whole[older:]
    if row.older is Persistence.ALL:
        assert results == whole
        assert all(used[0]["result"] for used in rows)
    else:
        shown = None if row.older is Persistence.NAME else [{"name": "add", "status": "ok"}]
        assert rows[:older] == [shown] * older
        assert results[:older] == [short] * older
    assert all(used[0]["arguments"] for used in rows[older:])


@pytest.mark.parametrize("db", ["sqlite", "postgres"], indirect=True)
def test_persist_tool_invocations_false_trims_older_rows_and_true_keeps_them(db, tmp_path):  # C15, C31
    kept = []
    for flag in (False, True):
        with talking(adding(4), db=db, config=config_of(persist_tool_invocations=flag), folder=tmp_path) as here:
            thread = talk(here, 4)
            kept.append([message["content"] for message in recorded(here, thread) if message["role"] == "tool"])

    trimmed, whole = kept
    assert trimmed[:2] == [TRIMMED_MARKER.format(status="ok")] * 2
    assert whole == [found(turn) for turn in range(4)]


def test_history_is_limited_to_a_number_of_visible_messages_from_the_start_of_a_turn_on(db, tmp_path):  # C14, DC-1
    with talking(adding(TURNS), db=db, config=config_of(max_loaded_messages=7), folder=tmp_path) as here:
        thread = talk(here)
        sent = here.sent()[question(TURNS - 1)]
        rows = thread.messages(limit=100)

    assert here.sent()[question(TURNS - 2)][0]["content"] == "Question 0"
    assert sent[0]["content"] == f"Question {TURNS - 2}"
    assert len(rows) == 2 * TURNS


@pytest.mark.parametrize(("preserved", "with_tools"), [(0, [False] * 5), (1, [False, True]), (3, [True] * 5)])
def test_at_least_the_configured_number_of_finished_turns_keep_their_tools(preserved, with_tools, db, tmp_path):  # C13
    config = config_of(preserve_turns=preserved, **STEPS)
    with talking(adding(STEPPED_TURNS), db=db, config=config, folder=tmp_path) as here:
        talk(here, STEPPED_TURNS)
        turns = turns_of(here.sent()[question(STEPPED_TURNS - 1)])

    assert [has_tools(turn) for turn in turns[:-1]] == with_tools


def test_without_history_only_the_current_turn_is_sent(db, tmp_path):  # C7
    with talking(adding(2), db=db, config=TOOLS + "conversation: {include_history: false}\n", folder=tmp_path) as here:
        thread = talk(here, 2)
        rows = thread.messages()

    assert [message["role"] for message in here.sent()[question(1)]] == ["user"]
    assert [message["role"] for message in here.sent()[question(1) + 1]] == ["user", "assistant", "tool"]
    assert len(rows) == 4


def test_no_summary_is_made(db, tmp_path):  # C3, C11
    with talking(adding(TURNS), db=db, config=config_of(max_loaded_messages=4), folder=tmp_path) as here:
        thread = talk(here)

        async def folds():
            return await here.service.store.folds(thread.id)

        assert asyncio.run(folds()) == ()


@pytest.mark.parametrize("exposed", [False, True])
def test_clients_get_tool_details_only_if_configured(exposed, db, tmp_path):  # C26
    with talking(adding(1), db=db, config=config_of(expose_tool_details=exposed), folder=tmp_path) as here:
        thread = here.thread()
        events = thread.hear("Question")
        row = thread.messages()[1]

    done = events[-1].data["tools"]
    assert done == row["tools_used"]
    assert (done == [{"name": "add", "status": "ok"}]) is not exposed
    assert any("1000000" in each.raw for each in events if each.event == "tool") is exposed
    if exposed:
        assert done[0]["result"] == found(0)


def test_shadow_mode_sends_everything_and_logs_what_it_would_have_pruned(db, tmp_path, caplog):  # C33, C35
    config = config_of(mode="shadow", tool_persistence="none", max_loaded_messages=6)
    with caplog.at_level(logging.INFO), talking(adding(TURNS), db=db, config=config, folder=tmp_path) as here:
        thread = talk(here)
        results = [message["content"] for message in recorded(here, thread) if message["role"] == "tool"]

    told = [record for record in caplog.records if record.getMessage() == "pruned"]
    last = told[question(TURNS - 1)]
    assert len(here.sent()[question(TURNS - 1)]) == 4 * (TURNS - 1) + 1
    assert results == [found(turn) for turn in range(TURNS)]
    assert (last.mode, last.loaded) == ("shadow", 4 * (TURNS - 1) + 1)
    assert last.pruned > 0
    assert last.tokens_after < last.tokens_before


def test_by_default_threads_use_retention_and_completions_the_model_s_window(tmp_path):
    with talking(adding(2), config=TOOLS, folder=tmp_path) as here:
        thread = talk(here, 1)
        here.client().chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Hello"}],
            extra_headers={"X-Conversation-Id": "order-17"},
        )
        policies = [
            here.http().get(f"/v1/conversations/{name}/requests").json()["data"][0]["policy"]
            for name in (thread.id, "order-17")
        ]

    assert [policy["name"] for policy in policies] == ["retention", "token_budget"]
    assert policies[1]["max_tokens"] == model_info("gpt-4o").room()
