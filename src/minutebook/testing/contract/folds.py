"""Tests of folds, pins, purges and forks."""

import asyncio

from minutebook.errors import ConversationNotFound, FoldConflict, FoldNotFound, InvalidSetting, VersionConflict
from minutebook.record.fold import Fold
from minutebook.store.base import ConversationStore
from minutebook.testing.contract.samples import expect_error, scenario, summary_fold, text_entries, texts, turn, turns


async def active_fold_ids(store: ConversationStore, conversation: str) -> list[str]:
    return [fold.id for fold in (await store.load(conversation, since=0)).folds]


class FoldContract:
    """Tests of folds and pins."""

    @scenario
    async def test_a_fold_changes_neither_record_nor_version(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))
        before = await store.load("a")

        stored = await store.add_fold("a", summary_fold("f", 0, 5))

        after = await store.load("a")
        assert (after.entries, after.conversation) == (before.entries, before.conversation)
        assert after.folds == (stored.fold,)
        assert stored.fold == summary_fold("f", 0, 5)
        assert stored.undone_at is None

    @scenario
    async def test_undoing_a_fold_activates_the_folds_it_had_replaced(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("inner", 0, 5))
        await store.add_fold("a", summary_fold("middle", 0, 10), replacing=["inner"])
        await store.add_fold("a", summary_fold("outer", 0, 15), replacing=["middle"])
        assert await active_fold_ids(store, "a") == ["outer"]

        undone = await store.undo_fold("a", "outer")
        assert await active_fold_ids(store, "a") == ["middle"]
        assert undone.undone_at is not None
        assert await store.undo_fold("a", "outer") == undone
        await store.undo_fold("a", "inner")
        assert await active_fold_ids(store, "a") == ["middle"]
        await store.undo_fold("a", "middle")
        assert await active_fold_ids(store, "a") == []
        assert [stored.fold.id for stored in await store.folds("a")] == ["inner", "middle", "outer"]

    @scenario
    async def test_undoing_a_covered_fold_does_not_activate_the_folds_inside_it(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        for fold in (summary_fold("inner", 0, 5), summary_fold("middle", 0, 10), summary_fold("outer", 0, 15)):
            await store.add_fold("a", fold)

        await store.undo_fold("a", "middle")
        assert await active_fold_ids(store, "a") == ["outer"]
        await store.undo_fold("a", "outer")
        assert await active_fold_ids(store, "a") == ["inner"]

    @scenario
    async def test_an_invalid_fold_is_rejected(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("f", 5, 10))

        for start, stop in ((0, 16), (-1, 5), (5, 5), (6, 5), (0, 3), (2, 5), (0, 6), (9, 15), (6, 9)):
            await expect_error(FoldConflict, store.add_fold("a", summary_fold("wrong", start, stop)))
        odd = Fold("odd", 0, 5, ({"role": "system", "content": b"x"},), "")
        await expect_error(InvalidSetting, store.add_fold("a", odd))
        await expect_error(InvalidSetting, store.add_fold("a", summary_fold("", 0, 5)))
        await expect_error(ConversationNotFound, store.add_fold("unknown", summary_fold("f", 0, 5)))
        await expect_error(FoldNotFound, store.undo_fold("a", "wrong"))
        assert await active_fold_ids(store, "a") == ["f"]

    @scenario
    async def test_calls_without_results_are_not_folded(self, store: ConversationStore) -> None:
        await store.append("a", [*turn(0), *turn(1)[:3]])

        await expect_error(FoldConflict, store.add_fold("a", summary_fold("f", 5, 8)))
        await store.add_fold("a", summary_fold("g", 0, 6))
        await store.append("a", turn(1)[3:])
        await store.add_fold("a", summary_fold("f", 6, 9))

    @scenario
    async def test_a_fold_made_from_other_folds_than_the_active_ones_is_rejected(
        self, store: ConversationStore
    ) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("f", 0, 5))

        await expect_error(FoldConflict, store.add_fold("a", summary_fold("g", 0, 10), replacing=[]))
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("g", 0, 10), replacing=["f", "x"]))
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("g", 5, 10), replacing=["f"]))
        await store.undo_fold("a", "f")
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("g", 0, 10), replacing=["f"]))
        await store.append("a", turn(9))
        await store.add_fold("a", summary_fold("g", 0, 10), replacing=[])

    @scenario
    async def test_a_fold_is_added_once(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))

        first = await store.add_fold("a", summary_fold("f", 0, 5))
        assert await store.add_fold("a", summary_fold("f", 0, 5)) == first
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("f", 0, 10)))
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("f", 0, 5, "other")))
        await store.undo_fold("a", "f")
        await expect_error(FoldConflict, store.add_fold("a", summary_fold("f", 0, 5)))
        assert len(await store.folds("a")) == 1

    @scenario
    async def test_of_many_concurrent_folds_of_a_range_one_succeeds(self, store: ConversationStore) -> None:
        await store.append("a", turns(4))

        results = await asyncio.gather(
            *(store.add_fold("a", summary_fold(f"f{number}", 0, 10), replacing=[]) for number in range(6)),
            return_exceptions=True,
        )

        assert sum(isinstance(result, FoldConflict) for result in results) == 5
        assert len(await store.folds("a")) == 1

    @scenario
    async def test_appends_continue_while_a_fold_is_created(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        seen = await store.load("a")
        await store.append("a", turn(3), expected_version=1)

        await store.add_fold("a", summary_fold("f", 0, 10), replacing=[fold.id for fold in seen.folds])

        assert list((await store.load("a", folded=True)).positions) == list(range(10, 20))
        assert await store.append("a", turn(4), expected_version=2) == 3

    @scenario
    async def test_pins_can_be_added_and_removed(self, store: ConversationStore) -> None:
        await store.append("a", turns(1))

        await store.pin("a", 0)
        await store.pin("a", 3)
        await store.pin("a", 3)
        assert (await store.load("a", last_turns=0)).pins == {0, 3}
        await store.unpin("a", 0)
        await store.unpin("a", 1)
        assert (await store.load("a")).pins == {3}
        for wrong in (-1, 5):
            await expect_error(InvalidSetting, store.pin("a", wrong))
            await expect_error(InvalidSetting, store.unpin("a", wrong))


class PurgeContract:
    """Tests of purge."""

    @scenario
    async def test_purging_does_not_change_the_view(self, store: ConversationStore) -> None:
        entries = turns(5)
        await store.append("a", entries)
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.add_fold("a", summary_fold("two", 5, 15))
        await store.pin("a", 7)
        before = await store.load("a", folded=True)

        assert await store.purge("a", before=15) == 15

        after = await store.load("a", folded=True)
        assert (after.shown(), after.entries) == (before.shown(), before.entries)
        assert after.conversation.first == 15
        remaining = await store.load("a")
        assert (remaining.start, remaining.entries, remaining.pins) == (15, tuple(entries[15:]), frozenset())
        assert await store.purge("a", before=15) == 0
        assert await store.append("a", turn(5)) == 2
        assert (await store.load("a", last_turns=1)).start == 25
        assert (await store.load("a", last_turns=99)).start == 15
        assert (await store.load("a", last_messages=99)).start == 15
        assert (await store.load("a", since=3)).start == 15

    @scenario
    async def test_only_entries_that_folds_cover_are_purged(self, store: ConversationStore) -> None:
        await store.append("a", turns(4))
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.add_fold("a", summary_fold("two", 10, 15))

        for wrong in (1, 4, 6, 10, 15, 99, -1):
            await expect_error(FoldConflict, store.purge("a", before=wrong))
        assert await store.purge("a", before=0) == 0
        assert (await store.load("a")).start == 0

    @scenario
    async def test_a_fold_over_purged_entries_stays(self, store: ConversationStore) -> None:
        await store.append("a", turns(4))
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.purge("a", before=5)

        await expect_error(FoldConflict, store.undo_fold("a", "one"))
        await store.add_fold("a", summary_fold("two", 0, 10), replacing=["one"])
        await store.undo_fold("a", "two")
        assert await active_fold_ids(store, "a") == []
        assert [fold.id for fold in (await store.load("a", folded=True)).folds] == ["one"]
        await expect_error(InvalidSetting, store.pin("a", 4))
        await expect_error(InvalidSetting, store.fork("a", "b", at=4))


class ForkContract:
    """Tests of forks: which data they share with their origin."""

    @scenario
    async def test_a_fork_shares_the_first_entries_and_then_differs(self, store: ConversationStore) -> None:
        entries = turns(3)
        await store.append("a", entries, recipient="alice", labels={"x": "1"})

        fork_header = await store.fork("a", "b", at=10)
        await store.append("b", text_entries("elsewhere"), expected_version=1)
        await store.append("a", text_entries("here"))

        assert (
            fork_header.version,
            fork_header.length,
            fork_header.turns,
            fork_header.recipient,
            dict(fork_header.labels),
        ) == (
            1,
            10,
            2,
            "alice",
            {"x": "1"},
        )
        assert fork_header.origin is not None
        assert (fork_header.origin.conversation, fork_header.origin.position) == ("a", 10)
        fork = await store.load("b")
        assert fork.entries == (*entries[:10], *text_entries("elsewhere"))
        assert fork.conversation.turns == 3
        assert texts((await store.load("a", last_messages=1)).entries) == ["here"]
        for count, start in ((1, 10), (2, 5), (3, 0)):
            assert (await store.load("b", last_turns=count)).start == start
        assert (await store.load("b", last_messages=5)).start == 6

    @scenario
    async def test_a_fork_of_a_fork_shares_the_entries_of_both(self, store: ConversationStore) -> None:
        entries = turns(4)
        await store.append("a", entries)
        await store.fork("a", "b", at=15)
        await store.append("b", turn(7))
        await store.fork("b", "c")
        await store.append("c", turn(8))
        await store.fork("c", "d", at=10)

        assert (await store.load("c")).entries == (*entries[:15], *turn(7), *turn(8))
        assert (await store.load("d")).entries == tuple(entries[:10])
        assert [(await store.load("c", last_turns=count)).start for count in range(1, 6)] == [20, 15, 10, 5, 0]
        assert (await store.load("c", since=12, limit=10)).entries == (*entries[12:15], *turn(7), *turn(8)[:2])

    @scenario
    async def test_a_fork_has_the_folds_and_pins_of_its_shared_entries(self, store: ConversationStore) -> None:
        await store.append("a", turns(4))
        await store.add_fold("a", summary_fold("gone", 10, 15))
        await store.undo_fold("a", "gone")
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.add_fold("a", summary_fold("two", 0, 15))
        for position in (1, 9, 16):
            await store.pin("a", position)

        await store.fork("a", "b", at=10)
        await store.fork("a", "c")

        assert await active_fold_ids(store, "b") == ["one"]
        assert (await store.load("b")).pins == {1, 9}
        assert await active_fold_ids(store, "c") == ["two"]
        assert [stored.fold.id for stored in await store.folds("c")] == ["one", "two"]
        await store.undo_fold("b", "one")
        await store.unpin("b", 1)
        assert await active_fold_ids(store, "a") == ["two"]
        assert (await store.load("a")).pins == {1, 9, 16}
        await store.undo_fold("c", "two")
        assert await active_fold_ids(store, "c") == ["one"]

    @scenario
    async def test_a_fork_needs_a_position_between_exchanges_and_a_free_id(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))
        await store.append("taken", text_entries("x"))

        for wrong in (2, 3, 8, 11, -1):
            await expect_error(InvalidSetting, store.fork("a", "b", at=wrong))
        await expect_error(VersionConflict, store.fork("a", "taken"))
        await expect_error(VersionConflict, store.fork("a", "a"))
        await expect_error(InvalidSetting, store.fork("a", ""))
        await expect_error(ConversationNotFound, store.fork("unknown", "b"))
        assert (await store.fork("a", "empty", at=0)).length == 0
        assert (await store.load("empty")).entries == ()

    @scenario
    async def test_a_fork_has_the_open_calls_of_its_origin(self, store: ConversationStore) -> None:
        await store.append("a", turn(0)[:2])

        fork_header = await store.fork("a", "b")
        await store.append("a", turn(0)[2:])
        await store.append("b", turn(0)[2:])

        assert fork_header.open_calls == ("call_0_0", "call_0_1")
        assert (await store.load("a")).entries == (await store.load("b")).entries == tuple(turn(0))

    @scenario
    async def test_a_fork_keeps_entries_that_its_origin_purges(self, store: ConversationStore) -> None:
        entries = turns(3)
        await store.append("a", entries)
        await store.fork("a", "before", at=10)
        await store.add_fold("a", summary_fold("f", 0, 5))
        await store.purge("a", before=5)
        await store.fork("a", "after", at=10)

        assert (await store.load("before")).entries == tuple(entries[:10])
        late = await store.load("after")
        assert (late.start, late.entries, late.conversation.first) == (5, tuple(entries[5:10]), 5)
        await expect_error(FoldConflict, store.undo_fold("after", "f"))

    @scenario
    async def test_a_fork_may_start_where_a_purge_ended(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("f", 0, 5))
        await store.purge("a", before=5)

        fork = await store.fork("a", "b", at=5)

        assert (fork.length, fork.turns) == (5, 1)
