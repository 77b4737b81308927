"""Records that are kept between requests: what a request sends does not depend on them."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook import Fold, MemoryStore, view_of
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.policy import Policy
from minutebook.conversation.record_cache import CachedRecord, RecordCache, is_identical
from minutebook.errors import CannotFit, ConversationErased
from minutebook.tokens import counter_for
from minutebook.wire import new_entries
from tests.every import MANAGERS
from tests.strategies import conversations

COUNTER = counter_for(None)


def sent_by(store, record, new, manager, copies=None, max_tokens=None):
    """What a request sends, as JSON, and its minutes; the error if it cannot fit."""
    settings = CallSettings(
        conversation="c",
        model="m",
        policy=Policy("mine", manager, max_tokens=max_tokens),
        counter=COUNTER,
        run_id="run",
        request_id="request",
        fails_open=False,
    )
    call = ModelCall(store, settings, None, new, source=record.source(COUNTER, copies), version=record.header.version)
    try:
        call.build_view()
    except CannotFit as error:
        return str(error)
    return json.dumps(call.messages), call.minutes


def turns_of(chat):
    """The messages in groups that each start with a user message."""
    turns = []
    for message in chat:
        if message["role"] == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


async def change(store, data, length):
    """Change what is stored behind the back of a cached record."""
    kind = data.draw(st.sampled_from(["nothing", "nothing", "pin", "unpin", "trim", "fold", "undo"]))
    loaded = await store.load("c")
    results = [position for position, message in enumerate(loaded.messages) if message["role"] == "tool"]
    position = data.draw(st.sampled_from(results if results and kind == "trim" else range(length)))
    if kind == "pin":
        await store.pin("c", position)
    elif kind == "unpin" and loaded.pins:
        await store.unpin("c", min(loaded.pins))
    elif kind == "trim" and position in results:
        await store.trim("c", {position: {**loaded.messages[position], "content": ""}})
    elif kind == "fold":
        record = CachedRecord(loaded).source(COUNTER).record
        exchange = record.exchange_of(position)
        start = record.leading_system_count
        if start < exchange.stop and not loaded.folds and not loaded.pins:
            summary = {"role": "system", "content": "a summary"}
            await store.add_fold("c", Fold(f"fold at {length}", start, exchange.stop, (summary,), "test"))
    elif kind == "undo" and loaded.folds:
        await store.undo_fold("c", loaded.folds[0].id)


@settings(max_examples=5 * settings().max_examples)
@given(st.sampled_from(sorted(MANAGERS)), st.data())
def test_a_kept_record_gives_the_view_of_the_whole_record(name, data):
    manager, turns = MANAGERS[name], turns_of(data.draw(conversations(user_first=True)))

    async def scenario():
        async with MemoryStore() as store:
            cache, chat = RecordCache(10**9), []
            for turn in turns:
                new, answer = turn[:1], turn[1:]
                cold = CachedRecord(await store.load("c")) if chat else None
                warm = await cache.load(store, "c") if chat else None
                if warm is not None and cold is not None:
                    outcome = sent_by(store, warm, new, manager)
                    assert outcome == sent_by(store, cold, new, manager)
                    if not warm.folds and not warm.pins and not isinstance(outcome, str):
                        whole = view_of([*cold.messages, *new], manager)
                        assert outcome[0] == json.dumps([dict(message) for message in whole.messages])
                    cache.put(warm)
                await store.append("c", new_entries(turn), broken="mark")
                chat += [*new, *answer]
                await change(store, data, len(chat))

    asyncio.run(scenario())


CHAT = [
    {"role": "system", "content": "be brief"},
    *({"role": ("user", "assistant")[number % 2], "content": f"{number} " * 9} for number in range(8)),
]
EXCHANGE = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "a long result"},
]
USER = {"role": "user", "content": "and?"}


async def kept(store, cache, manager=MANAGERS["window 4"]):
    """A record that a first request has indexed."""
    await store.append("c", new_entries(CHAT))
    record = await cache.load(store, "c")
    sent_by(store, record, [USER], manager)
    cache.put(record)


def indexes_again(record):
    return len(record.unindexed(COUNTER)) == len(record.messages)


def test_only_what_was_added_is_indexed():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            await store.append("c", new_entries([USER, {"role": "assistant", "content": "so"}]))
            record = await cache.load(store, "c")
            source = record.source(COUNTER)
            cache.put(record)
            await store.append("c", new_entries([USER]))
            record = await cache.load(store, "c")
            assert [message["content"] for message in record.unindexed(COUNTER)] == ["and?"]
            assert record.source(COUNTER) is source

    asyncio.run(scenario())


def test_messages_of_a_request_that_was_not_stored_are_forgotten():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            record = await cache.load(store, "c")
            assert list(record.source(COUNTER).record) == CHAT
            cache.put(record)
            await store.append("c", new_entries([{"role": "user", "content": "another"}]))
            record = await cache.load(store, "c")
            assert list(record.source(COUNTER).record) == [*CHAT, {"role": "user", "content": "another"}]

    asyncio.run(scenario())


def test_a_copy_that_the_client_no_longer_resends_is_not_sent():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            record, copy = await cache.load(store, "c"), {**CHAT[8], "name": "bot"}
            passthrough = MANAGERS["passthrough"]
            assert '"name": "bot"' in sent_by(store, record, [USER], passthrough, {8: copy})[0]
            assert '"name": "bot"' not in sent_by(store, record, [USER], passthrough)[0]
            reordered = dict(reversed(copy.items()))
            sent_by(store, record, [USER], passthrough, {8: copy})
            assert list(json.loads(sent_by(store, record, [USER], passthrough, {8: reordered})[0])[8]) == list(
                reordered
            )

    asyncio.run(scenario())


def test_a_purged_record_is_read_again():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            await store.add_fold("c", Fold("all", 0, 5, ({"role": "system", "content": "s"},), "r"))
            await store.purge("c", before=5)
            purged = await cache.load(store, "c")
            assert (purged.first, purged.messages[5]) == (5, CHAT[5])

    asyncio.run(scenario())


def test_a_trimmed_record_is_read_again():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            await store.append("c", new_entries(EXCHANGE))
            cache.put(await cache.load(store, "c"))
            await store.trim("c", {10: {**EXCHANGE[1], "content": ""}})
            assert (await cache.load(store, "c")).messages[10]["content"] == ""

    asyncio.run(scenario())


def test_an_erased_conversation_is_not_found_in_the_cache():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            await store.erase(conversation="c")
            with pytest.raises(ConversationErased):
                await cache.load(store, "c")
            assert cache.size == 0

    asyncio.run(scenario())


def test_the_cache_is_bounded_and_drops_what_was_used_least_recently():
    async def scenario():
        async with MemoryStore() as store:
            await store.append("c", new_entries(CHAT))
            loaded = await store.load("c")
            records = [
                CachedRecord(replace(loaded, conversation=replace(loaded.conversation, id=str(number))))
                for number in range(4)
            ]
            cache = RecordCache(3 * records[0].size)
            for record in records:
                cache.put(record)
            assert cache.size == 3 * records[0].size
            assert [cache.take("default", str(number)) is None for number in range(4)] == [True, False, False, False]
            assert cache.size == 0

    asyncio.run(scenario())


def test_other_tenants_have_other_records():
    async def scenario():
        async with MemoryStore() as store:
            cache = RecordCache(10**9)
            await kept(store, cache)
            assert await cache.load(store.for_tenant("other"), "c") is None
            cache.clear("default")
            assert cache.take("default", "c") is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [({"a": 1}, {"a": 1}, True), ({"a": 1}, {"a": 1.0}, False), ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False)],
)
def test_messages_are_compared_as_json_texts(one, other, same):
    assert is_identical(one, other) is same
