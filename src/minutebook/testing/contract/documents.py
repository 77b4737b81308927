"""Tests of documents: they belong to a conversation, are found by kind and id, and are erased with it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    InvalidMessage,
    InvalidSetting,
    VersionConflict,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document, NewDocument
from minutebook.testing.contract.samples import expect_error, scenario, text_entries, texts, turn, turns

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def reply(name: str, text: str = "", **settings: Any) -> NewDocument:
    """A document of kind `reply`."""
    return NewDocument("reply", name, {"text": text or name}, **settings)


async def _names(store: ConversationStore, conversation: str, kind: str = "reply", **paging: Any) -> list[str]:
    return [document.id for document in (await store.documents(conversation, kind, **paging)).items]


class DocumentContract:
    """Tests of documents."""

    @scenario
    async def test_a_document_is_found_by_its_kind_and_id_and_in_its_conversation(
        self, store: ConversationStore
    ) -> None:
        await store.append("a", text_entries("1"))
        until = datetime.now(UTC).replace(microsecond=123456) + timedelta(days=1)

        stored = await store.put_document("a", NewDocument("reply", "r1", {"text": "hello", "n": [1, None]}, until))

        assert (stored.conversation, stored.kind, stored.id, stored.expires_at) == ("a", "reply", "r1", until)
        assert stored.body == {"text": "hello", "n": [1, None]}
        assert stored.created_at.utcoffset() is not None
        assert await store.document("reply", "r1") == stored
        assert (await store.documents("a", "reply")).items == (stored,)
        assert (await store.documents("a", "request")).items == ()
        await expect_error(DocumentNotFound, store.document("request", "r1"))
        await expect_error(DocumentNotFound, store.document("reply", "r2"))
        assert (await store.header("a")).version == 1

    @scenario
    async def test_minutes_of_all_conversations_are_found_by_their_age(self, store: ConversationStore) -> None:
        for name in ("a", "b"):
            await store.append(name, text_entries("1"), documents=[NewDocument("request", f"{name}1", {"n": 1})])
        await store.put_document("a", NewDocument("request", "a2", {"n": 2}))
        await store.put_document("a", reply("other"))
        await store.for_tenant("other").append("a", text_entries("1"), documents=[NewDocument("request", "x", {})])
        found: dict[str, Document] = {}
        cursor = None
        while True:
            page = await store.requests_before(datetime.now(UTC) + timedelta(days=1), cursor=cursor, limit=2)
            found |= {document.id: document for document in page.items}
            if (cursor := page.cursor) is None:
                break

        assert {document.id: document.conversation for document in found.values()} == {"a1": "a", "a2": "a", "b1": "b"}
        assert found["a2"].body == {"n": 2}
        assert found["a2"] == await store.document("request", "a2")
        assert (await store.requests_before(found["a1"].created_at)).items == ()
        naive = datetime(2001, 1, 1)  # noqa: DTZ001 - what is refused
        await expect_error(InvalidSetting, store.requests_before(naive))

    @scenario
    async def test_old_minutes_are_found_in_pages_of_any_size_oldest_first(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        for number in range(5):
            await store.put_document("a", NewDocument("request", f"r{number}", {"number": number + 1}))
        await store.delete_documents("request", ["r1"])
        stored = [await store.document("request", f"r{number}") for number in (0, 2, 3, 4)]

        for limit in (1, 2, 4, 5):
            items: list[Document] = []
            cursor = None
            while True:
                page = await store.requests_before(stored[3].created_at, cursor=cursor, limit=limit)
                assert len(page.items) <= limit
                items += page.items
                if (cursor := page.cursor) is None:
                    break
            assert sorted(items, key=lambda document: document.number) == [
                document for document in stored if document.created_at < stored[3].created_at
            ]
            assert [item.created_at for item in items] == sorted(item.created_at for item in items)

    @scenario
    async def test_the_header_has_the_highest_number_of_a_request(self, store: ConversationStore) -> None:
        def minutes(number: object, *, name: str = "", replace: bool = False) -> NewDocument:
            return NewDocument("request", name or f"r{number!r}", {"number": number}, replace=replace)

        await store.append("a", text_entries("1"))
        assert (await store.header("a")).requests == 0
        await store.append("a", text_entries("2"), documents=[minutes(1), NewDocument("other", "x", {"number": 9})])
        assert (await store.header("a")).requests == 1
        await store.append("a", text_entries("3"), documents=[minutes(1, replace=True), minutes(2, replace=True)])
        await store.put_document("a", minutes(1, replace=True))
        await store.put_document("a", minutes(1, name="another"))
        for not_a_number in (None, "3", True, 0, -1, 1 << 80):
            await store.put_document("a", minutes(not_a_number))
        assert (await store.load("a", last_messages=1)).conversation.requests == 2
        await store.put_document("a", minutes(3))
        await store.append("a", text_entries("4"))
        await store.delete_documents("request", ["r3"])
        await store.pin("a", 0)
        assert (await store.list()).items[0].requests == 3
        assert (await store.fork("a", "b")).requests == 0
        assert (await store.header("b")).requests == 0
        await store.append("c", text_entries("1"), documents=[minutes(5, name="c5")])
        assert (await store.header("c")).requests == 5

    @scenario
    async def test_several_documents_are_deleted_together(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), documents=[reply("r1"), reply("r2"), reply("r3")])
        await store.append("b", text_entries("1"), documents=[reply("r4"), NewDocument("audit", "r1", {})])

        assert await store.delete_documents("reply", ["r1", "r4", "r1", "never"]) == 2
        assert await store.delete_documents("reply", []) == 0
        assert await _names(store, "a") == ["r2", "r3"]
        assert await _names(store, "b") == []
        assert await _names(store, "b", "audit") == ["r1"]
        too_many = [str(number) for number in range(1001)]
        await expect_error(InvalidSetting, store.delete_documents("reply", too_many))

    @scenario
    async def test_a_document_is_replaced_only_with_replace(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        await store.append("b", text_entries("1"))
        first = await store.put_document("a", NewDocument("reply", "r", {"x": 1, "y": 2}))

        assert await store.put_document("a", NewDocument("reply", "r", {"y": 2, "x": 1})) == first
        error = await expect_error(DocumentExists, store.put_document("a", NewDocument("reply", "r", {"x": 2})))
        assert (error.kind, error.document_id, error.conversation) == ("reply", "r", "a")
        await expect_error(DocumentExists, store.put_document("b", NewDocument("reply", "r", {"x": 1, "y": 2})))
        await expect_error(DocumentExists, store.put_document("b", NewDocument("reply", "r", {}, replace=True)))
        assert await store.document("reply", "r") == first
        second = await store.put_document("a", NewDocument("reply", "r", {"x": 2}, replace=True))

        assert await store.document("reply", "r") == second
        assert (second.number, second.created_at, second.body) == (first.number, first.created_at, {"x": 2})
        assert await _names(store, "b") == []

    @scenario
    async def test_documents_are_written_with_the_entries_or_not_at_all(self, store: ConversationStore) -> None:
        assert await store.append("a", text_entries("1"), documents=[reply("r1"), NewDocument("audit", "x", {})]) == 1
        assert await store.append("a", text_entries("2"), documents=[reply("r1"), reply("r2")]) == 2

        wrong = store.append("a", turn(0)[2:], documents=[reply("r3")])
        await expect_error(BrokenConversation, wrong)
        await expect_error(
            VersionConflict, store.append("a", text_entries("3"), expected_version=1, documents=[reply("r3")])
        )
        await expect_error(
            DocumentExists, store.append("a", text_entries("3"), documents=[reply("r3"), reply("r1", "other")])
        )
        await expect_error(DocumentExists, store.append("new", text_entries("3"), documents=[reply("r3"), reply("r1")]))
        await expect_error(InvalidSetting, store.append("a", text_entries("3"), documents=[reply("r3"), reply("r3")]))
        await expect_error(
            InvalidMessage, store.append("a", text_entries("3"), documents=[NewDocument("reply", "r3", {"x": b""})])
        )
        await expect_error(ConversationNotFound, store.header("new"))
        await expect_error(DocumentNotFound, store.document("reply", "r3"))

        assert texts((await store.load("a")).entries) == ["1", "2"]
        assert await _names(store, "a") == ["r1", "r2"]
        assert await _names(store, "a", "audit") == ["x"]
        assert (await store.document("reply", "r2")).conversation == "a"

    @scenario
    async def test_a_repeated_key_writes_no_document_again(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("x"), idempotency_key="k", documents=[reply("r1")])
        await store.delete_document("reply", "r1")

        await store.append("a", text_entries("x"), idempotency_key="k", documents=[reply("r1"), reply("r2")])

        assert await _names(store, "a") == []

    @scenario
    async def test_documents_are_paged_in_both_directions_and_numbers_always_rise(
        self, store: ConversationStore
    ) -> None:
        await store.append("a", text_entries("1"), documents=[reply(f"r{number}") for number in range(5)])
        await store.put_document("a", NewDocument("audit", "between", {}))
        await store.put_document("a", reply("r5"))

        seen: list[Document] = []
        cursor: str | None = None
        for _ in range(3):
            page = await store.documents("a", "reply", cursor=cursor, limit=2)
            seen, cursor = [*seen, *page.items], page.cursor
            await store.put_document("a", reply("r0", "changed", replace=True))
        assert [document.id for document in seen] == [f"r{number}" for number in range(6)]
        assert cursor is None
        numbers = [document.number for document in seen]
        assert numbers == sorted(set(numbers))
        newest = await store.documents("a", "reply", limit=4, newest_first=True)
        assert [document.id for document in newest.items] == ["r5", "r4", "r3", "r2"]
        assert await _names(store, "a", cursor=newest.cursor, newest_first=True) == ["r1", "r0"]

        await store.delete_document("reply", "r5")
        assert (await store.put_document("a", reply("r5"))).number > numbers[-1]
        await expect_error(InvalidSetting, store.documents("a", "reply", limit=0))
        await expect_error(InvalidSetting, store.documents("a", "reply", cursor="what"))

    @scenario
    async def test_the_id_of_a_deleted_document_can_be_used_again(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), documents=[reply("r")])
        await store.append("b", text_entries("1"))

        assert await store.delete_document("reply", "r") is True
        assert await store.delete_document("reply", "r") is False
        assert await store.delete_document("reply", "never") is False
        await expect_error(DocumentNotFound, store.document("reply", "r"))
        assert (await store.put_document("b", reply("r", "other"))).conversation == "b"
        assert (await _names(store, "a"), await _names(store, "b")) == ([], ["r"])

    @scenario
    async def test_an_expired_document_is_not_found(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), documents=[reply("old", expires_at=LONG_AGO), reply("other")])

        await expect_error(DocumentNotFound, store.document("reply", "old"))
        assert await _names(store, "a") == ["other"]
        assert await store.delete_document("reply", "old") is False

    @scenario
    async def test_the_id_of_an_expired_document_can_be_used_again(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), documents=[reply("old", expires_at=LONG_AGO), reply("other")])
        await store.append("b", text_entries("1"))

        await store.put_document("a", reply("old", expires_at=LONG_AGO))
        assert (await store.put_document("a", reply("old", "new"))).body == {"text": "new"}
        await store.put_document("a", reply("moves", expires_at=LONG_AGO))
        assert (await store.put_document("b", reply("moves", "here"))).conversation == "b"
        await store.delete_document("reply", "moves")
        assert (await store.put_document("a", reply("moves", "back"))).conversation == "a"
        await store.delete_document("reply", "moves")
        await store.put_document("b", reply("moves"))
        await store.put_document("a", reply("last", expires_at=LONG_AGO))
        await store.vacuum()

        assert (await store.document("reply", "moves")).conversation == "b"
        assert await _names(store, "a") == ["other", "old"]

    @scenario
    async def test_an_expiry_time_without_a_time_zone_is_refused(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))

        await expect_error(InvalidSetting, store.put_document("a", reply("x", expires_at=datetime(2001, 1, 1))))  # noqa: DTZ001 - what is refused

    @scenario
    async def test_bodies_are_json_objects_and_odd_text_survives(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        body = {"odd": ["\0", "\ud800", "x\udfff", "🙂", "\u2028", 1.5, True, None], "x\ud801": {"日本": {}}, "": ""}
        large = {"text": "line of a file 日本\n" * 20_000}

        await store.put_document("a", NewDocument("k", "odd", body))
        await store.put_document("a", NewDocument("k", "pair", {"x": "\ud83d\ude42"}))
        await store.put_document("a", NewDocument("k", "large", large))

        assert (await store.document("k", "odd")).body == body
        assert list((await store.document("k", "odd")).body) == list(body)
        assert (await store.document("k", "pair")).body == {"x": "🙂"}
        assert (await store.document("k", "large")).body == large
        for odd in (b"bytes", float("nan"), {1: "a key"}, {"a", "set"}):
            await expect_error(InvalidMessage, store.put_document("a", NewDocument("k", "wrong", {"inside": [odd]})))
        for wrong in (["list"], "text", None):
            await expect_error(InvalidMessage, store.put_document("a", NewDocument("k", "wrong", wrong)))  # type: ignore[arg-type]
        await expect_error(DocumentNotFound, store.document("k", "wrong"))

    @scenario
    async def test_a_body_that_may_be_stored_can_be_read(self, store: ConversationStore) -> None:
        """Python's limit of recursion must not decide, because it depends on the caller."""

        def nested(levels: int) -> dict[str, object]:
            body: dict[str, object] = {}
            for _ in range(levels - 1):
                body = {"inside": body}
            return body

        await store.append("a", text_entries("1"))
        await store.put_document("a", NewDocument("k", "deep", nested(100)))
        for levels in (400, 5_000):
            too_deep = NewDocument("k", "too deep", nested(levels))
            await expect_error(InvalidMessage, store.put_document("a", too_deep))
            await expect_error(InvalidMessage, store.append("a", text_entries("2"), documents=[too_deep]))

        assert [document.body for document in (await store.documents("a", "k")).items] == [nested(100)]

    @scenario
    async def test_kinds_and_ids_are_names(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))
        names = ["a", "A", "a ", "a:b", "b:a", "%", "日本", "🙂" * 128]
        for kind in names:
            for name in names:
                await store.put_document("a", NewDocument(kind, name, {"is": f"{kind}/{name}"}))
        for kind in names:
            assert await _names(store, "a", kind) == names
            for name in names:
                assert (await store.document(kind, name)).body == {"is": f"{kind}/{name}"}
        for wrong in ("", "\0", "a\ud800", "x" * 513, "🙂" * 129):
            await expect_error(InvalidSetting, store.put_document("a", NewDocument(wrong, "x", {})))
            await expect_error(InvalidSetting, store.put_document("a", NewDocument("x", wrong, {})))
            await expect_error(InvalidSetting, store.document("x", wrong))
            await expect_error(InvalidSetting, store.delete_document(wrong, "x"))
            await expect_error(InvalidSetting, store.documents("a", wrong))

    @scenario
    async def test_of_many_concurrent_puts_of_a_document_one_succeeds(self, store: ConversationStore) -> None:
        for name in ("a", "b", "c"):
            await store.append(name, text_entries("1"))

        results = await asyncio.gather(
            *(store.put_document("abc"[number % 3], reply("r", f"{number}")) for number in range(12)),
            return_exceptions=True,
        )

        stored = [result for result in results if isinstance(result, Document)]
        assert [type(result).__name__ for result in results].count("DocumentExists") == 11
        assert stored == [await store.document("reply", "r")]
        assert [await _names(store, name) for name in "abc"].count([]) == 2

    @scenario
    async def test_documents_are_erased_with_their_conversation(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"), recipient="alice", documents=[reply("r1"), reply("r2")])
        await store.append("b", text_entries("1"), recipient="bob", documents=[reply("r3")])

        await store.erase(recipient="alice")
        await store.vacuum()

        await expect_error(DocumentNotFound, store.document("reply", "r1"))
        assert await store.delete_document("reply", "r2") is False
        await expect_error(ConversationErased, store.append("a", text_entries("late"), documents=[reply("late")]))
        await expect_error(DocumentNotFound, store.document("reply", "late"))
        assert (await store.document("reply", "r3")).conversation == "b"
        assert (await store.put_document("b", reply("r1", "again"))).conversation == "b"

    @scenario
    async def test_forks_and_exports_have_no_documents(self, store: ConversationStore) -> None:
        await store.append("a", turns(1), documents=[reply("planted-word")])
        await store.fork("a", "b")

        assert await _names(store, "b") == []
        assert not [line async for line in store.export("a") if "planted" in line]
        assert (await store.search("planted")).items == ()
        await store.erase(conversation="b")
        assert await _names(store, "a") == ["planted-word"]

    @scenario
    async def test_each_tenant_has_its_own_documents(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        await store.append("a", text_entries("1"), documents=[reply("r")])

        await expect_error(DocumentNotFound, other.document("reply", "r"))
        assert await other.delete_document("reply", "r") is False
        await other.append("a", text_entries("1"), documents=[reply("r", "theirs")])
        assert await store.delete_document("reply", "r") is True
        assert (await other.document("reply", "r")).body == {"text": "theirs"}
