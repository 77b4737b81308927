"""Trimming by retention, on every store."""

import asyncio

import pytest

from minutebook.conversation.config import Persistence, RetentionConfig
from minutebook.conversation.retention import RetentionPolicy
from minutebook.conversation.trimming import TrimResult, trim_all, trim_old_turns
from minutebook.record import is_valid
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
