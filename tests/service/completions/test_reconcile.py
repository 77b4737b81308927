import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.record.message import leading_system_count
from minutebook.service.completions.reconcile import reconciled
from tests.strategies import conversations


def user(text):
    return {"role": "user", "content": text}


def assistant(text, *calls):
    asked = [{"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": asked} if calls else {})}


def result(call, text="done"):
    return {"role": "tool", "tool_call_id": call, "content": text}


RECORD = [user("one"), assistant("1"), user("two"), assistant(None, "a"), result("a"), assistant("2")]


@given(chat=conversations(user_first=True), data=st.data())
def test_whoever_resends_everything_and_adds_to_it_appends_what_is_new(chat, data):
    story = chat[leading_system_count(chat) :]
    known = data.draw(st.integers(0, len(story)))
    told = reconciled(story, story[:known])
    assert (told.decision, list(told.new)) == ("appended", story[known:])


@given(chat=conversations(user_first=True))
def test_a_copy_that_lacks_details_is_the_same_story(chat):
    story = chat[leading_system_count(chat) :]
    keys = {"role", "content", "tool_calls", "tool_call_id"}
    told = reconciled([{key: value for key, value in each.items() if key in keys} for each in story], story)
    assert (told.decision, told.new) == ("appended", ())


def test_an_edited_message_begins_a_fork_where_it_differs():
    told = reconciled([user("one"), assistant("1"), user("TWO")], RECORD)
    assert (told.decision, told.shared, told.new) == ("forked", 2, (user("TWO"),))


def test_an_edited_first_message_begins_a_fork_at_the_start():
    told = reconciled([user("ONE"), assistant("1"), user("two")], RECORD)
    assert (told.decision, told.shared) == ("forked", 0)


def test_asking_for_another_answer_begins_a_fork_before_the_old_one():
    told = reconciled(RECORD[:3], RECORD)
    assert (told.decision, told.shared, told.new) == ("forked", 3, ())


def test_the_last_words_alone_are_appended():
    told = reconciled([user("three")], RECORD)
    assert (told.decision, told.new) == ("partial", (user("three"),))


def test_results_alone_are_appended():
    told = reconciled([result("a"), result("b")], [user("go"), assistant(None, "a", "b")])
    assert (told.decision, told.new) == ("partial", (result("a"), result("b")))


@pytest.mark.parametrize("kept", range(1, len(RECORD)))
def test_a_client_that_keeps_only_the_end_appends_what_follows(kept):
    told = reconciled([*RECORD[-kept:], user("three")], RECORD)
    assert (told.decision, told.new) == ("partial", (user("three"),))


def test_words_beside_the_story_of_a_client_that_resends_all_are_a_job_of_their_own():
    told = reconciled([user("Find a title for this chat.")], RECORD, resends_all=True)
    assert told.decision == "auxiliary"


def test_white_space_does_not_make_another_story():
    told = reconciled([user(" one\n"), assistant("1"), user("more")], [user("one"), assistant("1")])
    assert (told.decision, told.new) == ("appended", (user("more"),))
