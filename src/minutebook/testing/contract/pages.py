"""Tests of list, export and import, which all work in pages."""

from collections.abc import AsyncIterator
from dataclasses import replace

from minutebook.errors import (
    InvalidSetting,
    UnreadableInput,
    VersionConflict,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, ConversationStatus
from minutebook.testing.contract.samples import (
    entries_of,
    expect_error,
    scenario,
    summary_fold,
    text_entries,
    turn,
    turns,
)


async def list_all(
    store: ConversationStore, limit: int, recipient: str | None = None, status: ConversationStatus | None = None
) -> list[ConversationHeader]:
    items: list[ConversationHeader] = []
    cursor = None
    while True:
        page = await store.list(recipient=recipient, status=status, cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        items += page.items
        cursor = page.cursor
        if cursor is None:
            return items


class ListContract:
    """Tests of list."""

    @scenario
    async def test_pages_have_every_conversation_once_newest_first(self, store: ConversationStore) -> None:
        for number in range(7):
            await store.append(f"c{number}", text_entries("x"), recipient=f"r{number % 2}")
        await store.set_status("c3", ConversationStatus.ACTIVE)

        for limit in (1, 2, 3, 7, 100):
            listed = await list_all(store, limit)
            assert sorted(header.id for header in listed) == [f"c{number}" for number in range(7)]
            assert [header.created_at for header in listed] == sorted(
                (header.created_at for header in listed), reverse=True
            )
            assert {header.id for header in await list_all(store, limit, "r1")} == {"c1", "c3", "c5"}
        assert [header.id for header in await list_all(store, 2, status=ConversationStatus.ACTIVE)] == ["c3"]
        assert await list_all(store, 2, "r0", ConversationStatus.ACTIVE) == []
        assert listed[0] == await store.header(listed[0].id)

    @scenario
    async def test_pages_are_stable_during_writes(self, store: ConversationStore) -> None:
        for number in range(6):
            await store.append(f"c{number}", text_entries("x"))
        first = await store.list(limit=2)
        await store.append("new", text_entries("x"))
        await store.append("c1", text_entries("again"))
        await store.set_status("c2", ConversationStatus.CLOSED)
        await store.erase(conversation=first.items[1].id)

        second = await store.list(cursor=first.cursor, limit=100)

        seen = [header.id for header in (*first.items, *second.items)]
        assert sorted(name for name in seen if name != "new") == [f"c{number}" for number in range(6)]

    @scenario
    async def test_the_arguments_of_a_page_are_checked(self, store: ConversationStore) -> None:
        for limit in (0, -1, 1001):
            await expect_error(InvalidSetting, store.list(limit=limit))
            await expect_error(InvalidSetting, store.search("x", limit=limit))
        for cursor in ("", "nonsense", "bnVsbA", "W251bGxd", "🙂"):
            await expect_error(InvalidSetting, store.list(cursor=cursor))
            await expect_error(InvalidSetting, store.search("x", cursor=cursor))
        await expect_error(InvalidSetting, store.list(status="asleep"))  # type: ignore[arg-type]


class TransferContract:
    """Tests of export and import."""

    @scenario
    async def test_an_import_restores_an_export(self, store: ConversationStore) -> None:
        odd = entries_of([{"role": "user", "content": "\0 \ud800 日本 🙂", "x": {"y": [1, 2.5, None]}}])
        entries = [*text_entries("rules", role="system"), *turns(120), *odd, *turn(999)[:2]]
        await store.append("a", entries, recipient="alice", labels={"x": "1"})
        await store.add_fold("a", summary_fold("one", 1, 6))
        await store.add_fold("a", summary_fold("two", 1, 11))
        await store.undo_fold("a", "two")
        await store.add_fold("a", summary_fold("three", 6, 16))
        await store.pin("a", 0)
        await store.set_status("a", ConversationStatus.CLOSED)
        await store.append("b", text_entries("second"))
        lines = [line for name in ("a", "b") async for line in store.export(name)]
        other = store.for_tenant("another")

        counts = await other.import_(line + "\n" for line in lines)

        assert (counts.conversations, counts.entries) == (2, len(entries) + 1)
        assert all(line.isascii() and "\n" not in line for line in lines)
        original, imported = await store.load("a"), await other.load("a")
        assert (imported.entries, imported.folds, imported.pins) == (original.entries, original.folds, original.pins)
        assert replace(imported.conversation, tenant=store.tenant, version=1) == original.conversation  # also its times
        assert [(stored.fold, stored.undone_at is None) for stored in await other.folds("a")] == [
            (stored.fold, stored.undone_at is None) for stored in await store.folds("a")
        ]
        assert [line async for line in other.export("b")][1:] == [line async for line in store.export("b")][1:]

    @scenario
    async def test_a_repeated_import_continues_where_it_stopped(self, store: ConversationStore) -> None:
        await store.append("a", turns(150))
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.undo_fold("a", "one")
        await store.add_fold("a", summary_fold("two", 0, 10))
        lines = [line async for line in store.export("a")]
        other = store.for_tenant("another")

        async def cut_off() -> AsyncIterator[str]:
            for line in lines[:500]:
                yield line
            raise KeyError("the connection broke")

        await expect_error(KeyError, other.import_(cut_off()))
        assert 0 < (await other.header("a")).length < 500
        for _ in range(2):
            assert (await other.import_(lines)).entries == 750

        assert (await other.load("a")).entries == tuple(turns(150))
        assert [stored.fold.id for stored in await other.folds("a")] == ["one", "two"]

    @scenario
    async def test_an_import_never_overwrites_a_conversation(self, store: ConversationStore) -> None:
        await store.append("a", turns(1))
        lines = [line async for line in store.export("a")]
        other = store.for_tenant("another")
        await other.append("a", text_entries("mine"))

        await expect_error(VersionConflict, other.import_(lines))
        third = store.for_tenant("third")
        await third.import_(lines)
        await expect_error(VersionConflict, third.import_([*lines[:3], *lines[4:]]))
        assert (await other.header("a")).length == 1
        assert (await third.load("a")).entries == tuple(turns(1))

    @scenario
    async def test_the_export_of_a_conversation_adds_nothing_to_it(self, store: ConversationStore) -> None:
        await store.append("a", turns(50))
        await store.add_fold("a", summary_fold("one", 0, 5))
        await store.set_status("a", ConversationStatus.CLOSED)
        lines = [line async for line in store.export("a")]

        await store.import_(lines)
        assert [line async for line in store.export("a")] == lines
        await store.append("a", turn(99))
        longer = [line async for line in store.export("a")]
        await store.set_status("a", ConversationStatus.IDLE)
        await store.import_(lines)

        assert (await store.header("a")).length == 255
        assert (await store.header("a")).status is ConversationStatus.IDLE
        other = store.for_tenant("another")
        await other.import_(lines)
        await other.import_(longer)
        assert [line async for line in other.export("a")] == longer

    @scenario
    async def test_no_interruption_of_an_import_leaves_an_empty_conversation(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))
        await store.append("a", turn(3))
        lines = [line async for line in store.export("a")]

        async def cut_off(count: int) -> AsyncIterator[str]:
            for line in lines[:count]:
                yield line
            raise KeyError("the process was killed")

        for count in range(len(lines) + 1):
            other = store.for_tenant(f"tenant {count}")
            await expect_error(KeyError, other.import_(cut_off(count)))
            assert all(header.length for header in (await other.list()).items)
            await other.import_(lines)
            assert [line async for line in other.export("a")] == lines

    @scenario
    async def test_a_purged_conversation_keeps_its_positions(self, store: ConversationStore) -> None:
        await store.append("a", turns(3))
        await store.add_fold("a", summary_fold("f", 0, 5))
        await store.purge("a", before=5)
        lines = [line async for line in store.export("a")]
        other = store.for_tenant("another")

        for _ in range(2):
            await other.import_(lines)

        original, imported = await store.load("a", folded=True), await other.load("a", folded=True)
        assert (imported.shown(), imported.positions) == (original.shown(), original.positions)
        assert imported.conversation.first == 5

    @scenario
    async def test_an_invalid_line_is_reported_with_its_number(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        header, entry = [line async for line in store.export("a")]
        other = store.for_tenant("another")

        for wrong in ("nonsense", "[]", "{}", '{"x": 1}', '{"entry": 1}', '{"entry":', '{"fold": {}}', '{"pin": "x"}'):
            error = await expect_error(UnreadableInput, other.import_([header, entry, wrong]))
            assert error.line == 3, wrong
        assert (await expect_error(UnreadableInput, other.import_([entry]))).line == 1
        future = header.replace('"format": 1', '"format": 99')
        await expect_error(UnreadableInput, other.import_([future]))
