import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minutebook.record.message import leading_system_count
from minutebook.service.completions.history_match import match_history
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


@given(sent=st.lists(st.sampled_from("ab"), min_size=1), record=st.lists(st.sampled_from("ab"), min_size=1))
def test_the_end_of_the_record_that_the_request_begins_with_is_not_appended_again(sent, record):
    assume(sent[0] != record[0])
    lengths = [length for length in range(1, min(len(sent), len(record) - 1) + 1) if record[-length:] == sent[:length]]
    assume(lengths)

    match = match_history([user(text) for text in sent], [user(text) for text in record])

    assert (match.decision, len(match.new_messages)) == ("partial", len(sent) - max(lengths))


def test_messages_with_other_calls_do_not_overlap():
    match = match_history([assistant("2", "b"), result("b"), user("three")], [*RECORD[:-1], assistant("2", "a")])
    assert match.decision == "forked"


def test_equal_messages_are_compared_in_linear_time():
    def seconds(count):
        record = [user("first"), *[user("yes"), assistant("no")] * count, user("last")]
        sent = [*[user("yes"), assistant("no")] * count, user("new")]
        started = time.process_time()
        assert match_history(sent, record).decision == "forked"
        return time.process_time() - started

    assert min(seconds(4_000) for _ in range(3)) < 10 * min(seconds(1_000) for _ in range(3))


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
    match = match_history([user("Find a title for this chat.")], RECORD, resend="all", may_be_auxiliary=True)
    assert match.decision == "auxiliary"


def test_white_space_around_a_text_is_not_compared():
    match = match_history([user(" one\n"), assistant("1"), user("more")], [user("one"), assistant("1")])
    assert (match.decision, match.new_messages) == ("appended", (user("more"),))
    assert match.resent == {0: user(" one\n")}


def image(url):
    return {
        "role": "user",
        "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}],
    }


def calls(arguments, call="a"):
    function = {"name": "look", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (user("if x:\n    y()"), user("if x:\n  y()")),
        (image("data:image/png;base64,AA=="), image("data:image/png;base64,BB==")),
        (calls('{"a": 1}'), calls('{"a": 2}')),
        (result("a", "12 files"), result("a", "13 files")),
        (assistant("1"), assistant("2")),
        (user("one"), {"role": "system", "content": "one"}),
    ],
)
def test_changed_content_is_an_edit(stored, sent):
    before = [user("start")] if stored["role"] != "tool" else [user("start"), assistant(None, "a")]
    match = match_history([*before, sent, user("next")], [*before, stored, assistant("done")])
    assert (match.decision, match.shared, match.new_messages) == ("forked", len(before), (sent, user("next")))


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (user("one"), {"role": "user", "content": [{"type": "text", "text": "one"}]}),
        ({"role": "assistant", "content": "1", "refusal": None, "annotations": []}, assistant("1")),
        (assistant("1"), {"role": "assistant", "content": "1", "cache_control": {"type": "ephemeral"}}),
        (calls('{"a":1}'), calls('{"a": 1}')),
        ({**user("one"), "name": "ann"}, user("one")),
    ],
)
def test_the_clients_copy_is_sent_where_its_content_is_the_same(stored, sent):
    match = match_history([user("start"), sent, result("a")], [user("start"), stored])
    assert (match.decision, match.new_messages) == ("appended", (result("a"),))
    assert match.resent == {1: sent}


FINAL_TEXTS = [user("one"), assistant("1"), user("two"), assistant("2")]


def test_omitted_tool_messages_are_not_edits():
    match = match_history([*FINAL_TEXTS, user("three")], RECORD)
    assert (match.decision, match.shared, match.new_messages) == ("appended", len(RECORD), (user("three"),))


def test_an_answer_that_is_edited_after_an_omitted_tool_exchange_forks_after_the_exchange():
    match = match_history([*FINAL_TEXTS[:3], assistant("2, edited"), user("three")], RECORD)
    assert (match.decision, match.shared) == ("forked", 5)


@pytest.mark.parametrize("end", [(), (assistant("2"),)])
def test_other_calls_replace_the_tool_exchange(end):
    start = [user("one"), assistant("1"), user("two")]
    sent = [*start, assistant(None, "b"), result("b"), assistant("2"), user("three")]
    match = match_history(sent, [*start, assistant(None, "a"), result("a"), *end])
    assert (match.decision, match.shared, match.new_messages) == ("forked", 3, tuple(sent[3:]))


def test_a_client_may_omit_the_first_of_two_tool_exchanges():
    sent = [user("one"), assistant(None, "b"), result("b")]
    record = [user("one"), assistant(None, "a"), result("a"), assistant(None, "b")]
    match = match_history(sent, record)
    assert (match.decision, match.new_messages) == ("appended", (result("b"),))


def test_a_client_that_regenerates_an_answer_with_tools_forks_before_the_exchange():
    match = match_history(FINAL_TEXTS[:3], RECORD)
    assert (match.decision, match.shared, match.new_messages) == ("forked", 3, ())


def test_a_message_instead_of_a_missing_tool_result_forks_before_the_call():
    match = match_history([user("one"), user("never mind")], [user("one"), assistant(None, "a")])
    assert (match.decision, match.shared) == ("forked", 1)


def test_a_client_states_what_it_sends():
    edited = [user("ONE")]
    assert match_history(edited, RECORD).decision == "partial"
    assert match_history(edited, RECORD, has_system=True).decision == "forked"
    assert match_history(edited, RECORD, resend="all").decision == "forked"
    new = match_history([user("one")], RECORD, resend="new")
    assert (new.decision, new.new_messages) == ("partial", (user("one"),))


@pytest.mark.fuzz
@given(chat=conversations(user_first=True))
def test_a_client_that_keeps_only_texts_never_forks(chat):
    messages = chat[leading_system_count(chat) :]
    texts = [message for message in messages if message["role"] != "tool" and not message.get("tool_calls")]
    open_calls = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    open_calls -= {message.get("tool_call_id") for message in messages}
    assume(not open_calls and texts and all(message.get("content") for message in texts))
    match = match_history([*texts, user("A question that was not asked before.")], messages, resend="all")
    assert match.decision == "appended"
