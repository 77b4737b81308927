import copy
import random
from operator import is_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import check, repair
from minutebook.record import FindingKind, RepairAction, is_valid
from minutebook.record.finding import errors
from minutebook.record.repairs import NO_RESULT
from tests.strategies import break_once, broken, conversations, in_flight
from tests.transcripts import needs_corpus, real

CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASK = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "1"}
USER = {"role": "user", "content": "hi"}
DAMAGED = [
    "terminal",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("customer_service", "claude_code", "codex_responses")),
]
PROVIDERS = st.sampled_from(["openai", "anthropic", "gemini"])


@given(broken(), PROVIDERS)
def test_the_repaired_conversation_is_valid(chat, provider):
    repaired = repair(chat, provider=provider)

    assert errors(check(repaired.messages, provider=provider)) == []


@given(st.one_of(broken(), in_flight()), PROVIDERS)
def test_repairing_twice_changes_nothing_more(chat, provider):
    once = repair(chat, provider=provider)
    twice = repair(once.messages, provider=provider)

    assert twice.messages == once.messages
    assert twice.repairs == ()


@given(broken(), PROVIDERS)
def test_the_input_is_not_changed(chat, provider):
    before = copy.deepcopy(chat)
    repair(chat, provider=provider)

    assert chat == before


@given(conversations(user_first=True))
def test_a_valid_conversation_is_returned_as_the_same_messages(chat):
    repaired = repair(chat)

    assert all(map(is_, repaired.messages, chat))
    assert len(repaired.messages) == len(chat)
    assert repaired.repairs == ()


@given(broken(), PROVIDERS)
def test_drops_only_orphans_duplicates_and_unknown_roles(chat, provider):
    repaired = repair(chat, provider=provider)
    kept = {origin for origin in repaired.origins if origin is not None}
    reported = {entry.index: entry.kind for entry in repaired.repairs if entry.action is RepairAction.DROPPED}

    assert set(range(len(chat))) - kept == set(reported)
    assert set(reported.values()) <= {
        FindingKind.ORPHAN_RESULT,
        FindingKind.DUPLICATE_RESULT,
        FindingKind.UNKNOWN_ROLE,
    }


def test_a_late_result_is_moved_to_its_call():
    repaired = repair([USER, ASK, USER, ANSWER])

    assert repaired.messages == [USER, ASK, ANSWER, USER]
    assert repaired.origins == [0, 1, 3, 2]


def test_results_are_moved_to_calls_in_separate_messages():
    other = {**ASK, "tool_calls": [{**CALL, "id": "b"}]}
    repaired = repair([USER, ASK, other, ANSWER, {**ANSWER, "tool_call_id": "b"}])

    assert [message["role"] for message in repaired.messages] == ["user", "assistant", "tool", "assistant", "tool"]


def test_an_unanswered_call_gets_a_placeholder_result():
    repaired = repair([USER, ASK, USER])

    assert repaired.messages[2] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT}


def test_keep_open_leaves_open_calls_unanswered():
    assert repair([USER, ASK], keep_open=True).messages == [USER, ASK]


def test_calls_without_ids_are_paired_by_order():
    without_id = {"type": "function", "function": {"name": "read", "arguments": "{}"}}
    repaired = repair(
        [
            USER,
            {**ASK, "tool_calls": [without_id, without_id]},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "2"},
        ]
    )

    ids = [call["id"] for call in repaired.messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in repaired.messages[2:]] == ids
    assert [message["content"] for message in repaired.messages[2:]] == ["1", "2"]


def test_calls_are_removed_from_a_user_message_which_gets_empty_content():
    assert repair([{**ASK, "role": "user"}, USER]).messages == [{"role": "user", "content": ""}, USER]


def test_reused_ids_are_renamed_only_if_the_provider_rejects_them():
    chat = [USER, ASK, ANSWER, ASK, ANSWER]

    assert repair(chat).messages == chat
    renamed = repair(chat, provider="anthropic").messages
    assert renamed[3]["tool_calls"][0]["id"] == renamed[4]["tool_call_id"] != "a"


def test_arguments_that_are_not_an_object_are_wrapped_only_if_the_provider_rejects_them():
    bad_arguments = {**ASK, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": "{oops"}}]}

    assert repair([USER, bad_arguments, ANSWER]).messages[1] == bad_arguments
    wrapped = repair([USER, bad_arguments, ANSWER], provider="gemini").messages[1]
    assert wrapped["tool_calls"][0]["function"]["arguments"] == '{"arguments": "{oops"}'


def test_reports_its_repairs():
    assert [str(entry) for entry in repair([USER, ANSWER, ASK, USER]).repairs] == [
        "message 1: interleaved ('a'): moved",
    ]
    assert [str(entry) for entry in repair([USER, ANSWER]).repairs] == ["message 1: orphan result ('a'): dropped"]


@needs_corpus
def test_every_broken_conversation_of_the_corpus_is_valid_after_repair():
    for conversation in real("broken_asfound"):
        chat = conversation["messages"]
        repaired = repair(chat)
        assert is_valid(repaired.messages), conversation["id"]
        dropped = [entry for entry in repaired.repairs if entry.action is RepairAction.DROPPED]
        kept = {origin for origin in repaired.origins if origin is not None}
        assert set(range(len(chat))) - kept == {entry.index for entry in dropped}
        call_ids = {call["id"] for m in chat if m["role"] == "assistant" for call in m.get("tool_calls") or ()}
        assert not any(entry.kind is FindingKind.ORPHAN_RESULT and entry.call_id in call_ids for entry in dropped)


@needs_corpus
@pytest.mark.parametrize("damage", ["lost result", "lost call", "double result", "user inside", "late result"])
@pytest.mark.parametrize("name", DAMAGED)
def test_damage_done_to_real_conversations_is_repaired(name, damage):
    dice = random.Random(f"{name} {damage}")
    damaged = 0
    for conversation in real(name):
        chat = copy.deepcopy(conversation["messages"])
        if not is_valid(chat):
            continue
        for _ in range(dice.randint(1, 4)):
            damaged += break_once(chat, damage, lambda n: dice.randint(0, n))
        for provider in ("openai", "anthropic", "gemini"):
            repaired = repair(chat, provider=provider)
            assert is_valid(repaired.messages, provider=provider), conversation["id"]
        if damage in {"user inside", "late result"}:
            assert len(repair(chat).messages) >= len(chat), conversation["id"]
    assert damaged > 15
