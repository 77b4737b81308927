"""Recorded requests are shown as their minutes describe them."""

import asyncio

from minutebook import Conversation, open_store
from minutebook.service.inspector.policy import ReplayPolicy
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
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
