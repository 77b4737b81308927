"""Recorded requests are shown as their minutes describe them."""

import asyncio

from minutebook import Conversation, MemoryStore, open_store
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
