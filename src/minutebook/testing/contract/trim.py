"""Tests of trimming: only arguments and results of tool calls may be shortened."""

from dataclasses import replace
from typing import Any

from minutebook.errors import ConversationErased, InvalidMessage, InvalidSetting
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.testing.contract.samples import entries_of, expect_error, scenario, summary_fold, text_entries, turns

LARGE = "a long page about walnuts " * 1_000


def messages_with_call(name: str, arguments: str = '{"page": "chestnuts"}', content: str = LARGE) -> list[Message]:
    """A user message, a call, its result and an answer."""
    calls = [{"id": name, "type": "function", "function": {"name": "read", "arguments": arguments}}]
    return [
        {"role": "user", "content": f"read {name}"},
        {"role": "assistant", "content": "I will", "tool_calls": calls},
        {"role": "tool", "tool_call_id": name, "content": content},
        {"role": "assistant", "content": f"done {name}"},
    ]


def with_changes(message: Message, **changed: Any) -> Message:
    """A copy of the message with some fields changed."""
    return {**message, **changed}


class TrimContract:
    """Tests of trimming."""

    @scenario
    async def test_results_and_arguments_are_replaced_and_nothing_else(self, store: ConversationStore) -> None:
        chat, short = messages_with_call("c1"), messages_with_call("c1", "{}", "[cleared]")
        await store.append("a", entries_of([*chat, *messages_with_call("c2")]))
        await store.add_fold("a", summary_fold("f", 4, 8))
        await store.pin("a", 2)
        before = await store.load("a")

        assert await store.trim("a", {1: short[1], 2: short[2]}) == 2

        after = await store.load("a")
        assert after.messages == [*short, *messages_with_call("c2")]
        assert after.conversation == replace(before.conversation, revision=1)
        assert (after.folds, after.pins) == (before.folds, before.pins)
        assert after.entries[2].evaluation_id == before.entries[2].evaluation_id
        assert (after.entries[2].created_at, after.entries[2].model) == (before.entries[2].created_at, "m")
        assert (await store.load("a", last_turns=1)).start == 4
        assert await store.append("a", entries_of(messages_with_call("c3"))) == 2
        assert (await store.header("a")).revision == 1

    @scenario
    async def test_trimming_twice_has_no_effect(self, store: ConversationStore) -> None:
        await store.append("a", entries_of(messages_with_call("c1")))
        short = messages_with_call("c1", "{}", "[cleared]")

        assert await store.trim("a", {2: short[2]}) == 1
        assert await store.trim("a", {1: short[1], 2: short[2]}) == 1
        assert await store.trim("a", {1: short[1], 2: short[2]}) == 0
        assert await store.trim("a", {}) == 0
        assert (await store.header("a")).revision == 2

    @scenario
    async def test_trimmed_content_is_not_found(self, store: ConversationStore) -> None:
        await store.append("a", entries_of([*messages_with_call("c1"), *messages_with_call("c2")]))
        assert [hit.position for hit in (await store.search("walnuts")).items] == [6, 2]

        await store.trim("a", {2: messages_with_call("c1", content="[cleared hazelnuts]")[2]})

        assert [hit.position for hit in (await store.search("walnuts")).items] == [6]
        assert [hit.position for hit in (await store.search("hazelnuts")).items] == [2]
        assert [hit.position for hit in (await store.search("done")).items] == [7, 3]
        await store.append("a", entries_of(messages_with_call("c3", content="walnuts at the end")))
        await store.trim("a", {10: messages_with_call("c3", content="nothing")[2]})
        assert [hit.position for hit in (await store.search("walnuts")).items] == [6]

    @scenario
    async def test_only_tool_payloads_may_change_and_none_may_grow(self, store: ConversationStore) -> None:
        chat = messages_with_call("c1")
        await store.append("a", entries_of([{"role": "system", "content": "be brief"}, *chat]))
        before = (await store.load("a")).entries
        call = chat[1]["tool_calls"][0]
        other_name = {**call, "function": {**call["function"], "name": "x"}}

        wrong = {
            0: {"role": "system", "content": ""},
            1: with_changes(chat[0], content=""),
            2: with_changes(chat[1], content=""),
            3: with_changes(chat[2], tool_call_id="c2", content=""),
            4: with_changes(chat[3], content=""),
        }
        for position, message in wrong.items():
            await expect_error(
                InvalidSetting, store.trim("a", {3: with_changes(chat[2], content=""), position: message})
            )
        for message in (
            with_changes(chat[1], tool_calls=[]),
            with_changes(chat[1], tool_calls=[{**call, "id": "c2"}]),
            with_changes(chat[1], tool_calls=[other_name]),
            with_changes(chat[1], tool_calls=[call, call]),
            with_changes(chat[1], more="text"),
            chat[0],
        ):
            await expect_error(InvalidSetting, store.trim("a", {2: message}))
        await expect_error(InvalidSetting, store.trim("a", {3: with_changes(chat[2], name="read", content="")}))
        await expect_error(InvalidSetting, store.trim("a", {3: with_changes(chat[2], content=LARGE + "more")}))
        await expect_error(InvalidSetting, store.trim("a", {5: chat[3]}))
        await expect_error(InvalidSetting, store.trim("a", {-1: chat[3]}))
        await expect_error(InvalidMessage, store.trim("a", {3: {"role": "tool", "content": ""}}))

        assert (await store.load("a")).entries == before

    @scenario
    async def test_forks_keep_entries_that_their_origin_trims(self, store: ConversationStore) -> None:
        chat, short = messages_with_call("c1"), messages_with_call("c1", "{}", "[cleared]")
        await store.append("a", entries_of([*chat, *messages_with_call("c2")]))
        await store.fork("a", "b")
        await store.fork("b", "c", at=4)
        await store.append("b", text_entries("only in b"))
        await store.fork("a", "d", at=0)
        assert [hit.conversation for hit in (await store.search("walnuts")).items] == ["a", "a"]

        await store.trim("a", {2: short[2]})
        await store.trim("b", {1: short[1]})

        assert (await store.load("a")).messages == [*chat[:2], short[2], chat[3], *messages_with_call("c2")]
        assert (await store.load("b")).messages == [
            *(chat[0], short[1], *chat[2:], *messages_with_call("c2")),
            {"role": "user", "content": "only in b"},
        ]
        assert (await store.load("c")).messages == chat
        assert [hit.position for hit in (await store.search("walnuts", conversation="b")).items] == [6, 2]
        assert [hit.position for hit in (await store.search("walnuts", conversation="c")).items] == [2]
        assert [hit.position for hit in (await store.search("walnuts", conversation="a")).items] == [6]
        assert [(hit.conversation, hit.position) for hit in (await store.search("walnuts")).items] == [("a", 6)]
        assert (await store.load("b", last_turns=2)).start == 4
        await store.fork("b", "e", at=4)
        assert (await store.load("e")).messages == [chat[0], short[1], *chat[2:]]
        assert (await store.erase(conversation="b")).conversations == 3
        assert (await store.load("a")).messages == [*chat[:2], short[2], chat[3], *messages_with_call("c2")]

    @scenario
    async def test_trimming_a_fork_does_not_change_its_origin(self, store: ConversationStore) -> None:
        chat, short = messages_with_call("c1"), messages_with_call("c1", "{}", "[cleared]")
        await store.append("a", entries_of([*chat, *messages_with_call("c2")]))
        await store.fork("a", "b")
        await store.fork("b", "c")

        await store.trim("b", {1: short[1], 2: short[2]})

        assert (
            (await store.load("a")).messages == (await store.load("c")).messages == [*chat, *messages_with_call("c2")]
        )
        assert (await store.load("b")).messages == [*short, *messages_with_call("c2")]
        assert [hit.position for hit in (await store.search("walnuts", conversation="b")).items] == [6]
        assert [(hit.conversation, hit.position) for hit in (await store.search("walnuts")).items] == [
            ("a", 6),
            ("a", 2),
        ]

    @scenario
    async def test_purging_and_trimming_work_together(self, store: ConversationStore) -> None:
        chat = [*messages_with_call("c1"), *messages_with_call("c2"), *messages_with_call("c3")]
        await store.append("a", entries_of(chat))
        await store.add_fold("a", summary_fold("f", 0, 4))
        await store.purge("a", before=4)
        await store.fork("a", "b", at=8)

        await expect_error(InvalidSetting, store.trim("a", {2: with_changes(chat[2], content="")}))
        await store.trim("a", {6: with_changes(chat[6], content="x")})
        await store.add_fold("a", summary_fold("g", 4, 8))
        await store.purge("a", before=8)

        assert (await store.load("a")).messages == chat[8:]
        assert (await store.load("b")).messages == chat[4:8]
        assert (await store.load("b", last_turns=1)).start == 4

    @scenario
    async def test_trimming_does_not_remove_a_payload_that_others_share(self, store: ConversationStore) -> None:
        await store.append("a", entries_of([*messages_with_call("c1"), *messages_with_call("c2")]))
        await store.append("b", entries_of(messages_with_call("c1")))

        await store.trim("a", {2: messages_with_call("c1", content="")[2]})
        await store.vacuum()

        assert (await store.load("a")).messages[6]["content"] == LARGE
        assert (await store.load("b")).messages == messages_with_call("c1")
        await store.erase(conversation="a")
        await expect_error(ConversationErased, store.trim("a", {}))
        assert (await store.load("b")).messages == messages_with_call("c1")

    @scenario
    async def test_a_result_of_parts_may_become_text(self, store: ConversationStore) -> None:
        parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
        chat = [
            *turns(1),
            *entries_of(
                [*messages_with_call("c1")[:2], with_changes(messages_with_call("c1")[2], content=parts, is_error=True)]
            ),
        ]
        await store.append("a", chat)

        assert await store.trim("a", {7: {"role": "tool", "tool_call_id": "c1", "content": "-", "is_error": True}}) == 1
        assert (await store.load("a")).messages[7]["content"] == "-"
        assert (await store.load("a")).messages[7]["is_error"] is True
