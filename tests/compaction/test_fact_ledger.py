import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import counter_for
from minutebook.compaction import facts, ledger
from minutebook.compaction.fact_ledger import KINDS, FactReader, files_of, with_braces_expanded, without_ledger
from minutebook.compaction.summarizer import summary_message
from tests.strategies import conversations

COUNTER = counter_for(None)


def user(text):
    return {"role": "user", "content": text}


def call_message(**arguments):
    function = {"name": "run", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def fact_keys(*messages):
    return {(fact.kind, fact.text) for fact in facts(messages)}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("see src/app/main.py for it", ("paths", "src/app/main.py")),
        ("in /etc/nginx/nginx.conf.", ("paths", "/etc/nginx/nginx.conf")),
        ("open README.md", ("paths", "README.md")),
        ("docs at https://example.com/a?b=1, please", ("URLs", "https://example.com/a?b=1")),
        ("order #W2378156 is late", ("ids", "#W2378156")),
        ("commit 3ea751c087f3 broke it", ("ids", "3ea751c087f3")),
        ("ticket ABC-1234", ("ids", "ABC-1234")),
        ("it took 350 ms", ("numbers", "350 ms")),
        ("that is $1,200.50 in all", ("numbers", "$1,200.50")),
        ("ValueError: no such seam", ("errors", "ValueError: no such seam")),
    ],
    ids=str,
)
def test_facts_are_found_by_their_form(text, fact):
    assert fact in fact_keys({"role": "assistant", "content": text})


@pytest.mark.parametrize("text", ["and/or", "he/she said", "it is fine.", "the 3 of us", "read/write access"])
def test_ordinary_words_are_not_facts(text):
    assert not fact_keys({"role": "assistant", "content": text})


def test_requests_and_commands_are_facts_too():
    kinds = fact_keys(
        user("Fix the parser."), call_message(command="pytest -q tests/parser.py\nls", path="src/parser.py")
    )

    assert ("requests", "Fix the parser.") in kinds
    assert ("commands", "pytest -q tests/parser.py") in kinds
    assert ("paths", "src/parser.py") in kinds


def test_the_most_used_fact_comes_first():
    messages = [{"role": "assistant", "content": "a.py"}, *[{"role": "assistant", "content": "b.py"}] * 3]

    assert [fact.text for fact in facts(messages)] == ["b.py", "a.py"]


def test_files_of_one_folder_share_its_name():
    messages = [{"role": "assistant", "content": f"src/app/{name}.py"} for name in ("main", "view", "model")]

    text = ledger(messages, counter=COUNTER, max_tokens=200)

    assert "src/app/{" in text
    assert "src/app/view.py" in with_braces_expanded(text)


def test_facts_in_the_summary_are_left_out():
    messages = [{"role": "assistant", "content": "src/a.py and src/b.py"}]

    assert "b.py" not in ledger(messages, counter=COUNTER, max_tokens=200, summary="src/b.py was fixed")


def test_facts_in_the_view_are_left_out_in_all_their_forms():
    messages = [{"role": "assistant", "content": "src/app/a.py, a.py, src/b.py and 3ea751c087f3"}]
    visible = [{"role": "tool", "tool_call_id": "c", "content": "src/app/a.py: 3 lines"}]

    text = ledger(messages, counter=COUNTER, max_tokens=200, visible=visible)

    assert "a.py" not in text
    assert "src/b.py" in text
    assert "3ea751c087f3" in text


def test_a_path_is_not_repeated_in_a_shorter_form():
    messages = [{"role": "assistant", "content": "src/app/main.py"}] * 3 + [{"role": "assistant", "content": "main.py"}]

    assert ledger(messages, counter=COUNTER, max_tokens=200).count("main.py") == 1


def test_recent_facts_come_before_equally_used_old_ones():
    messages = [
        {"role": "assistant", "content": f"src/old_{number}.py" if number < 300 else f"src/new_{number}.py"}
        for number in range(600)
    ]

    text = ledger(messages, counter=COUNTER, max_tokens=200)

    assert "new_599.py" in text
    assert "old_" not in text


