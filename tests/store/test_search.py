import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import InvalidSetting
from minutebook.store.search import query_words, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Order 48213 is LATE!", {"order", "48213", "is", "late"}),
        ("snake_case and kebab-case", {"snake", "case", "and", "kebab"}),
        ("Straße STRASSE", {"strasse"}),
        ("ﬁne cafe\u0301", {"fine", "café"}),
        ("日本語のtext", {"日", "本", "語", "の", "text"}),
        ("приём 한국어", {"приём", "한국어"}),
        ("x" * 65, set()),
        ("x" * 64, {"x" * 64}),
        ("…\0\ud800 🙂", set()),
    ],
    ids=range(9),
)
def test_a_word_is_a_run_of_letters_and_digits(text, found):
    assert words(text) == found


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
def test_a_text_is_found_by_any_of_its_words(text):
    for word in words(text):
        assert words(word) == {word}
        assert word.isascii() is False or word.isalnum()
        assert " " not in word
        assert '"' not in word


def test_a_query_has_at_least_one_word():
    assert query_words("b a B") == ["a", "b"]
    with pytest.raises(InvalidSetting, match="at least one word"):
        query_words("…")
