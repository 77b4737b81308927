"""Tests of load: whole turns, whole exchanges, and only the part that a view needs."""

import sys

from minutebook.errors import ConversationNotFound, InvalidSetting, MissingSetting
from minutebook.history.view import view_of
from minutebook.record.entry import ConversationEntry
from minutebook.store.base import ConversationStore
from minutebook.testing.contract.samples import expect_error, scenario, summary_fold, text_entries, texts, turns


class LoadContract:
    """Tests of load."""

    @scenario
    async def test_the_last_turns_begin_with_a_user_message(self, store: ConversationStore) -> None:
        entries = [*text_entries("rules", role="system"), *turns(4)]
        await store.append("a", entries)

        for count, start in ((0, 21), (1, 16), (2, 11), (3, 6), (4, 0), (9, 0)):
            loaded = await store.load("a", last_turns=count)
            assert (loaded.start, loaded.entries) == (start, tuple(entries[start:]))
            assert list(loaded.positions) == list(range(start, 21))

    @scenario
    async def test_without_turns_the_last_turns_are_everything(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1", "2", role="assistant"))

        assert len((await store.load("a", last_turns=1)).entries) == 2

    @scenario
    async def test_the_last_messages_never_begin_within_an_exchange(self, store: ConversationStore) -> None:
        entries = turns(2)
        await store.append("a", entries)

        starts = [(await store.load("a", last_messages=count)).start for count in range(12)]
        assert starts == [10, 9, 6, 6, 6, 5, 4, 1, 1, 1, 0, 0]

    @scenario
    async def test_a_reader_continues_where_it_stopped(self, store: ConversationStore) -> None:
        entries = turns(3)
        await store.append("a", entries)

        seen: list[ConversationEntry] = []
        while part := (await store.load("a", since=len(seen), limit=4)).entries:
            assert len(part) <= 4
            seen += part
        assert seen == entries
        assert (await store.load("a", since=99)).entries == ()
        assert (await store.load("a", since=13)).entries == tuple(entries[13:])

    @scenario
    async def test_a_number_greater_than_the_length_selects_everything(self, store: ConversationStore) -> None:
        await store.append("a", turns(1))

        for number in (99, 2**31 - 1, 2**31, sys.maxsize, 10**30):
            assert len((await store.load("a", last_turns=number)).entries) == 5
            assert len((await store.load("a", last_messages=number)).entries) == 5
            assert len((await store.load("a", since=1, limit=number)).entries) == 4
            assert (await store.load("a", since=number, limit=number)).entries == ()

    @scenario
    async def test_only_one_part_can_be_selected(self, store: ConversationStore) -> None:
        await store.append("a", turns(1))

        await expect_error(InvalidSetting, store.load("a", last_turns=1, last_messages=1))
        await expect_error(InvalidSetting, store.load("a", last_turns=1, since=1))
        await expect_error(InvalidSetting, store.load("a", last_turns=-1))
        await expect_error(MissingSetting, store.load("a", limit=3))
        await expect_error(ConversationNotFound, store.load("unknown"))

    @scenario
    async def test_a_folded_load_has_the_entries_that_a_view_shows(self, store: ConversationStore) -> None:
        entries = [*text_entries("rules", role="system"), *turns(6)]
        await store.append("a", entries)
        await store.add_fold("a", summary_fold("one", 1, 6))
        await store.add_fold("a", summary_fold("two", 1, 16))
        await store.add_fold("a", summary_fold("three", 21, 26))

        unfolded, part = await store.load("a"), await store.load("a", folded=True)

        assert list(part.positions) == [0, *range(16, 21), *range(26, 31)]
        assert [fold.id for fold in part.folds] == [fold.id for fold in unfolded.folds] == ["two", "three"]
        expected = view_of(unfolded.messages, folds=unfolded.folds).messages
        assert view_of(part.transcript()).messages == view_of(unfolded.transcript()).messages == expected
        assert [position for position, _ in part.shown()] == [0, None, *range(16, 21), None, *range(26, 31)]

    @scenario
    async def test_folded_last_turns_have_the_lead_the_pins_and_all_folds(self, store: ConversationStore) -> None:
        await store.append("a", [*text_entries("rules", role="system"), *turns(6)])
        await store.add_fold("a", summary_fold("early", 1, 6))
        await store.pin("a", 9)
        await store.pin("a", 2)

        part = await store.load("a", last_turns=1, folded=True)

        assert list(part.positions) == [0, *range(7, 10), *range(26, 31)]
        assert part.start == 26
        assert [fold.id for fold in part.folds] == ["early"]
        assert part.pins == {2, 9}
        assert part.transcript().pins == {4}

    @scenario
    async def test_a_part_has_the_folds_that_overlap_it(self, store: ConversationStore) -> None:
        await store.append("a", turns(4))
        for number in range(4):
            await store.add_fold("a", summary_fold(f"f{number}", number * 5, number * 5 + 5))

        assert [fold.id for fold in (await store.load("a", last_turns=2)).folds] == ["f2", "f3"]
        assert [fold.id for fold in (await store.load("a", since=6, limit=5)).folds] == ["f1", "f2"]
        assert (await store.load("a", last_turns=2, folded=True)).entries == ()

    @scenario
    async def test_changing_loaded_messages_does_not_change_the_record(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        await store.add_fold("a", summary_fold("f", 0, 1, "before"))
        for message in [*(await store.load("a")).messages, *(await store.load("a")).folds[0].shown]:
            try:
                message["content"] = "changed"  # type: ignore[index]
            except TypeError:
                continue

        loaded = await store.load("a")
        assert texts(loaded.entries) == ["1"]
        assert loaded.folds[0].shown[0]["content"] == "before"