def test_many_paths_do_not_crowd_out_a_request_and_an_id():
    messages = [user("Fix the parser."), {"role": "assistant", "content": "order #W2378156"}]
    messages += [{"role": "assistant", "content": f"src/part_{number}.py"} for number in range(500)]

    text = ledger(messages, counter=COUNTER, max_tokens=150)

    assert "Fix the parser." in text
    assert "#W2378156" in text


def test_the_first_request_comes_before_all_newer_facts():
    messages = [user("Migrate the shop to the new API."), {"role": "assistant", "content": "I start."}]
    for number in range(300):
        messages += [user(f"And page {number}?"), {"role": "assistant", "content": f"see src/part_{number}.py"}]

    text = ledger(messages, counter=COUNTER, max_tokens=100)
    again = ledger([{**user(text), "kind": "summary", "role": "system"}, *messages[3:]], counter=COUNTER, max_tokens=60)

    assert "- requests: Migrate the shop to the new API. |" in text
    assert "- requests: Migrate the shop to the new API. |" in again


def test_facts_in_the_summary_do_not_count_as_the_guaranteed_ones_of_their_kind():
    messages = [
        {"role": "assistant", "content": f"order {number}"} for number in ("#W1000001", "#W1000002", "#W1000003")
    ]
    messages += [{"role": "assistant", "content": f"src/part_{number}.py"} for number in range(500)]

    text = ledger(messages, counter=COUNTER, max_tokens=60, summary="#W1000003 and #W1000002 came late.")

    assert "#W1000001" in text


def test_facts_that_cost_more_together_than_alone_stay_within_the_bound():
    messages = [{"role": "assistant", "content": f"{number} ms"} for number in range(500)]

    assert COUNTER.count(ledger(messages, counter=COUNTER, max_tokens=300)) <= 300


def test_a_message_is_read_once():
    keys = []

    class RecordingDict(dict):
        def get(self, key, default=None):
            keys.append(key)
            return super().get(key, default)

    message, reader = RecordingDict(role="assistant", content="src/a.py"), FactReader()

    first = reader(message)
    keys.clear()

    assert reader(message) == first == (("paths", "src/a.py"),)
    assert keys == []


def test_the_facts_of_an_earlier_ledger_are_carried_over():
    first = ledger(
        [{"role": "assistant", "content": "src/a.py src/b.py #W2378156, 22 miles"}], counter=COUNTER, max_tokens=200
    )
    summary = {"role": "system", "content": f"It went well.\n\n{first}"}

    again = ledger([summary, {"role": "assistant", "content": "src/c.py"}], counter=COUNTER, max_tokens=200)

    assert all(
        fact in with_braces_expanded(again) for fact in ("src/a.py", "src/b.py", "src/c.py", "#W2378156", "22 miles")
    )
    assert without_ledger(summary["content"]) == "It went well."


def test_messages_without_facts_have_no_ledger():
    assert ledger([{"role": "assistant", "content": "Yes."}], counter=COUNTER, max_tokens=200) == ""


def test_files_are_read_from_the_arguments_of_calls():
    assert files_of(call_message(path="a.py", paths=["b.py", 3], other="c.py")) == ["a.py", "b.py"]


@given(conversations(), st.integers(10, 400))
def test_a_ledger_is_within_its_bound_and_the_same_every_time(chat, bound):
    text = ledger(chat, counter=COUNTER, max_tokens=bound)

    assert COUNTER.count(text) <= bound
    assert text == ledger(chat, counter=COUNTER, max_tokens=bound)


@given(st.text(alphabet="aB1f/.-_#@~ \n\t\u2028\x1cpy:ht", max_size=80))
def test_searching_distinct_words_finds_the_same_facts_as_searching_the_text(text):
    expected = {(kind, match[0].strip()) for kind, pattern in KINDS for match in pattern.finditer(text)}

    assert fact_keys({"role": "assistant", "content": text}) == {
        (kind, fact) for kind, fact in expected if len(fact) > 1
    }


@given(conversations())
def test_the_tags_around_a_summary_are_not_facts(chat):
    text = f"They looked at it.\n\n{ledger(chat, counter=counter_for(None), max_tokens=300)}"

    assert {fact.text for fact in facts([summary_message(text)])} == {
        fact.text for fact in facts([{"role": "system", "content": text}])
    }
    assert not facts([{"role": "user", "content": ""}, {"role": "assistant", "content": "<b>bold</b> and </summary>"}])
