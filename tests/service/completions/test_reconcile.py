import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.record.message import leading_system_count
from minutebook.service.completions.reconcile import match_history
from tests.strategies import conversations


def user(text):
    return {"role": "user", "content": text}


def assistant(text, *calls):
    tool_calls = [{"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": tool_calls} if calls else {})}


def result(call, text="done"):
    return {"role": "tool", "tool_call_id": call, "content": text}


RECORD = [user("one"), assistant("1"), user("two"), assistant(None, "a"), result("a"), assistant("2")]


@given(chat=conversations(user_first=True), data=st.data())
def test_new_messages_after_the_complete_history_are_appended(chat, data):
    messages = chat[leading_system_count(chat) :]
    recorded = data.draw(st.integers(0, len(messages)))
    match = match_history(messages, messages[:recorded])
    assert (match.decision, list(match.new_messages)) == ("appended", messages[recorded:])


@given(chat=conversations(user_first=True))
def test_a_copy_without_details_matches_the_record(chat):
    messages = chat[leading_system_count(chat) :]
    keys = {"role", "content", "tool_calls", "tool_call_id"}
    match = match_history(
        [{key: value for key, value in message.items() if key in keys} for message in messages], messages
    )
    assert (match.decision, match.new_messages) == ("appended", ())


def test_an_edited_message_forks_the_conversation_where_it_differs():
    match = match_history([user("one"), assistant("1"), user("TWO")], RECORD)
    assert (match.decision, match.shared, match.new_messages) == ("forked", 2, (user("TWO"),))


def test_an_edited_first_message_forks_the_conversation_at_the_start():
    match = match_history([user("ONE"), assistant("1"), user("two")], RECORD)
    assert (match.decision, match.shared) == ("forked", 0)


def test_a_regenerated_answer_forks_the_conversation_before_the_old_answer():
    match = match_history(RECORD[:3], RECORD)
    assert (match.decision, match.shared, match.new_messages) == ("forked", 3, ())


def test_a_single_user_message_is_appended():
    match = match_history([user("three")], RECORD)
    assert (match.decision, match.new_messages) == ("partial", (user("three"),))


def test_tool_results_alone_are_appended():
    match = match_history([result("a"), result("b")], [user("go"), assistant(None, "a", "b")])
    assert (match.decision, match.new_messages) == ("partial", (result("a"), result("b")))


@pytest.mark.parametrize("resent", range(1, len(RECORD)))
def test_new_messages_after_the_end_of_the_history_are_appended(resent):
    match = match_history([*RECORD[-resent:], user("three")], RECORD)
    assert (match.decision, match.new_messages) == ("partial", (user("three"),))


def test_an_unrelated_message_of_a_client_that_resends_all_is_auxiliary():
    match = match_history([user("Find a title for this chat.")], RECORD, resends_all=True)
    assert match.decision == "auxiliary"


def test_white_space_is_not_compared():
    match = match_history([user(" one\n"), assistant("1"), user("more")], [user("one"), assistant("1")])
    assert (match.decision, match.new_messages) == ("appended", (user("more"),))
