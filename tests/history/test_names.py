"""The list of names of messages that a budget leaves out."""

import time

import pytest

from minutebook import TokenBudgetManager, Transcript, view_of
from minutebook.history.names import MessageNames, frequent_names
from minutebook.testing import coding_session


def test_the_list_has_names_of_left_out_messages_and_stays_within_its_share() -> None:
    record = Transcript(coding_session(seed=1, turns=8))
    view = view_of(record, TokenBudgetManager(6_000, names=0.05))

    (name_list,) = [
        message for message, origin in zip(view.curated, view.curated.origins, strict=True) if origin is None
    ]
    listed = set(name_list["content"].partition(": ")[2].removesuffix("]").split())
    names = MessageNames(record)
    unchanged = {id(message) for message in view.curated}
    left_out = frozenset().union(*(names.within(message) for message in record if id(message) not in unchanged))
    assert len(listed) > 10
    assert listed <= left_out
    assert record.counter.message(name_list) <= 0.05 * 6_000
    assert view.tokens <= 6_000


def test_the_list_is_explained_as_an_added_message() -> None:
    record = Transcript(coding_session(seed=1, turns=8))

    explanation = view_of(record, TokenBudgetManager(6_000, names=0.05)).explain()

    assert [line.reason for line in explanation.lines if line.index is None] == ["not in the record"]


def test_a_list_that_would_be_too_short_is_not_added() -> None:
    record = Transcript(coding_session(seed=1, turns=8))

    assert view_of(record, TokenBudgetManager(600, names=0.05)).curated.origins.count(None) == 0


@pytest.mark.parametrize("unit", ["a-", "aB3", "a.", "a_", "a/"])
def test_encoded_data_takes_no_more_time_than_other_text_and_has_no_names(unit: str) -> None:
    data = f"9{unit * (20_000 // len(unit))}"
    names = MessageNames(Transcript([{"role": "user", "content": f"see src/app.py\n{data}"}]))

    started = time.process_time()
    found = names.of(0)
    frequent = frequent_names(data, 600)

    assert time.process_time() - started < 0.5  # a search of the whole run takes seconds or minutes
    assert set(found) == {"src/app.py", "app.py"}
    assert not frequent


def test_a_name_that_is_part_of_a_listed_path_is_not_listed() -> None:
    fill = "some words without any name " * 200
    record = Transcript([
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": f"The error is in lib/io/names.py. {fill}"},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": f"I changed lib/io/names.py; io/names.py is imported. {fill}"},
        {"role": "user", "content": f"Go on. {fill}"},
    ])  # fmt: skip

    view = view_of(record, TokenBudgetManager(2_200, names=0.1))
    (text,) = [
        message["content"] for message, origin in zip(view.curated, view.curated.origins, strict=True) if origin is None
    ]

    assert text.partition(": ")[2].removesuffix("]").split() == ["lib/io/names.py"]
