"""Tests of rewinding and clearing a conversation."""

import asyncio

from minutebook.errors import FoldConflict, InvalidSetting, VersionConflict
from minutebook.store.base import ConversationStore
from minutebook.testing.contract.samples import (
    cut_fold,
    expect_error,
    scenario,
    summary_fold,
    text_entries,
    texts,
    turns,
)


async def view_texts(store: ConversationStore, conversation: str) -> list[object]:
    """What a view of the whole conversation shows."""
    loaded = await store.load(conversation, last_turns=100, folded=True)
    return [message.get("content") for _, message in loaded.shown()]


async def last_turn_texts(store: ConversationStore, conversation: str) -> list[object]:
    """What a view of the last turn shows."""
    loaded = await store.load(conversation, last_turns=1, folded=True)
    return [message.get("content") for _, message in loaded.shown()]


class RewindContract:
    """Tests of rewinding and clearing."""

    @scenario
    async def test_a_rewind_hides_the_entries_after_it_and_keeps_them_readable(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two", "three", "four"))
        await store.pin("a", 1)
        await store.pin("a", 2)

        header = await store.rewind("a", 2, expected_version=1)
        await store.append("a", text_entries("five"), expected_version=2)

        assert (header.version, header.length) == (2, 4)
        assert await store.header("a") != header
        assert await view_texts(store, "a") == ["one", "two", "five"]
        assert texts((await store.load("a")).entries) == ["one", "two", "three", "four", "five"]
        assert (await store.load("a")).pins == {1}
        assert [stored.fold.reason for stored in await store.folds("a")] == ["rewind"]

    @scenario
    async def test_a_position_that_is_not_a_number_is_refused(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two"))

        await expect_error(InvalidSetting, store.rewind("a", "1"))  # type: ignore[arg-type]

    @scenario
    async def test_a_rewind_returns_the_stored_header(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two"))

        header = await store.rewind("a", 1)

        assert await store.header("a") == header

    @scenario
    async def test_a_cleared_conversation_shows_only_what_follows(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("f", 0, 5))
        await store.purge("a", before=5)
        await store.pin("a", 6)

        await store.clear("a")
        assert await view_texts(store, "a") == []
        await store.append("a", text_entries("new"))

        assert await view_texts(store, "a") == ["new"]

    @scenario
    async def test_a_system_message_after_clear_is_a_leading_one(self, store: ConversationStore) -> None:
        await store.append("a", [*text_entries("old rules", role="system"), *text_entries("one")])
        await store.clear("a")
        await store.append("a", [*text_entries("new rules", role="system"), *text_entries("two", "three")])

        loaded = await store.load("a", last_turns=1, folded=True)

        assert [message["content"] for _, message in loaded.shown()] == ["new rules", "three"]

    @scenario
    async def test_messages_before_a_clear_are_not_leading_in_a_fork(self, store: ConversationStore) -> None:
        await store.append("a", [*text_entries("rules", role="system"), *text_entries("one", "two", "three")])
        await store.clear("a")

        await store.fork("a", "b", at=3)
        await store.append("b", text_entries("four"))

        assert (await store.header("b")).lead == 1
        assert await last_turn_texts(store, "b") == ["rules", "four"]

    @scenario
    async def test_messages_before_a_clear_are_not_leading_after_it_was_undone(self, store: ConversationStore) -> None:
        await store.append("a", [*text_entries("rules", role="system"), *text_entries("one", "two", "three")])
        await store.clear("a")
        (stored,) = await store.folds("a")

        await store.undo_fold("a", stored.fold.id)
        await store.append("a", text_entries("four"), expected_version=3)

        assert await last_turn_texts(store, "a") == ["rules", "four"]

    @scenario
    async def test_messages_before_a_rewind_to_hidden_ones_are_not_leading(self, store: ConversationStore) -> None:
        await store.append("a", [*text_entries("rules", role="system"), *text_entries("one", "two", "three")])
        await store.clear("a")

        await store.rewind("a", 2)
        await store.append("a", text_entries("four"))

        assert await view_texts(store, "a") == ["rules", "one", "four"]
        assert await last_turn_texts(store, "a") == ["rules", "four"]

    @scenario
    async def test_another_version_or_position_is_rejected(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))
        before = await store.load("a")

        await expect_error(VersionConflict, store.rewind("a", 5, expected_version=7))
        await expect_error(VersionConflict, store.clear("a", expected_version=0))
        for position in (-1, 2, 11):
            await expect_error(InvalidSetting, store.rewind("a", position))

        assert await store.load("a") == before

    @scenario
    async def test_a_rewind_to_the_end_changes_nothing(self, store: ConversationStore) -> None:
        await store.append("a", turns(1))
        header = await store.header("a")

        assert await store.rewind("a", header.length) == header
        assert await store.folds("a") == ()

    @scenario
    async def test_a_hidden_call_needs_no_result(self, store: ConversationStore) -> None:
        await store.append("a", turns(2)[:7])
        assert (await store.header("a")).open_calls

        await store.rewind("a", 5)
        await store.append("a", text_entries("something else"))

        assert (await store.header("a")).open_calls == ()
        assert (await view_texts(store, "a"))[-1] == "something else"
        (stored,) = await store.folds("a")
        await expect_error(FoldConflict, store.undo_fold("a", stored.fold.id))

    @scenario
    async def test_a_fold_on_both_sides_is_undone(self, store: ConversationStore) -> None:
        await store.append("a", text_entries(*map(str, range(6))))
        await store.add_fold("a", summary_fold("inner", 0, 4))
        await store.add_fold("a", summary_fold("outer", 0, 5))

        await store.rewind("a", 2)

        assert await view_texts(store, "a") == ["0", "1"]

    @scenario
    async def test_a_rewind_to_messages_that_a_fold_leaves_out_shows_these(self, store: ConversationStore) -> None:
        await store.append("a", text_entries(*map(str, range(6))))
        for fold in (summary_fold("summary", 0, 1), cut_fold("inner", 2, 3), cut_fold("outer", 1, 3)):
            await store.add_fold("a", fold)

        await store.rewind("a", 5)
        assert (await view_texts(store, "a"))[1:] == ["3", "4"]
        await store.rewind("a", 3)
        assert (await view_texts(store, "a"))[1:] == ["1", "2"]
        await store.append("a", text_entries("new"))
        await store.rewind("a", 6)
        assert (await view_texts(store, "a"))[1:] == ["1", "2"]
        await store.rewind("a", 2)
        assert (await view_texts(store, "a"))[1:] == ["1"]
        await store.rewind("a", 1)
        assert len(await view_texts(store, "a")) == 1

    @scenario
    async def test_a_fork_at_messages_that_a_fold_leaves_out_shows_these(self, store: ConversationStore) -> None:
        await store.append("a", text_entries(*map(str, range(4))))
        await store.add_fold("a", cut_fold("cut", 0, 2))

        await store.fork("a", "b", at=2)
        await store.fork("a", "c", at=3)

        assert await view_texts(store, "b") == ["0", "1"]
        assert await view_texts(store, "c") == ["2"]

    @scenario
    async def test_a_fold_over_purged_entries_is_shown_again(self, store: ConversationStore) -> None:
        await store.append("a", text_entries(*map(str, range(6))))
        await store.add_fold("a", summary_fold("f", 0, 2))
        await store.purge("a", before=2)
        await store.add_fold("a", summary_fold("g", 0, 4))
        await store.append("a", text_entries("more"))

        await store.rewind("a", 3)

        assert await view_texts(store, "a") == ["[f: entries 0 to 2]", "2"]

    @scenario
    async def test_undoing_a_rewind_shows_the_entries_again(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two", "three"))
        await store.rewind("a", 1)
        (stored,) = await store.folds("a")

        await store.undo_fold("a", stored.fold.id)

        assert await view_texts(store, "a") == ["one", "two", "three"]

    @scenario
    async def test_one_of_two_concurrent_rewinds_wins(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two", "three"))

        async def rewind(to: int) -> bool:
            try:
                await store.rewind("a", to, expected_version=1)
            except VersionConflict:
                return False
            return True

        assert sorted(await asyncio.gather(rewind(1), rewind(2))) == [False, True]
        assert (await store.header("a")).version == 2

    @scenario
    async def test_a_rewound_conversation_is_exported_and_imported(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two", "three"))
        await store.rewind("a", 1)
        await store.append("a", text_entries("four"))
        lines = [line async for line in store.export("a")]

        await store.for_tenant("other").import_(lines)

        assert await view_texts(store.for_tenant("other"), "a") == ["one", "four"]

    @scenario
    async def test_an_imported_conversation_has_the_system_messages_after_a_clear(
        self, store: ConversationStore
    ) -> None:
        await store.append("a", [*text_entries("old rules", role="system"), *text_entries("one")])
        await store.clear("a")
        await store.append("a", [*text_entries("new rules", role="system"), *text_entries("two", "three")])
        other = store.for_tenant("other")

        await other.import_([line async for line in store.export("a")])

        assert await last_turn_texts(other, "a") == ["new rules", "three"]

    @scenario
    async def test_a_hidden_call_without_result_is_exported_and_imported(self, store: ConversationStore) -> None:
        await store.append("a", turns(2)[:7])
        await store.rewind("a", 5)
        lines = [line async for line in store.export("a")]
        other = store.for_tenant("other")

        await other.import_(lines)
        await other.import_(lines)
        await other.append("a", text_entries("something else"))

        assert (await view_texts(other, "a"))[-1] == "something else"
        (stored,) = await other.folds("a")
        await expect_error(FoldConflict, other.undo_fold("a", stored.fold.id))

    @scenario
    async def test_an_append_with_the_version_before_a_rewind_is_rejected(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("one", "two"))
        await store.rewind("a", 1)

        await expect_error(VersionConflict, store.append("a", text_entries("late"), expected_version=1))
