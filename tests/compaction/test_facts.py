import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import counter_for, facts, ledger
from minutebook.compaction.facts import HEAD, files_of, spelled_out, without_ledger
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

    assert COUNTER.count(written) <= max(bound, COUNTER.count(HEAD))
    assert written == ledger(chat, counter=COUNTER, max_tokens=bound)
