import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import Transcript, check, counter_for, repair
from minutebook.errors import BrokenConversation, InvalidMessage, InvalidSetting
from minutebook.record import FindingKind, exchanges, safe_boundaries, turn_count, turns
from minutebook.record.finding import errors
from tests.strategies import broken, conversations, in_flight

ASK = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "1"}
USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "be brief"}


@given(conversations())
def test_behaves_like_the_list_of_its_messages(chat):
    transcript = Transcript(chat)

    assert list(transcript) == chat
    assert len(transcript) == len(chat)
    assert transcript[-2:] == chat[-2:]


@given(conversations())
def test_the_index_agrees_with_the_plain_functions(chat):
    transcript = Transcript(chat)

    assert transcript.turn_starts == [index for index, message in enumerate(chat) if message["role"] == "user"]
    assert len(transcript.turn_starts) == turn_count(chat)
    assert transcript.exchange_starts == [exchange.start for exchange in exchanges(chat)]
    assert all(transcript.exchange_of(index) in exchanges(chat) for index in range(len(chat)))
    assert transcript.tokens == sum(map(counter_for(None).message, chat))


@given(conversations())
def test_turns_and_exchanges_cover_the_whole_conversation(chat):
    assert [index for turn in turns(chat) for index in turn] == list(range(len(chat)))
    assert [index for exchange in exchanges(chat) for index in exchange] == list(range(len(chat)))
    starts = {turn.start for turn in turns(chat)}
    assert all(exchange.start in starts or not starts & set(exchange) for exchange in exchanges(chat))


@given(conversations())
def test_both_sides_of_a_safe_boundary_are_valid(chat):
    for boundary in safe_boundaries(chat):
        for part in (chat[:boundary], chat[boundary:]):
            assert {finding.kind for finding in errors(check(part))} <= {FindingKind.EMPTY_VIEW}


def test_no_boundary_is_safe_between_a_call_and_a_late_result():
    assert safe_boundaries([USER, ASK, USER, ANSWER, USER]) == [0, 1, 4, 5]


def test_the_ends_of_complete_exchanges_are_safe_boundaries():
    assert safe_boundaries([USER, ASK, ANSWER, USER]) == [0, 1, 3, 4]


def test_a_user_message_with_calls_and_results_is_one_turn():
    calls = [{**ASK["tool_calls"][0], "id": name} for name in "abc"]
    results = [{**ANSWER, "tool_call_id": name} for name in "abc"]
    chat = [USER, {**ASK, "tool_calls": calls}, *results]

    assert turn_count(chat) == 1
    assert turns(chat) == [range(5)]


@pytest.mark.parametrize(
    ("before", "message", "problem"),
    [
        ([USER], ANSWER, "answers no call"),
        ([USER, ASK], USER, "has no result"),
        ([USER, ASK, ANSWER], ANSWER, "answered twice"),
        ([], {"role": "narrator"}, "no provider accepts this role"),
    ],
)
def test_a_message_that_breaks_the_pairing_is_rejected_and_changes_nothing(before, message, problem):
    transcript = Transcript(before)

    with pytest.raises(BrokenConversation, match=problem):
        transcript.append(message)
    assert list(transcript) == before
    transcript.extend([] if not transcript.open_calls else [ANSWER])
    transcript.append(USER)


def test_broken_mark_appends_and_reports_a_message_that_breaks_the_pairing():
    transcript = Transcript([USER, ANSWER, ASK, USER], broken="mark")

    assert len(transcript) == 4
    assert [(finding.kind, finding.index) for finding in transcript.findings] == [
        (FindingKind.ORPHAN_RESULT, 1),
        (FindingKind.DANGLING_CALL, 2),
    ]


def test_a_value_that_is_no_message_is_rejected_in_both_modes():
    for broken_mode in ("raise", "mark"):
        transcript = Transcript(broken=broken_mode)
        with pytest.raises(InvalidMessage, match="message 0"):
            transcript.append("hello")
        assert len(transcript) == 0


def test_an_unknown_mode_is_rejected():
    with pytest.raises(InvalidSetting, match="'raise' or 'mark'"):
        Transcript(broken="ignore")


@given(st.one_of(broken(), in_flight()), st.data())
def test_the_coherent_form_is_the_repaired_conversation_whenever_it_is_read(chat, data):
    transcript = Transcript(broken="mark")
    for message in chat:
        transcript.append(message)
        if data.draw(st.booleans()):
            transcript.coherent()

    assert list(transcript.coherent()) == repair(chat, keep_open=True).messages
    assert set(transcript.repairs) == set(repair(chat, keep_open=True).repairs) or not transcript.findings


def test_a_valid_transcript_is_its_own_coherent_form():
    transcript = Transcript([SYSTEM, USER, ASK])

    assert transcript.coherent() is transcript
    assert transcript.open_calls == ("a",)


@given(conversations())
def test_survives_pickling(chat):
    transcript = Transcript(chat)
    if chat:
        transcript.pin(0)
    copy = pickle.loads(pickle.dumps(transcript))

    assert list(copy) == chat
    assert copy.pins == transcript.pins


def test_pins_accept_negative_indexes():
    transcript = Transcript([USER, USER, USER])
    transcript.pin(-1)

    assert transcript.pins == {2}
    with pytest.raises(IndexError):
        transcript.pin(7)
    transcript.unpin(2)
    assert transcript.pins == frozenset()


def test_threads_may_append_while_others_read():
    transcript = Transcript()

    def write():
        for _ in range(300):
            transcript.append(USER)

    def read():
        for _ in range(300):
            assert transcript.tokens >= 0

    threads = [threading.Thread(target=function) for function in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(transcript) == 600
    assert transcript.tokens == 600 * counter_for(None).message(USER)


def test_the_cache_is_bounded():
    transcript = Transcript()
    for number in range(100):
        transcript.cached_value((number,), list).append(number)

    assert transcript.cached_value((99,), list) == [99]
    assert transcript.cached_value((0,), list) == []
