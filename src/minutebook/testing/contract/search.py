"""Tests of search. `QUERIES` is one list of queries with their hits, for every store."""

from datetime import timedelta
from typing import Final

from minutebook.errors import ConversationNotFound, InvalidQuery, InvalidSetting
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import SearchHit
from minutebook.testing.contract.samples import (
    SOME_TIME,
    entries_of,
    expect_error,
    scenario,
    summary_fold,
    text_entries,
)

MESSAGES: Final[tuple[Message, ...]] = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Order 48213 is LATE"},
    {"role": "assistant", "content": "The late order: a kebab-case name, don't_worry"},
    {"role": "user", "content": "bestellung spät, naïve CAFÉ Straße Łódź"},
    {"role": "user", "content": "日本語のテキストです。ภาษาไทยง่าย 한국어"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find_parcel", "arguments": '{"city": "Zürich"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "parcels were delivered to Zürich"},
    {"role": "user", "content": [{"type": "text", "text": "an ordinary order, ordered twice: order order"}]},
    {"role": "user", "content": "\N{FULLWIDTH LATIN CAPITAL LETTER F}ine \ufb01ne cafe\u0301 e\u0301tude हिन्दी"},
)
QUERIES: Final[dict[str, set[int]]] = {
    "order": {1, 2, 7},
    "late ORDER": {1, 2},
    '"late order"': {2},
    '"order late"': set(),
    "48213": {1},
    "SPÄT": {3},
    "spat": {3},
    "lodz": {3},
    "STRASSE": {3},
    "cafe": {3, 8},
    "cafe\u0301": {3, 8},
    "étude": {8},
    "fine": {8},
    "हिन्दी": {8},
    "order nothing": set(),
    "order -late": {7},
    'order -"late order"': {1, 7},
    "order -late!": {7},
    "ord*": {1, 2, 7},
    "ordin*": {7},
    '"ordered tw"*': {7},
    "spät OR 48213": {1, 3},
    "late is OR spät bestellung OR nothing": {1, 3},
    "kebab-case": {2},
    "case-kebab": set(),
    "kebab-ca*": {2},
    "don't": {2},
    "日本": {4},
    "本語の": {4},
    "日語": set(),
    "テキスト": {4},
    "ษาไท": {4},
    "국어": {4},
    "zurich": {5, 6},
    "find_parcel": {5},
    "city": {5},
    "parcel*": {5, 6},
    "parcel": {5},
    '"order order"': {7},
    '" OR "': set(),
}
"""Query → the positions of `MESSAGES` that it finds."""
UNSUPPORTED: Final = (
    *("", " ", "…!", "\0", "\ud800", "-late", '"…"'),
    *(
        "late AND order",
        "NOT late",
        "late NEAR order",
        "(late)",
        "late OR",
        "OR late",
        "late OR OR order",
        "late OR -order",
    ),
    *("+late", "~late", "^late", "role:user", "l*te", "a*", '"late', "http://example.com", "--late", "[late]"),
)


