"""What an open handle sees of the changes that other handles make, and tasks that share one handle during a run."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore, TurnStrategy, open_store
from minutebook.agent import ModelReply
from minutebook.conversation import AsyncConversation
from minutebook.errors import ConversationBusy, ConversationErased, StoreUnavailable
from minutebook.prompt import tool
from minutebook.record import Transcript
from minutebook.wire.chat import new_entries
from tests.agent.parts import InProcessAdapter


def contents(messages):
    return [message["content"] for message in messages]


def call(number):
    function = {"name": "look", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


async def fill(chat, turns=6):
    for number in range(turns):
        await chat.append(f"Question {number}: " + "word " * 40)
        await chat.append({"role": "assistant", "content": f"Answer {number}. " + "word " * 40})


def test_a_purge_is_seen_by_an_open_handle():
    async def scenario():
        async with MemoryStore() as store:
            one, other = (AsyncConversation("a", store=store) for _ in range(2))
            await fill(one)
            await other.open()
            await one.compact(TurnStrategy(keep_turns=1))
            (fold,) = await one.folds()
            await store.purge("a", before=fold.stop)
            return (await other.view()).messages, (await one.view()).messages, list(other), fold

    view, own_view, record, fold = asyncio.run(scenario())

    assert view == own_view
    assert "Question 0" not in str(record)
    assert fold.stop > 0


def test_a_trim_is_seen_by_an_open_handle():
    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("c", store=store)
            result = {"role": "tool", "tool_call_id": "call_1", "content": "a long result"}
            await chat.append("Look.")
            await chat.append(call(1))
            await chat.append(result)
            await chat.view()
            await store.trim("c", {2: {**result, "content": ""}})
            return contents((await chat.view()).messages)

    assert asyncio.run(scenario()) == ["Look.", None, ""]


def test_an_erasure_is_seen_by_an_open_handle():
    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("a", store=store)
            await chat.append("hello")
            await store.erase(conversation="a")
            for use in (chat.view, chat.folds, lambda: chat.append("again")):
                with pytest.raises(ConversationErased):
                    await use()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_conversation_that_expired_and_was_started_again_is_read_again(tmp_path, count):
    times = [datetime.now(UTC)]

    async def scenario():
        async with open_store(tmp_path / "chat.db", expire_after=timedelta(days=1), clock=lambda: times[0]) as store:
            chat = AsyncConversation("a", store=store)
            await chat.append("old 0")
            await chat.append("old 1")
            times[0] += timedelta(days=2)
            await store.expire()
            other = AsyncConversation("a", store=store)
            for number in range(count):
                await other.append(f"new {number}")
            return contents((await chat.view()).messages)

    assert asyncio.run(scenario()) == [f"new {number}" for number in range(count)]


def test_messages_that_are_appended_to_the_handle_during_its_run_are_stored_in_order():
    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("a", store=store, system="Be brief.")

            @tool
            async def look() -> str:
                """Look something up."""
                await asyncio.gather(*(chat.append(f"meanwhile {number}") for number in range(3)))
                assert len(chat) == len(await store_messages(store))
                return "found"

            adapter = InProcessAdapter(ModelReply(call(1)), ModelReply({"role": "assistant", "content": "Done."}))
            response = await chat.run(adapter, "Look.", tools=[look])
            await chat.append("after")
            return response, list(chat), await store_messages(store)

    response, record, stored = asyncio.run(scenario())

    assert response.text == "Done."
    assert record == stored
    assert not Transcript(stored, broken="mark").findings
    assert sorted(contents(stored)[2:5]) == ["meanwhile 0", "meanwhile 1", "meanwhile 2"]
    assert contents(stored)[-2:] == ["Done.", "after"]


class BusyStore(MemoryStore):
    """A store in which another process appends directly after each time that the record is read."""

    is_busy = False

    async def load(self, conversation, **settings):
        loaded = await super().load(conversation, **settings)
        if self.is_busy:
            self.is_busy = False
            await AsyncConversation(conversation, store=self).append("meanwhile")
            self.is_busy = True
        return loaded


def test_a_run_continues_however_often_others_append():
    async def scenario():
        async with BusyStore() as store:
            chat = AsyncConversation("a", store=store)

            @tool
            async def look() -> str:
                """Look something up."""
                store.is_busy = False
                await AsyncConversation("a", store=store).append("during the call")
                store.is_busy = True
                return "found"

            calls = [ModelReply(call(number)) for number in range(3)]
            adapter = InProcessAdapter(*calls, ModelReply({"role": "assistant", "content": "Done."}))
            response = await chat.run(adapter, "Look.", tools=[look])
            store.is_busy = False
            return response, list(await chat.open()), await store_messages(store), await chat.requests()

    response, record, stored, requests = asyncio.run(scenario())

    assert response.text == "Done."
    assert record == stored
    assert not Transcript(stored, broken="mark").findings
    assert contents(stored).count("found") == 3
    assert [request.number for request in requests] == [1, 2, 3, 4]


class ContestedStore(MemoryStore):
    """A store in which another process appends directly before each of the next appends."""

    losses = 0

    async def append(self, conversation, entries, **settings):
        if self.losses:
            self.losses -= 1
            await super().append(conversation, new_entries([{"role": "user", "content": "other"}]))
        return await super().append(conversation, entries, **settings)


def test_an_append_that_loses_to_other_writers_many_times_is_stored_once():
    async def scenario():
        async with ContestedStore() as store:
            chat = AsyncConversation("a", store=store)
            await chat.append("first")
            store.losses = 40
            position = await chat.append("second")
            return position, contents(await store_messages(store))

    position, stored = asyncio.run(scenario())

    assert (position, stored) == (41, ["first", *["other"] * 40, "second"])


async def store_messages(store):
    return (await store.load("a")).messages


class FailingStore(MemoryStore):
    """A store that is unavailable for the appends with these numbers."""

    appends, unavailable = 0, ()

    async def append(self, *args, **settings):
        self.appends += 1
        if self.appends in self.unavailable:
            raise StoreUnavailable("memory:", "is full")
        return await super().append(*args, **settings)


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_handle_has_the_stored_messages_after_a_run_that_could_not_save(failing):
    @tool
    def look() -> str:
        """Look something up."""
        return "found"

    async def scenario():
        async with FailingStore() as store:
            chat = AsyncConversation("a", store=store, system="Be brief.")
            await chat.append("hello", {"role": "assistant", "content": "hi"})
            store.appends, store.unavailable = 0, range(failing, 100)
            adapter = InProcessAdapter(ModelReply(call(1)), ModelReply({"role": "assistant", "content": "Done."}))
            with suppress(StoreUnavailable):
                await chat.run(adapter, "Look.", tools=[look])
            record, stored = list(chat), await store_messages(store)
            store.unavailable = ()
            await chat.append("after" if stored[-1]["role"] != "user" else {"role": "assistant", "content": "after"})
            return record, stored, list(chat), await store_messages(store)

    record, stored, record_after, stored_after = asyncio.run(scenario())

    assert record == stored
    assert record_after == stored_after
    assert len(stored) == 3 + [0, 1, 3, 4][failing - 1]


def test_a_handle_has_one_run_at_a_time():
    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("a", store=store)
            errors = []

            @tool
            async def look() -> str:
                """Look something up."""
                with pytest.raises(ConversationBusy) as caught:
                    await chat.run(InProcessAdapter(ModelReply({"role": "assistant", "content": "no"})), "And I?")
                errors.append(caught.value)
                return "found"

            adapter = InProcessAdapter(ModelReply(call(1)), ModelReply({"role": "assistant", "content": "Done."}))
            await chat.run(adapter, "Look.", tools=[look])
            return errors, contents(chat)

    errors, stored = asyncio.run(scenario())

    assert len(errors) == 1
    assert stored == ["Look.", None, "found", "Done."]


@pytest.mark.fuzz
@given(st.lists(st.sampled_from(["append", "view", "compact", "folds", "pin", "requests", "run"]), max_size=15))
def test_whatever_tasks_do_with_one_handle_nothing_is_lost_or_stored_twice(steps):
    texts = {f"message {number}" for number, step in enumerate(steps) if step in {"append", "run"}}

    async def take(chat, number, step):
        if step == "append":
            await chat.append(f"message {number}")
        elif step == "run":
            replies = [ModelReply(call(number)), ModelReply({"role": "assistant", "content": f"answer {number}"})]
            async with run_lock:
                await chat.run(InProcessAdapter(*replies), f"message {number}", tools=[look])
        elif step == "pin":
            await chat.pin(0)
        elif step == "compact":
            await chat.compact(TurnStrategy(keep_turns=1))
        else:
            await getattr(chat, step)()

    @tool
    async def look() -> str:
        """Look something up."""
        for _ in range(3):
            await asyncio.sleep(0)
        return "found"

    run_lock = asyncio.Lock()

    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("a", store=store, max_tokens=10_000)
            await chat.append("first", {"role": "assistant", "content": "hi"})
            await asyncio.gather(*(take(chat, number, step) for number, step in enumerate(steps)))
            await chat.folds()
            return list(chat), await store_messages(store), [request.number for request in await chat.requests()]

    record, stored, numbers = asyncio.run(scenario())

    assert record == stored
    assert sorted(text for text in contents(stored) if text and text.startswith("message")) == sorted(texts)
    assert not Transcript(stored, broken="mark").findings
    assert numbers == list(range(1, steps.count("view") + 2 * steps.count("run") + 1))
