"""Tests of append: atomic, versioned, idempotent, validated before anything is written."""

import asyncio
from uuid import UUID

from minutebook.errors import (
    BrokenConversation,
    ConversationNotFound,
    IdempotencyConflict,
    InvalidMessage,
    InvalidSetting,
    VersionConflict,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, MessageRole
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationStatus
from minutebook.testing.contract.samples import (
    SOME_TIME,
    entries_of,
    expect_error,
    scenario,
    text_entries,
    texts,
    turn,
    turns,
)


class AppendContract:
    """Tests of append."""

    @scenario
    async def test_appended_entries_are_loaded_complete_and_in_order(self, store: ConversationStore) -> None:
        first, second = turn(0), turn(1)

        assert await store.append("a", first) == 1
        assert await store.append("a", second) == 2

        loaded = await store.load("a")
        assert loaded.entries == (*first, *second)
        assert list(loaded.positions) == list(range(10))
        assert (loaded.conversation.version, loaded.conversation.length, loaded.conversation.turns) == (2, 10, 2)

    @scenario
    async def test_the_first_append_creates_the_conversation(self, store: ConversationStore) -> None:
        await expect_error(ConversationNotFound, store.header("a"))
        await store.append("a", text_entries("hello"), recipient="alice", labels={"channel": "mail"})
        await store.append("b", text_entries("hello"))

        header = await store.header("a")
        assert (header.tenant, header.id, header.recipient) == (store.tenant, "a", "alice")
        assert (header.status, dict(header.labels), header.origin) == ("idle", {"channel": "mail"}, None)
        assert header.created_at == header.updated_at == header.status_updated_at
        assert header.created_at.utcoffset() is not None
        assert (await store.header("b")).recipient == "b"

    @scenario
    async def test_a_stale_writer_is_rejected_and_changes_nothing(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), expected_version=0)
        await store.append("a", text_entries("2"), expected_version=1)

        error = await expect_error(VersionConflict, store.append("a", text_entries("late"), expected_version=1))
        assert (error.conversation, error.actual, error.expected) == ("a", 2, 1)
        await expect_error(VersionConflict, store.append("a", text_entries("late"), expected_version=0))
        await expect_error(VersionConflict, store.append("a", text_entries("early"), expected_version=9))
        await expect_error(VersionConflict, store.append("new", text_entries("x"), expected_version=1))
        await expect_error(ConversationNotFound, store.header("new"))
        assert texts((await store.load("a")).entries) == ["1", "2"]

    @scenario
    async def test_of_many_appends_that_expect_the_same_version_one_succeeds(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("0"))

        results = await asyncio.gather(
            *(store.append("a", text_entries(f"{number}"), expected_version=1) for number in range(20)),
            return_exceptions=True,
        )

        assert sorted(type(result).__name__ for result in results) == ["VersionConflict"] * 19 + ["int"]
        assert (await store.header("a")).length == 2

    @scenario
    async def test_concurrent_appends_are_all_stored_once_and_never_mixed(self, store: ConversationStore) -> None:
        results = await asyncio.gather(*(store.append("a", turn(number)) for number in range(20)))

        loaded = await store.load("a")
        assert sorted(results) == list(range(1, 21))
        for number in range(20):
            part = loaded.entries[number * 5 : number * 5 + 5]
            question = part[0].content or ""
            assert part == tuple(turn(int(question.removeprefix("question "))))
        assert len({entry.content for entry in loaded.entries if entry.role is MessageRole.USER}) == 20

    @scenario
    async def test_a_repeated_key_returns_the_first_version_and_adds_nothing(self, store: ConversationStore) -> None:
        same_messages = [
            ConversationEntry(entry.role, entry.content, UUID(int=8), entry.sequence, SOME_TIME.replace(year=2027))
            for entry in text_entries("x")
        ]

        assert await store.append("a", text_entries("x"), expected_version=0, idempotency_key="k") == 1
        assert await store.append("a", text_entries("y")) == 2
        assert await store.append("a", same_messages, expected_version=0, idempotency_key="k") == 1
        assert await store.append("b", text_entries("other"), idempotency_key="k") == 1
        await expect_error(IdempotencyConflict, store.append("a", text_entries("z"), idempotency_key="k"))
        assert texts((await store.load("a")).entries) == ["x", "y"]

    @scenario
    async def test_a_fingerprint_is_compared_instead_of_messages_that_differ_each_time(
        self, store: ConversationStore
    ) -> None:
        first = await store.append("a", text_entries("nonce 1"), idempotency_key="k", fingerprint=b"the same")

        assert await store.append("a", text_entries("nonce 2"), idempotency_key="k", fingerprint=b"the same") == first
        await expect_error(
            IdempotencyConflict, store.append("a", text_entries("nonce 1"), idempotency_key="k", fingerprint=b"another")
        )
        assert texts((await store.load("a")).entries) == ["nonce 1"]

    @scenario
    async def test_concurrent_retries_of_one_append_add_it_once(self, store: ConversationStore) -> None:
        results = await asyncio.gather(*(store.append("a", turn(1), idempotency_key="k") for _ in range(10)))

        assert results == [1] * 10
        assert (await store.header("a")).length == 5

    @scenario
    async def test_only_the_last_calls_may_have_no_results_yet(self, store: ConversationStore) -> None:
        turn_entries = turn(0)
        await store.append("a", turn_entries[:2])
        header = await store.header("a")
        assert (header.open_calls, header.open_at) == (("call_0_0", "call_0_1"), 1)

        await expect_error(BrokenConversation, store.append("a", text_entries("meanwhile")))
        await store.append("a", turn_entries[3:4])
        assert (await store.header("a")).open_calls == ("call_0_0",)
        await expect_error(BrokenConversation, store.append("a", turn_entries[3:4]))
        await store.append("a", [turn_entries[2], turn_entries[4]])

        assert (await store.header("a")).open_calls == ()
        assert (await store.load("a")).entries == (*turn_entries[:2], turn_entries[3], turn_entries[2], turn_entries[4])

    @scenario
    async def test_an_append_whose_calls_and_results_do_not_match_is_rejected(self, store: ConversationStore) -> None:
        turn_entries = turn(0)
        for wrong in (turn_entries[2:], [*turn_entries[:3], turn_entries[4]], [*turn_entries, turn_entries[3]]):
            await expect_error(BrokenConversation, store.append("new", wrong))
        await expect_error(ConversationNotFound, store.header("new"))

        await store.append("a", turn_entries)
        await expect_error(BrokenConversation, store.append("a", [*text_entries("fine"), turn_entries[2]]))
        assert (await store.load("a")).entries == tuple(turn_entries)

    @scenario
    async def test_a_broken_record_can_be_stored_unchanged(self, store: ConversationStore) -> None:
        turn_entries = turn(0)
        broken_turn = [*turn_entries[:3], turn_entries[4], *text_entries("next"), turn_entries[3]]

        await store.append("a", broken_turn, broken="mark")

        assert (await store.load("a")).entries == tuple(broken_turn)
        assert (await store.header("a")).open_calls == ()

    @scenario
    async def test_odd_text_survives(self, store: ConversationStore) -> None:
        odd = ["\0", "a\0b", "\ud800", "x\udfff\ud800y", "\u2028\ufeff\uffff", "🙂", "", "\r\n", "日本語", '{"a": 1}']
        calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "\0\ud800"}}]
        chat: list[Message] = [
            *({"role": "user", "content": text, "x\ud801": ["\0", {"y": text}]} for text in odd),
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "\udc00"}]},
        ]
        entries = [*text_entries(*odd), *text_entries(*odd, role="assistant"), *entries_of(chat)]

        await store.append("a", entries)

        assert (await store.load("a")).entries == tuple(entries)

    @scenario
    async def test_a_surrogate_pair_becomes_one_character(self, store: ConversationStore) -> None:
        await store.append("a", entries_of([{"role": "user", "content": "\ud83d\ude42", "x": "\ud83d\ude42\ud83d"}]))

        (entry,) = (await store.load("a")).entries
        assert (entry.content, entry.extras["x"]) == ("🙂", "🙂\ud83d")

    @scenario
    async def test_values_that_json_cannot_express_are_rejected(self, store: ConversationStore) -> None:
        for odd in (b"bytes", float("nan"), float("inf"), {1: "a key"}, {"a", "set"}):
            wrong = entries_of([{"role": "user", "content": "x", "odd": {"inside": odd}}])
            await expect_error(InvalidMessage, store.append("a", [*text_entries("fine"), *wrong]))
        for message in ({"role": "user", "content": "no entry"}, "text", None):
            await expect_error(InvalidMessage, store.append("a", [*text_entries("fine"), message]))  # type: ignore[list-item]
        await expect_error(ConversationNotFound, store.header("a"))

    @scenario
    async def test_large_payloads_are_loaded_unchanged(self, store: ConversationStore) -> None:
        large = "line of a file 日本\n" * 5_000
        calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": large}}]
        entries = entries_of(
            [
                {"role": "user", "content": large},
                {"role": "assistant", "content": large, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c", "content": large},
                {"role": "user", "content": [{"type": "text", "text": large}]},
                {"role": "user", "content": "x" * 8192},
                {"role": "user", "content": "x" * 8193},
            ]
        )

        await store.append("a", entries)
        await store.append("b", entries)

        assert (await store.load("a")).entries == (await store.load("b")).entries == tuple(entries)

    @scenario
    async def test_names_are_exact_and_not_empty(self, store: ConversationStore) -> None:
        names = ["a", "A", "a ", "á", "a\u0301", "a/b", "a:b", "a'b", "%", "_", "日本", "x" * 512, "🙂" * 128]
        for name in names:
            await store.append(name, text_entries(name))
        for name in names:
            assert texts((await store.load(name)).entries) == [name]
        for wrong in ("", "\0", "a\ud800", "x" * 513, "🙂" * 129):
            await expect_error(InvalidSetting, store.append(wrong, text_entries("x")))
            await expect_error(InvalidSetting, store.append("new", text_entries("x"), recipient=wrong))
            await expect_error(InvalidSetting, store.append("new", text_entries("x"), idempotency_key=wrong))
        await expect_error(ConversationNotFound, store.header("new"))

    @scenario
    async def test_a_conversation_keeps_its_recipient(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), recipient="alice")

        await expect_error(InvalidSetting, store.append("a", text_entries("2"), recipient="bob"))
        assert await store.append("a", text_entries("2"), recipient="alice") == 2
        assert (await store.header("a")).length == 2

    @scenario
    async def test_an_empty_conversation_needs_expected_version_0(self, store: ConversationStore) -> None:
        await expect_error(InvalidSetting, store.append("a", []))
        assert await store.append("a", [], expected_version=0) == 1

        loaded = await store.load("a")
        assert (loaded.entries, loaded.conversation.length, loaded.conversation.version) == ((), 0, 1)
        assert await store.append("a", turns(1), expected_version=1) == 2

    @scenario
    async def test_status_and_labels_do_not_change_the_version(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), labels={"x": "1", "y": "2"})
        before = await store.header("a")

        changed = await store.set_status("a", ConversationStatus.AWAITING_ANSWER)
        labelled = await store.set_labels("a", {"x": "3", "y": None, "z": "4"})

        assert changed.status == "awaiting_answer"
        assert dict(labelled.labels) == {"x": "3", "z": "4"}
        assert labelled == await store.header("a")
        assert (labelled.version, labelled.updated_at) == (before.version, before.updated_at)
        assert labelled.status_updated_at >= before.status_updated_at
        await expect_error(InvalidSetting, store.set_labels("a", {"big": "x" * 2_000}))
        await expect_error(InvalidSetting, store.set_labels("a", {f"l{number}": "" for number in range(17)}))
        await expect_error(InvalidSetting, store.set_status("a", "asleep"))  # type: ignore[arg-type]
        await expect_error(ConversationNotFound, store.set_status("unknown", before.status))
