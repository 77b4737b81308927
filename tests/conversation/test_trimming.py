"""Trimming by retention, on every store."""

import asyncio

import pytest

from minutebook.conversation.config import Persistence, RetentionConfig
from minutebook.conversation.retention import RetentionPolicy
from minutebook.conversation.trimming import TrimResult, trim_all, trim_old_turns
from minutebook.record import is_valid
from minutebook.testing.contract.samples import summary_fold
from tests.service.parts import entries, turn, turns
from tests.store.backends import BACKENDS


@pytest.fixture(params=sorted(BACKENDS))
def opened(request, tmp_path):
    return lambda: BACKENDS[request.param](tmp_path)


def test_turns_are_trimmed_once_when_they_leave_the_window(opened):
    config = RetentionConfig(tool_persistence="trimmed")

    async def work():
        async with opened() as store:
            done = []
            for number in range(4):
                await store.append("c", entries(turn(number)))
                done.append((await trim_old_turns(store, "c", config)).trimmed)
            again = await trim_old_turns(store, "c", config)
            return done, again, (await store.load("c")).messages, await RetentionPolicy().load_messages(store, "c", 4)

    done, again, messages, newest = asyncio.run(work())
    assert done == [0, 0, 2, 2]
    assert again == TrimResult()
    assert [message["content"] for message in messages if message["role"] == "tool"][:2] == ["[trimmed: ok]"] * 2
    assert messages[8:] == newest == turns(4)[8:]
    assert is_valid(messages)


def test_a_dry_run_says_what_is_then_done(opened):
    async def work():
        async with opened() as store:
            await store.append("c", entries(turns(5)))
            given = {"older_than_turns": 1, "persistence": Persistence.NAME}
            return [await trim_all(store, "c", write=write, **given) for write in (False, True, True)]

    dry, real, again = asyncio.run(work())
    assert (dry.trimmed, dry.freed_bytes) == (real.trimmed, real.freed_bytes)
    assert (dry.trimmed, dry.written, real.written) == (8, False, True)
    assert again.trimmed == 0


@pytest.mark.parametrize("page_size", [4, 500])
@pytest.mark.parametrize("purged", [0, 12])
@pytest.mark.parametrize("older_than_turns", [1, 2, 4, 9])
def test_the_same_messages_are_trimmed_whether_a_conversation_fits_into_a_page(
    opened, monkeypatch, page_size, purged, older_than_turns
):
    monkeypatch.setattr("minutebook.conversation.trimming._PAGE_SIZE", page_size)

    async def work():
        async with opened() as store:
            await store.append("c", entries(turns(5)))
            if purged:
                await store.add_fold("c", summary_fold("f", 0, purged))
                await store.purge("c", before=purged)
            await trim_all(store, "c", older_than_turns=older_than_turns, persistence=Persistence.STATUS, write=True)
            loaded = await store.load("c")
            return dict(zip(loaded.positions, loaded.messages, strict=True))

    messages = asyncio.run(work())
    trimmed = [position for position, message in messages.items() if message["content"] == "[trimmed: ok]"]
    results = [position for position, message in messages.items() if message["role"] == "tool"]
    newest = max(0, 20 - 4 * older_than_turns)
    assert trimmed == [position for position in results if position < newest]
