"""Messages that are refused today may be in a store: imported, or written by an earlier version. They stay readable."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore, check
from minutebook.agent import ModelReply
from minutebook.conversation import AsyncConversation
from minutebook.errors import InvalidMessage
from minutebook.record.finding import errors
from tests.agent.parts import InProcessAdapter
from tests.service.parts import entries
from tests.strategies import conversations

REFUSED = (None, [], ["x"], [{"text": "no type"}])
ANSWER = {"role": "assistant", "content": "yes"}
BROKEN = st.sampled_from(
    [
        *({"role": role, "content": content} for role in ("user", "system") for content in REFUSED),
        {"role": "user"},
        {"role": "tool", "tool_call_id": "nobody", "content": "an orphan"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "open", "function": {"name": "f"}}]},
    ]
)


async def store_with(messages):
    store = MemoryStore()
    await store.append("a", entries(messages), broken="mark")
    return store


@pytest.mark.parametrize("content", REFUSED, ids=repr)
@pytest.mark.parametrize("strategy", [None, "summarize"])
def test_a_stored_message_with_content_that_is_refused_today_is_repaired_in_views(content, strategy):
    async def scenario():
        async with await store_with([{"role": "user", "content": content}, ANSWER]) as store:
            chat = AsyncConversation("a", store=store, max_tokens=5_000, strategy=strategy)
            with pytest.raises(InvalidMessage):
                await chat.append({"role": "user", "content": content})
            await chat.append("And now?")
            reply = await chat.run(InProcessAdapter(ModelReply(ANSWER)))
            return await chat.view(), await chat.fit(), reply, list(chat)

    view, preview, reply, record = asyncio.run(scenario())

    assert not errors(check(view.messages))
    assert view.messages == preview.messages
    assert any(violation.in_record and "message 0" in violation.detail for violation in view.violations)
    assert reply.text == "yes"
    assert record[0]["content"] == content


@pytest.mark.fuzz
@given(
    conversations(max_steps=6),
    st.lists(st.tuples(st.integers(0, 20), BROKEN), max_size=4),
    st.sampled_from([None, "truncate", "summarize", "hybrid", "turns"]),
)
def test_no_stored_message_makes_a_view_raise(messages, broken, strategy):
    for position, message in broken:
        messages.insert(position, message)

    async def scenario():
        async with await store_with(messages or [ANSWER]) as store:
            chat = AsyncConversation("a", store=store, max_tokens=100_000, strategy=strategy)
            await chat.view()
            await chat.append("And now?")
            return await chat.view()

    assert not errors(check(asyncio.run(scenario()).messages))
