"""The index of texts against a plain search."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.lab.uses import TextIndex, names_of, other_names_of

TEXT = st.text(alphabet="ab_1 ./\n-é", max_size=20)


@given(st.lists(TEXT, max_size=6), st.lists(TEXT.filter(bool), min_size=1, max_size=4))
def test_finds_the_same_texts_as_a_plain_search(texts: list[str], strings: list[str]) -> None:
    index = TextIndex(texts)

    for string in strings:
        assert index.texts_with(string) == [number for number, text in enumerate(texts) if string in text]


def test_a_part_of_a_word_is_found() -> None:
    index = TextIndex(["call handle_failure(x)", "src/app.py", "handle", "map.pyi"])

    assert index.texts_with("le_fail") == [0]
    assert index.texts_with("app.py") == [1]
    assert index.texts_with("ap.py") == [3]
    assert index.texts_with("e") == [0, 2]


@pytest.mark.parametrize("unit", ["a-", "aB", "a.", "a"])
def test_encoded_data_takes_no_more_time_than_other_text(unit: str) -> None:
    text = f"see src/app.py\n{unit * 20_000}"

    started = time.process_time()
    names, other_names = names_of(text), other_names_of(text)

    assert time.process_time() - started < 0.5  # a search of all text takes seconds or minutes
    assert names == ["src/app.py"]
    assert other_names == ["src/app.py"]
