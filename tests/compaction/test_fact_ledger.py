import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import counter_for
from minutebook.compaction import facts, ledger
from minutebook.compaction.fact_ledger import KINDS, Reading, files_of, spelled_out, without_ledger
from tests.strategies import conversations

COUNTER = counter_for(None)


def user(text):
    return {"role": "user", "content": text}


def calling(**arguments):
    function = {"name": "run", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def found(*messages):
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
def test_facts_are_known_by_their_form(text, fact):
    assert fact in found({"role": "assistant", "content": text})


@pytest.mark.parametrize("text", ["and/or", "he/she said", "it is fine.", "the 3 of us", "read/write access"])
def test_ordinary_words_are_no_facts(text):
    assert not found({"role": "assistant", "content": text})


def test_requests_and_commands_are_facts_too():
    kinds = found(user("Mend the seam."), calling(command="pytest -q tests/seam.py\nls", path="src/seam.py"))

    assert ("requests", "Mend the seam.") in kinds
    assert ("commands", "pytest -q tests/seam.py") in kinds
    assert ("paths", "src/seam.py") in kinds


def test_what_is_used_most_comes_first():
    said = [{"role": "assistant", "content": "a.py"}, *[{"role": "assistant", "content": "b.py"}] * 3]

    assert [fact.text for fact in facts(said)] == ["b.py", "a.py"]


def test_files_of_one_folder_share_its_name():
    said = [{"role": "assistant", "content": f"src/app/{name}.py"} for name in ("main", "view", "model")]

    written = ledger(said, counter=COUNTER, max_tokens=200)

    assert "src/app/{" in written
    assert "src/app/view.py" in spelled_out(written)


def test_what_the_summary_says_already_is_left_out():
    said = [{"role": "assistant", "content": "src/a.py and src/b.py"}]

    assert "b.py" not in ledger(said, counter=COUNTER, max_tokens=200, said="src/b.py was mended")


def test_what_the_view_still_names_is_left_out_in_all_its_forms():
    said = [{"role": "assistant", "content": "src/app/a.py, a.py, src/b.py and 3ea751c087f3"}]
    kept = [{"role": "tool", "tool_call_id": "c", "content": "src/app/a.py: 3 lines"}]

    written = ledger(said, counter=COUNTER, max_tokens=200, kept=kept)

    assert "a.py" not in written
    assert "src/b.py" in written
    assert "3ea751c087f3" in written


def test_a_path_of_which_the_longer_form_is_there_is_not_written_twice():
    said = [{"role": "assistant", "content": "src/app/main.py"}] * 3 + [{"role": "assistant", "content": "main.py"}]

    assert ledger(said, counter=COUNTER, max_tokens=200).count("main.py") == 1


def test_what_was_named_lately_comes_before_what_was_named_as_often_long_ago():
    said = [
        {"role": "assistant", "content": f"src/old_{number}.py" if number < 300 else f"src/new_{number}.py"}
        for number in range(600)
    ]

    written = ledger(said, counter=COUNTER, max_tokens=200)

    assert "new_599.py" in written
    assert "old_" not in written


def test_many_paths_leave_a_request_and_an_id_their_room():
    said = [user("Mend the seam."), {"role": "assistant", "content": "order #W2378156"}]
    said += [{"role": "assistant", "content": f"src/part_{number}.py"} for number in range(500)]

    written = ledger(said, counter=COUNTER, max_tokens=150)

    assert "Mend the seam." in written
    assert "#W2378156" in written


def test_what_is_said_already_takes_no_room_from_its_kind():
    said = [{"role": "assistant", "content": f"order {number}"} for number in ("#W1000001", "#W1000002", "#W1000003")]
    said += [{"role": "assistant", "content": f"src/part_{number}.py"} for number in range(500)]

    written = ledger(said, counter=COUNTER, max_tokens=60, said="#W1000003 and #W1000002 came late.")

    assert "#W1000001" in written


def test_facts_that_cost_more_beside_each_other_are_within_the_bound_too():
    said = [{"role": "assistant", "content": f"{number} ms"} for number in range(500)]

    assert COUNTER.count(ledger(said, counter=COUNTER, max_tokens=300)) <= 300


def test_a_message_is_read_once_however_often_it_is_asked_for():
    asked = []

    class Watched(dict):
        def get(self, key, default=None):
            asked.append(key)
            return super().get(key, default)

    message, read = Watched(role="assistant", content="src/a.py"), Reading()

    first = read(message)
    asked.clear()

    assert read(message) == first == (("paths", "src/a.py"),)
    assert asked == []


def test_an_earlier_ledger_is_carried_on():
    first = ledger(
        [{"role": "assistant", "content": "src/a.py src/b.py #W2378156, 22 miles"}], counter=COUNTER, max_tokens=200
    )
    summary = {"role": "system", "content": f"It went well.\n\n{first}"}

    again = ledger([summary, {"role": "assistant", "content": "src/c.py"}], counter=COUNTER, max_tokens=200)

    assert all(fact in spelled_out(again) for fact in ("src/a.py", "src/b.py", "src/c.py", "#W2378156", "22 miles"))
    assert without_ledger(summary["content"]) == "It went well."


def test_where_nothing_is_named_there_is_no_ledger():
    assert ledger([{"role": "assistant", "content": "Yes."}], counter=COUNTER, max_tokens=200) == ""


def test_files_are_read_from_the_arguments_of_calls():
    assert files_of(calling(path="a.py", paths=["b.py", 3], other="c.py")) == ["a.py", "b.py"]


@given(conversations(), st.integers(10, 400))
def test_a_ledger_is_within_its_bound_and_the_same_every_time(chat, bound):
    written = ledger(chat, counter=COUNTER, max_tokens=bound)

    assert COUNTER.count(written) <= bound
    assert written == ledger(chat, counter=COUNTER, max_tokens=bound)


@given(st.text(alphabet="aB1f/.-_#@~ \n\t\u2028\x1cpy:ht", max_size=80))
def test_reading_each_word_once_finds_what_reading_the_text_finds(text):
    expected = {(kind, one[0].strip()) for kind, pattern in KINDS for one in pattern.finditer(text)}

    assert found({"role": "assistant", "content": text}) == {(kind, fact) for kind, fact in expected if len(fact) > 1}
