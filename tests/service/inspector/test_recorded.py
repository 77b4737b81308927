"""Recorded requests are shown as their minutes describe them."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

import pytest

from minutebook import Conversation, MemoryStore, open_store
from minutebook.errors import MinutebookError
from minutebook.service.inspector.policy import ReplayPolicy
from minutebook.service.inspector.source import ListFilter
from minutebook.service.inspector.sources import database
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
from minutebook.testing.contract.samples import entries_of
from tests.service.inspector.parts import session


def test_every_recorded_request_has_the_statuses_and_tokens_of_its_minutes(tmp_path):
    path = str(tmp_path / "chat.db")
    messages = session(12)["messages"]
    with Conversation("a", store=path, model="gpt-4o", max_tokens=2_500) as chat:
        for message in messages:
            if message["role"] == "assistant":
                chat.view()
            chat.append(message)
        expected = [
            (
                [request.why(position).status for position in range(request.length)],
                request.tokens_after,
                len(request.messages),
            )
            for request in map(chat.request, range(1, 25))
        ]

    async def read():
        async with open_store(path) as store:
            source = StoreSource(store, ReplayPolicy(), name="chat.db", cache=OpenConversations())
            return await source.open("a")

    shown = asyncio.run(read())
    assert not shown.is_replay
    assert len(shown.requests) == len(expected) == 24
    for request, (statuses, tokens, count) in zip(shown.requests, expected, strict=True):
        found = [span.status for span in shown.fate_spans(request) for _ in range(span.start, span.stop)]
        assert found == statuses
        assert request.sent == tokens
        assert shown.sent_count(request) == count
        assert sum(shown.sent_tokens(request, position) for position in range(request.length)) == tokens
    assert any(request.cache_break for request in shown.requests)


def test_a_long_conversation_is_shown_before_all_of_it_is_loaded(monkeypatch):
    monkeypatch.setattr(database, "MAX_LISTED", 3)
    monkeypatch.setattr(database, "FIRST_MESSAGES", 2)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0)

    async def shown():
        store = MemoryStore()
        await store.append("a", entries_of(session(4)["messages"]), expected_version=0)
        source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations())
        first = await source.open_first("a")
        later = await asyncio.gather(source.open("a"), source.open("a"))
        return first, *later, await source.open_first("a")

    first, *later = asyncio.run(shown())

    assert (len(first.messages), len(first.requests), first.is_complete) == (2, 0, False)
    assert [len(conversation.messages) for conversation in later] == [17, 17, 17]
    assert len(set(map(id, later))) == 1


def test_a_conversation_that_could_not_be_loaded_is_loaded_again(monkeypatch):
    async def read():
        store = MemoryStore()
        await store.append("a", entries_of(session(4)["messages"]), expected_version=0)
        source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations())
        with monkeypatch.context() as patch:
            patch.setattr(database, "PLAN_KIND", "\0")
            with pytest.raises(MinutebookError):
                await source.open("a")
        return await source.open("a")

    assert len(asyncio.run(read()).messages) == 17


def test_a_long_conversation_gets_its_figures_in_the_list_after_it_was_loaded(monkeypatch):
    monkeypatch.setattr(database, "MAX_LISTED", 3)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.005)

    async def lists():
        store = MemoryStore()
        for name in "ab":
            await store.append(name, entries_of(session(4)["messages"]), expected_version=0)
        source = StoreSource(store, ReplayPolicy(max_tokens=2_000), name="a", cache=OpenConversations())
        found = await source.list(ListFilter())
        yield found
        while not found.is_complete:
            await asyncio.sleep(0.005)
            found = await source.list(ListFilter())
        yield found

    async def read():
        return [found async for found in lists()]

    first, last = asyncio.run(read())

    assert [item.cost for item in first.items] == [None, None]
    assert not first.is_complete
    assert all(item.cost > 0 and item.requests == 8 for item in last.items)


def test_the_figures_of_a_long_conversation_that_grows_are_not_computed_at_every_change(monkeypatch):
    monkeypatch.setattr(database, "MAX_LISTED", 3)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.005)
    monkeypatch.setattr(database, "PAUSE_FACTOR", 1e9)

    async def lists():
        store = MemoryStore()
        version = await store.append("a", entries_of(session(4)["messages"]), expected_version=0)
        cache = OpenConversations()
        source = StoreSource(store, ReplayPolicy(max_tokens=2_000), name="a", cache=cache)
        found = await source.list(ListFilter())
        while not found.is_complete:
            await asyncio.sleep(0.005)
            found = await source.list(ListFilter())
        yield found.items[0]
        await store.append("a", entries_of(session(5)["messages"][17:]), expected_version=version)
        yield (await source.list(ListFilter())).items[0]
        cache.summaries = OrderedDict((key, replace(known, next_at=0.0)) for key, known in cache.summaries.items())
        while found.items[0].requests == 8:
            await asyncio.sleep(0.005)
            found = await source.list(ListFilter())
        yield found.items[0]

    async def read():
        return [item async for item in lists()]

    first, changed, later = asyncio.run(read())

    assert (first.messages, first.requests) == (17, 8)
    assert (changed.messages, changed.turns, changed.requests, changed.cost) == (21, 5, 8, first.cost)
    assert (later.messages, later.requests) == (21, 10)


def test_branches_and_origins_are_found_among_many_other_conversations(monkeypatch):
    monkeypatch.setattr(database, "MAX_BRANCH_PAGES", 1)

    async def read():
        store = MemoryStore()
        for name in ("old", "root"):
            await store.append(name, entries_of(session(1)["messages"]), expected_version=0, recipient="r")
        await store.fork("root", "child", at=2)
        await store.fork("child", "grandchild", at=2)
        source = StoreSource(store, ReplayPolicy(max_tokens=2_000), name="a", cache=OpenConversations())
        found = await source.branches("child")
        for number in range(201):
            await store.append(f"new-{number}", entries_of(session(1)["messages"]), expected_version=0, recipient="r")
        return found, await source.branches("grandchild")

    found, among_many = asyncio.run(read())

    assert found.is_complete
    assert [(node.id, node.depth) for node in found.nodes] == [("root", 0), ("child", 1), ("grandchild", 2)]
    assert not among_many.is_complete
    assert [node.id for node in among_many.nodes] == ["root", "child", "grandchild"]
