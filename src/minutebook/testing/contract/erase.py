"""Tests of erasure: it removes all data of a conversation, and a late writer cannot bring it back. Also tenant isolation."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    DocumentNotFound,
    InvalidSetting,
    LeaseLost,
    MissingSetting,
    RecipientBlocked,
    StoreUnavailable,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationStatus, NewDocument
from minutebook.testing.contract.samples import expect_error, scenario, summary_fold, text_entries, texts, turn, turns

Attempt = Callable[[ConversationStore], Awaitable[Any]]


async def _lines(store: ConversationStore, conversation: str) -> list[str]:
    return [line async for line in store.export(conversation)]


ATTEMPTS: dict[str, Attempt] = {
    "header": lambda store: store.header("a"),
    "load": lambda store: store.load("a"),
    "folds": lambda store: store.folds("a"),
    "add_fold": lambda store: store.add_fold("a", summary_fold("g", 5, 10)),
    "undo_fold": lambda store: store.undo_fold("a", "f"),
    "pin": lambda store: store.pin("a", 0),
    "unpin": lambda store: store.unpin("a", 1),
    "purge": lambda store: store.purge("a", before=5),
    "trim": lambda store: store.trim("a", {2: {"role": "tool", "tool_call_id": "call_0_0", "content": ""}}),
    "put_document": lambda store: store.put_document("a", NewDocument("reply", "r2", {})),
    "documents": lambda store: store.documents("a", "reply"),
    "fork": lambda store: store.fork("a", "elsewhere"),
    "rewind": lambda store: store.rewind("a", 5),
    "clear": lambda store: store.clear("a"),
    "set_status": lambda store: store.set_status("a", ConversationStatus.CLOSED),
    "set_labels": lambda store: store.set_labels("a", {"x": "y"}),
    "export": lambda store: _lines(store, "a"),
}
"""Every operation on an existing conversation, called on conversation `a`."""

SEPARATELY_TESTED = {
    *(
        "append",
        "list",
        "search",
        "erase",
        "readmit",
        "expire",
        "expire_after",
        "with_expiry",
        "import_",
        "statistics",
        "vacuum",
        "close",
        "for_tenant",
        "tenant",
    ),
    *("document", "requests_before", "delete_document", "delete_documents", "acquire_lease", "acquire_and_load"),
    *("renew_lease", "renew_leases", "release_lease"),
}
"""The other operations. Separate tests check what another tenant gets from them."""


async def add_full_conversation(store: ConversationStore) -> None:
    """Create conversation `a` with labels, a document, a fold and everything else a conversation can have."""
    documents = [NewDocument("reply", "r", {"text": "a secret reply"})]
    await store.append("a", turns(3), recipient="alice", labels={"x": "1"}, idempotency_key="k", documents=documents)
    await store.add_fold("a", summary_fold("f", 0, 5, "a secret summary"))
    await store.pin("a", 1)


class EraseContract:
    """Tests of erasure."""

    @scenario
    async def test_every_operation_rejects_an_erased_conversation(self, store: ConversationStore) -> None:
        await add_full_conversation(store)

        receipt = await store.erase(conversation="a")

        assert (receipt.conversations, receipt.entries, receipt.folds, receipt.pins) == (1, 15, 1, 1)
        assert "alice" not in repr(receipt)
        for attempt in ATTEMPTS.values():
            await expect_error(ConversationErased, attempt(store))
        assert (await store.list()).items == ()
        assert (await store.search("question")).items == ()

    @scenario
    async def test_a_late_write_does_not_restore_an_erased_conversation(self, store: ConversationStore) -> None:
        await add_full_conversation(store)
        lines = await _lines(store, "a")
        await store.append("other", text_entries("x"))
        await store.erase(conversation="a")

        await expect_error(ConversationErased, store.append("a", text_entries("late")))
        await expect_error(ConversationErased, store.append("a", text_entries("late"), expected_version=0))
        await expect_error(ConversationErased, store.append("a", turns(3), recipient="alice", idempotency_key="k"))
        await expect_error(ConversationErased, store.fork("other", "a"))
        await expect_error(ConversationErased, store.import_(lines))
        assert [header.id for header in (await store.list()).items] == ["other"]

    @scenario
    async def test_an_erased_recipient_may_start_a_new_conversation(self, store: ConversationStore) -> None:
        await store.append("a", turns(1), recipient="alice")

        await store.erase(recipient="alice")

        await expect_error(ConversationErased, store.append("a", text_entries("late"), recipient="alice"))
        await store.append("b", text_entries("new"), recipient="alice")
        assert texts((await store.load("b")).entries) == ["new"]

    @scenario
    async def test_a_blocked_recipient_may_start_a_conversation_once_readmitted(self, store: ConversationStore) -> None:
        await store.append("a", turns(1), recipient="alice")
        await store.append("other", turns(1), recipient="bob")

        receipt = await store.erase(recipient="alice", block=True)
        blocked = await expect_error(RecipientBlocked, store.append("b", text_entries("new"), recipient="alice"))
        await expect_error(RecipientBlocked, store.append("alice", text_entries("new")))
        await expect_error(RecipientBlocked, store.append("b", [], recipient="alice", expected_version=0))
        await store.append("other", text_entries("more"), recipient="bob")
        await store.for_tenant("t2").append("b", text_entries("of another tenant"), recipient="alice")

        assert (receipt.conversations, blocked.recipient) == (1, "alice")
        assert await store.for_tenant("t2").readmit("alice") is False
        await expect_error(RecipientBlocked, store.append("b", text_entries("new"), recipient="alice"))
        assert await store.readmit("alice") is True
        assert await store.readmit("alice") is False
        await store.append("b", text_entries("new"), recipient="alice")
        await expect_error(ConversationErased, store.append("a", text_entries("late"), recipient="alice"))

    @scenario
    async def test_a_recipient_without_conversations_can_be_blocked(self, store: ConversationStore) -> None:
        await store.erase(recipient="alice", block=True)
        await store.erase(recipient="alice", block=True)

        await expect_error(RecipientBlocked, store.append("a", text_entries("new"), recipient="alice"))
        await expect_error(MissingSetting, store.erase(conversation="a", block=True))

    @scenario
    async def test_all_conversations_of_a_recipient_are_erased(self, store: ConversationStore) -> None:
        await store.append("a1", turns(1), recipient="alice")
        await store.append("a2", turns(1), recipient="alice")
        await store.append("alice", turns(1))
        await store.append("b", turns(1), recipient="bob")

        receipt = await store.erase(recipient="alice")

        assert (receipt.conversations, receipt.entries) == (3, 15)
        assert [header.id for header in (await store.list()).items] == ["b"]
        assert await store.append("a3", text_entries("I am back"), recipient="alice") == 1

    @scenario
    async def test_forks_and_their_forks_are_erased_and_the_origin_is_not(self, store: ConversationStore) -> None:
        await store.append("a", turns(2))
        await store.fork("a", "b", at=5)
        await store.append("b", text_entries("in the fork"))
        await store.fork("b", "c")
        await store.fork("a", "d")

        assert (await store.erase(conversation="b")).conversations == 2
        await expect_error(ConversationErased, store.load("c"))
        assert (await store.load("a")).entries == (await store.load("d")).entries == tuple(turns(2))
        assert (await store.erase(conversation="a")).conversations == 2
        await expect_error(ConversationErased, store.load("d"))
        assert (await store.list()).items == ()

    @scenario
    async def test_erasing_does_not_remove_a_payload_that_other_conversations_share(
        self, store: ConversationStore
    ) -> None:
        large = "the same long report " * 1_000
        await store.append("a", text_entries(large))
        await store.append("b", text_entries(large))
        await store.fork("b", "c")

        await store.erase(conversation="a")
        await store.vacuum()

        assert texts((await store.load("b")).entries) == texts((await store.load("c")).entries) == [large]
        assert [hit.conversation for hit in (await store.search("report")).items] == ["b"]

    @scenario
    async def test_erasing_an_unknown_conversation_returns_zeros(self, store: ConversationStore) -> None:
        await add_full_conversation(store)
        await store.erase(conversation="a")

        for receipt in (
            await store.erase(conversation="a"),
            await store.erase(conversation="unknown"),
            await store.erase(recipient="unknown"),
        ):
            assert (receipt.conversations, receipt.entries) == (0, 0)
        assert await store.append("unknown", text_entries("x")) == 1
        await expect_error(MissingSetting, store.erase())
        await expect_error(InvalidSetting, store.erase(conversation="a", recipient="a"))

    @scenario
    async def test_receipts_have_different_ids(self, store: ConversationStore) -> None:
        assert (await store.erase(recipient="x")).id != (await store.erase(recipient="x")).id


class TenantContract:
    """Tests that a tenant cannot see another tenant's data."""

    @scenario
    async def test_every_operation_of_the_contract_is_tried(self, store: ConversationStore) -> None:
        public = {name for name in dir(ConversationStore) if not name.startswith("_")}

        assert public == {*ATTEMPTS, *SEPARATELY_TESTED}
        assert all(callable(getattr(store, name)) for name in public - {"tenant", "expire_after"})
        assert all(inspect.iscoroutinefunction(getattr(store, name)) for name in ATTEMPTS if name != "export")

    @scenario
    async def test_statistics_have_no_waiting_write_when_nothing_runs(self, store: ConversationStore) -> None:
        await store.append("a", text_entries("1"))

        figures = await store.statistics()

        assert figures.waiting_writes in {0, None}
        assert figures.waiting_for_connection in {0, None}

    @scenario
    async def test_another_tenants_conversation_is_not_found_and_not_changed(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        assert (store.tenant, other.tenant) != (other.tenant, store.tenant)
        await add_full_conversation(store)
        lease = await store.acquire_lease("a", "w", seconds=60)
        before = [await store.load("a"), await store.folds("a"), await _lines(store, "a")]
        document = await store.document("reply", "r")

        for attempt in ATTEMPTS.values():
            error = await expect_error(ConversationNotFound, attempt(other))
            assert not isinstance(error, ConversationErased)
        assert (await other.list()).items == ()
        assert (await other.list(recipient="alice")).items == ()
        assert (await other.search("question")).items == ()
        await expect_error(ConversationNotFound, other.search("question", conversation="a"))
        await expect_error(DocumentNotFound, other.document("reply", "r"))
        assert await other.delete_document("reply", "r") is False
        await expect_error(LeaseLost, other.renew_lease(lease, seconds=60))
        await other.release_lease(lease)
        assert (await other.acquire_and_load("a", "w", seconds=60)).loaded is None
        assert (await other.erase(conversation="a")).conversations == 0
        assert (await other.erase(recipient="alice")).conversations == 0
        await other.vacuum()

        assert [await store.load("a"), await store.folds("a"), await _lines(store, "a")] == before
        assert len((await store.search("question")).items) == 3
        assert (await store.documents("a", "reply")).items == (document,)
        assert (await store.renew_lease(lease, seconds=60)).fence == lease.fence

    @scenario
    async def test_two_tenants_may_use_the_same_names(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        await add_full_conversation(store)

        assert await other.append("a", turn(9), recipient="zoe", expected_version=0, idempotency_key="k") == 1
        assert (await other.load("a")).entries == tuple(turn(9))
        assert (await other.load("a")).folds == ()
        lines = await _lines(store, "a")
        await store.erase(conversation="a")
        assert (await other.load("a")).entries == tuple(turn(9))
        await store.for_tenant("third").import_(lines)
        assert (await store.for_tenant("third").load("a")).entries == tuple(turns(3))

    @scenario
    async def test_a_cursor_shows_no_other_tenants_data(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        for number in range(4):
            await store.append(f"mine {number}", text_entries("hello"))
            await other.append(f"theirs {number}", text_entries("hello"))

        listed, hits = await store.list(limit=2), await store.search("hello", limit=2)
        assert {header.tenant for header in (await other.list(cursor=listed.cursor)).items} <= {"another"}
        assert all(
            hit.conversation.startswith("theirs") for hit in (await other.search("hello", cursor=hits.cursor)).items
        )

    @scenario
    async def test_the_name_of_a_tenant_is_checked(self, store: ConversationStore) -> None:
        for wrong in ("", "\0", "x" * 513):
            try:
                store.for_tenant(wrong)
            except InvalidSetting:
                continue
            raise AssertionError(f"{wrong!r} became a tenant")

    @scenario
    async def test_every_handle_of_a_closed_store_raises(self, store: ConversationStore) -> None:
        other = store.for_tenant("another")
        await add_full_conversation(other)

        await store.close()
        await store.close()

        for attempt in ATTEMPTS.values():
            await expect_error(StoreUnavailable, attempt(other))
        await expect_error(StoreUnavailable, other.document("reply", "r"))
        await expect_error(StoreUnavailable, other.delete_document("reply", "r"))
        await expect_error(StoreUnavailable, other.acquire_lease("a", "w", seconds=60))
        await expect_error(StoreUnavailable, other.append("a", text_entries("x")))
        await expect_error(StoreUnavailable, store.list())