async def search_all(
    store: ConversationStore, query: str, limit: int, conversation: str | None = None
) -> list[SearchHit]:
    items: list[SearchHit] = []
    cursor = None
    while True:
        page = await store.search(query, conversation=conversation, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items


def hit_positions(hits: list[SearchHit]) -> set[tuple[str, int]]:
    assert len(hits) == len({(hit.conversation, hit.position) for hit in hits})
    return {(hit.conversation, hit.position) for hit in hits}


class SearchContract:
    """Tests of search."""

    @scenario
    async def test_every_store_finds_the_same(self, store: ConversationStore) -> None:
        await store.append("a", entries_of(MESSAGES), recipient="alice")
        await store.append("b", text_entries("a late order"))

        for query, positions in QUERIES.items():
            hits = await search_all(store, query, 100, "a")
            assert [hit.position for hit in hits] == sorted(positions, reverse=True), query
            for hit in hits:
                assert hit.highlights, query
                assert hit.entry == (await store.load("a", since=hit.position, limit=1)).entries[0]
        assert hit_positions(await search_all(store, "order", 1)) == {("a", 1), ("a", 2), ("a", 7), ("b", 0)}
        assert {hit.conversation for hit in (await store.search("order", recipient="alice")).items} == {"a"}
        assert (await store.search("order", conversation="b", recipient="alice")).items == ()
        await expect_error(ConversationNotFound, store.search("order", conversation="unknown"))

    @scenario
    async def test_unsupported_syntax_is_an_error_that_says_what_is_supported(self, store: ConversationStore) -> None:
        await store.append("a", entries_of(MESSAGES))

        for query in UNSUPPORTED:
            error = await expect_error(InvalidQuery, store.search(query))
            assert "prefix*" in str(error), query

    @scenario
    async def test_role_and_time_select_entries(self, store: ConversationStore) -> None:
        await store.append("a", entries_of(MESSAGES))
        later = SOME_TIME + timedelta(days=1)

        found = await store.search("order", roles=["assistant"])
        assert [hit.position for hit in found.items] == [2]
        found = await store.search("zurich OR order", roles=["assistant", "tool"])
        assert [hit.position for hit in found.items] == [6, 5, 2]
        assert len((await store.search("order", since=SOME_TIME, until=later)).items) == 3
        assert (await store.search("order", since=later)).items == ()
        assert (await store.search("order", until=SOME_TIME)).items == ()
        await expect_error(InvalidSetting, store.search("order", roles=["robot"]))
        await expect_error(InvalidSetting, store.search("order", since=SOME_TIME.replace(tzinfo=None)))

    @scenario
    async def test_a_snippet_shows_the_matches(self, store: ConversationStore) -> None:
        long = "first words\n" + "filler " * 1000 + "the LATE\n\nordér came; an order " + "filler " * 1000
        await store.append("a", text_entries(long, "日本語のテキスト", "teams of tea"))

        late, japanese = (await store.search("late order OR 本語")).items[::-1]
        (tea,) = (await store.search("tea")).items

        assert [late.snippet[start:stop] for start, stop in late.highlights] == ["LATE", "ordér", "order"]
        assert late.snippet.startswith("…filler")
        assert len(late.snippet) < 300
        assert "\n" not in late.snippet
        assert [japanese.snippet[start:stop] for start, stop in japanese.highlights] == ["本語"]
        assert tea.highlights == ((9, 12),)

    @scenario
    async def test_summaries_of_active_folds_are_found(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("zero", "one", "two", "three"))
        await store.add_fold("a", summary_fold("f1", 0, 1, "summary with walnuts"))
        await store.add_fold("a", summary_fold("f2", 2, 3, "summary with hazelnuts"))
        await store.fork("a", "b")

        (hit,) = (await store.search("hazelnuts", conversation="a")).items
        assert (hit.position, hit.fold and hit.fold.id, hit.snippet) == (2, "f2", "summary with hazelnuts")
        assert [hit.fold and hit.fold.id for hit in await search_all(store, "summary", 1, "a")] == ["f2", "f1"]
        assert [hit.conversation for hit in (await store.search("walnuts", conversation="b")).items] == ["b"]
        await store.add_fold("a", summary_fold("f3", 0, 2, "peanuts"), replacing=["f1"])
        assert (await store.search("walnuts", conversation="a")).items == ()
        await store.undo_fold("a", "f3")
        assert (await store.search("peanuts")).items == ()
        assert [hit.position for hit in (await store.search("walnuts", conversation="a")).items] == [0]
        await store.purge("a", before=1)
        assert [hit.position for hit in (await store.search("walnuts", conversation="a")).items] == [0]
        await store.erase(conversation="a")
        assert (await store.search("walnuts OR hazelnuts")).items == ()

    @scenario
    async def test_a_large_entry_is_found_by_all_its_words(self, store: ConversationStore) -> None:
        large = " ".join(f"unique{number} common" for number in range(20_000))
        await store.append("a", text_entries(large, "common unique7", "common"))

        for query, positions in {
            "unique7 unique19999": [0],
            '"unique19999 common"': [0],
            '"common unique7"': [1, 0],
            '"common unique19999 common"': [0],
            '"unique19999 unique7"': [],
            "common -unique19999": [2, 1],
            "common -nothing": [2, 1, 0],
        }.items():
            assert [hit.position for hit in (await store.search(query)).items] == positions, query

    @scenario
    async def test_a_query_is_matched_against_each_entry_of_one_append(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("oak elm", "oak", "elm ash", *["pine"] * 60, "oak yew"))

        for query, positions in {
            "oak": [63, 1, 0],
            "oak -elm": [63, 1],
            "oak ash": [],
            "oak OR ash": [63, 2, 1, 0],
            "oak -yew": [1, 0],
        }.items():
            for limit in (1, 2, 100):
                assert [hit.position for hit in await search_all(store, query, limit)] == positions, query

    @scenario
    async def test_trimmed_and_purged_words_are_not_found_but_their_neighbours_are(
        self, store: ConversationStore
    ) -> None:
        call: Message = {
            "role": "assistant",
            "content": "look",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        }
        result: Message = {"role": "tool", "tool_call_id": "c", "content": "a walnut " + "and more " * 30}
        await store.append("a", [*text_entries("first oak"), *entries_of([call, result]), *text_entries("last oak")])

        await store.trim("a", {2: {**result, "content": "trimmed"}})
        assert (await store.search("walnut")).items == ()
        assert [hit.position for hit in await search_all(store, "oak OR trimmed OR look", 1)] == [3, 2, 1, 0]
        await store.add_fold("a", summary_fold("f", 0, 3))
        await store.purge("a", before=3)
        assert (await store.search("trimmed OR look OR first")).items == ()
        assert [hit.position for hit in (await store.search("oak")).items] == [3]

    @scenario
    async def test_newest_entries_of_a_conversation_are_found_first(self, store: ConversationStore) -> None:
        await store.append("a", text_entries(*["word"] * 9))

        assert [hit.position for hit in await search_all(store, "word", 4)] == list(reversed(range(9)))

    @scenario
    async def test_an_entry_that_forks_share_is_found_once(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("shared word", "word"))
        await store.fork("a", "b", at=1)
        await store.append("b", text_entries("another word"))
        await store.fork("b", "c")

        assert hit_positions(await search_all(store, "word", 1)) == {("a", 0), ("a", 1), ("b", 1)}
        assert hit_positions(await search_all(store, "word", 1, "b")) == {("b", 0), ("b", 1)}
        assert hit_positions(await search_all(store, "word", 1, "c")) == {("c", 0), ("c", 1)}

    @scenario
    async def test_purged_entries_are_not_found(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("word", "word", "word"))
        await store.fork("a", "b", at=1)
        await store.add_fold("a", summary_fold("f", 0, 2))
        await store.purge("a", before=2)

        assert hit_positions(await search_all(store, "word", 5)) == {("a", 2)}
        assert hit_positions(await search_all(store, "word", 5, "a")) == {("a", 2)}
        assert hit_positions(await search_all(store, "word", 5, "b")) == {("b", 0)}
