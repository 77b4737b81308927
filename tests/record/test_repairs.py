import copy
import random

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
def test_what_was_broken_is_accepted_afterwards(chat, provider):
    mended = repair(chat, provider=provider)

    assert errors(check(mended.messages, provider=provider)) == []


@given(st.one_of(broken(), in_flight()), PROVIDERS)
def test_repairing_twice_changes_nothing_more(chat, provider):
    once = repair(chat, provider=provider)
    twice = repair(once.messages, provider=provider)

    assert twice.messages == once.messages
    assert twice.repairs == ()


@given(broken(), PROVIDERS)
def test_the_input_is_left_alone(chat, provider):
    before = copy.deepcopy(chat)
    repair(chat, provider=provider)

    assert chat == before


@given(conversations(user_first=True))
def test_what_is_in_order_comes_back_as_the_same_messages(chat):
    mended = repair(chat)

    assert all(one is other for one, other in zip(mended.messages, chat, strict=True))
    assert mended.repairs == ()


@given(broken(), PROVIDERS)
def test_only_what_answers_nothing_or_twice_is_left_out(chat, provider):
    mended = repair(chat, provider=provider)
    kept = {origin for origin in mended.origins if origin is not None}
    reported = {done.index: done.kind for done in mended.repairs if done.action is RepairAction.DROPPED}

    assert set(range(len(chat))) - kept == set(reported)
    assert set(reported.values()) <= {
        FindingKind.ORPHAN_RESULT,
        FindingKind.DUPLICATE_RESULT,
        FindingKind.UNKNOWN_ROLE,
    }


def test_a_late_result_is_moved_to_its_call():
    mended = repair([USER, ASK, USER, ANSWER])

    assert mended.messages == [USER, ASK, ANSWER, USER]
    assert mended.origins == [0, 1, 3, 2]


def test_calls_that_were_logged_one_by_one_get_their_own_results():
    other = {**ASK, "tool_calls": [{**CALL, "id": "b"}]}
    mended = repair([USER, ASK, other, ANSWER, {**ANSWER, "tool_call_id": "b"}])

    assert [message["role"] for message in mended.messages] == ["user", "assistant", "tool", "assistant", "tool"]


def test_an_unanswered_call_gets_a_result_that_says_so():
    mended = repair([USER, ASK, USER])

    assert mended.messages[2] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT}


def test_a_call_that_still_waits_is_left_waiting_when_asked():
    assert repair([USER, ASK], keep_open=True).messages == [USER, ASK]


def test_calls_without_ids_find_their_results_by_order():
    nameless = {"type": "function", "function": {"name": "read", "arguments": "{}"}}
    mended = repair(
        [
            USER,
            {**ASK, "tool_calls": [nameless, nameless]},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "2"},
        ]
    )

    ids = [call["id"] for call in mended.messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in mended.messages[2:]] == ids
    assert [message["content"] for message in mended.messages[2:]] == ["1", "2"]


def test_calls_on_a_user_message_are_taken_off_and_it_keeps_a_content():
    assert repair([{**ASK, "role": "user"}, USER]).messages == [{"role": "user", "content": ""}, USER]


def test_ids_used_again_are_renamed_for_a_provider_that_minds():
    chat = [USER, ASK, ANSWER, ASK, ANSWER]

    assert repair(chat).messages == chat
    renamed = repair(chat, provider="anthropic").messages
    assert renamed[3]["tool_calls"][0]["id"] == renamed[4]["tool_call_id"] != "a"


def test_arguments_that_are_not_an_object_are_wrapped_for_a_provider_that_minds():
    odd = {**ASK, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": "{oops"}}]}

    assert repair([USER, odd, ANSWER]).messages[1] == odd
    wrapped = repair([USER, odd, ANSWER], provider="gemini").messages[1]
    assert wrapped["tool_calls"][0]["function"]["arguments"] == '{"arguments": "{oops"}'


def test_says_what_it_did():
    assert [str(done) for done in repair([USER, ANSWER, ASK, USER]).repairs] == [
        "message 1: interleaved ('a'): moved",
    ]
    assert [str(done) for done in repair([USER, ANSWER]).repairs] == ["message 1: orphan result ('a'): dropped"]


@needs_corpus
def test_every_conversation_found_broken_is_accepted_after_repair():
    for conversation in real("broken_asfound"):
        chat = conversation["messages"]
        mended = repair(chat)
        assert is_valid(mended.messages), conversation["id"]
        lost = [done for done in mended.repairs if done.action is RepairAction.DROPPED]
        kept = {origin for origin in mended.origins if origin is not None}
        assert set(range(len(chat))) - kept == {done.index for done in lost}
        answerable = {call["id"] for m in chat if m["role"] == "assistant" for call in m.get("tool_calls") or ()}
        assert not [d for d in lost if d.kind is FindingKind.ORPHAN_RESULT and d.call_id in answerable]


@needs_corpus
@pytest.mark.parametrize("how", ["lost result", "lost call", "double result", "user inside", "late result"])
@pytest.mark.parametrize("name", DAMAGED)
def test_damage_done_to_real_conversations_is_repaired(name, how):
    dice = random.Random(f"{name} {how}")
    damaged = 0
    for conversation in real(name):
        chat = copy.deepcopy(conversation["messages"])
        if not is_valid(chat):
            continue
        for _ in range(dice.randint(1, 4)):
            damaged += break_once(chat, how, lambda n: dice.randint(0, n))
        for provider in ("openai", "anthropic", "gemini"):
            mended = repair(chat, provider=provider)
            assert is_valid(mended.messages, provider=provider), conversation["id"]
        if how in {"user inside", "late result"}:
            assert len(repair(chat).messages) >= len(chat), conversation["id"]
    assert damaged > 15
