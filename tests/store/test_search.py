"""Words, the query language, and stems."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.errors import InvalidQuery, InvalidSetting
from minutebook.store.search import Alternative, Term, parse_query
from minutebook.store.url import open_store
from minutebook.store.words import MAX_WORD_CHARACTERS, word_spans, words
from minutebook.testing.contract.samples import text_entries
from tests.store.backends import BACKENDS, each_backend

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Order 48213 is LATE!", ["order", "48213", "is", "late"]),
        ("snake_case and kebab-case", ["snake", "case", "and", "kebab", "case"]),
        ("Straße STRASSE İstanbul \u0131s\u0131", ["strasse", "strasse", "istanbul", "isi"]),
        ("ﬁne cafe\u0301 e\u0301t", ["fine", "cafe", "et"]),
        ("日本語のtext", ["日", "本", "語", "の", "text"]),
        ("ｶﾞ か\u3099", ["ガ", "が"]),
        ("приём 한국어", ["прием", "한", "국", "어"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("x" * 65, []),
        ("x" * 64, ["x" * 64]),
        ("…\0\ud800 🙂", []),
        ("soft\u00adhyphen", ["softhyphen"]),
    ],
    ids=range(12),
)
def test_a_word_is_a_run_of_letters_and_digits_without_case_and_accents(text, found):
    assert words(text) == found


@pytest.mark.fuzz
@given(ANY_TEXT)
def test_a_word_is_a_word_of_itself_and_no_syntax_of_an_index(text):
    for word in words(text):
        assert words(word) == [word]
        assert len(word) <= MAX_WORD_CHARACTERS
        assert not set(word) & set(" \t\n'\"\\:*&|!()<>\ue000\ue001\ue002\ue003")


@pytest.mark.fuzz
@given(ANY_TEXT)
def test_spans_are_in_order_and_within_the_text(text):
    spans = list(word_spans(text))

    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert spans == sorted(spans)


def test_or_separates_alternatives():
    assert parse_query('late "Big Order" -can* OR x') == (
        Alternative((Term(("late",)), Term(("big", "order"), is_quoted=True)), (Term(("can",), is_prefix=True),)),
        Alternative((Term(("x",)),), ()),
    )


@pytest.mark.fuzz
@given(st.text(alphabet=st.sampled_from('ab é日"-*ORN():+ '), max_size=20))
def test_a_query_is_parsed_or_refused(query):
    try:
        alternatives = parse_query(query)
    except InvalidQuery as error:
        assert error.problem in str(error)
    else:
        assert all(alternative.required for alternative in alternatives)


@pytest.mark.parametrize("backend", each_backend("memory", "postgres", "redis", "sqlite", "encrypted-memory"))
def test_a_language_finds_other_forms_of_a_word(backend, tmp_path):
    async def scenario():
        async with BACKENDS[backend](tmp_path, search="english") as store:
            await store.append("a", text_entries("the parcels were delivered", "a parcel", "deliver running"))
            for query, positions in {
                "parcel": [1, 0],
                "delivering": [2, 0],
                '"parcel"': [1],
                "parcel*": [1, 0],
                "parcels -deliver": [1],
                '"were delivered"': [0],
                "runs": [2],
            }.items():
                hits = (await store.search(query)).items
                assert [hit.position for hit in hits] == positions, query
                assert all(hit.highlights for hit in hits)

    asyncio.run(scenario())


def test_an_unknown_language_is_refused():
    with pytest.raises(InvalidSetting, match="english"):
        open_store("memory:", search="klingon")
