"""Acknowledged means stored: writers that are killed, and writers in two processes."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import apsw

from minutebook import MessageRole
from minutebook.store.open import open_store
from tests.store.writing import turn

ROOT = Path(__file__).parents[2]
KILLS, WRITERS = 10, 4


def start(url, conversation, writers, count, name):
    command = [sys.executable, "-m", "tests.store.writing", url, conversation, str(writers), str(count), name]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def acknowledged(process, lines):
    """The keys that a process printed, of which the first is `ready`; it is killed after so many."""
    keys = []
    for line in process.stdout:
        if not line.endswith("\n"):
            break
        keys.append(line.strip())
        if len(keys) == lines:
            process.kill()
    process.stdout.close()
    process.wait()
    return keys[1:]


def whole_turns(url, conversation):
    """The keys of the turns that are stored, in order; each of them must be whole and next to the one before."""

    async def read():
        async with open_store(url) as store:
            return await store.load(conversation)

    loaded = asyncio.run(read())
    assert list(loaded.positions) == list(range(len(loaded.entries)))
    assert loaded.conversation.length == len(loaded.entries)
    assert loaded.conversation.open_calls == ()
    keys = [entry.content for entry in loaded.entries if entry.role is MessageRole.USER]
    expected = [entry for key in keys for entry in turn(*key.split())]
    assert [entry.content for entry in loaded.entries] == [entry.content for entry in expected]
    return keys


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path):
    url, seen, number = f"sqlite:///{tmp_path / 'chat.db'}", [], random.Random(4)

    for kill in range(KILLS):
        process = start(url, "a", WRITERS, 10_000, f"run{kill}")
        seen += acknowledged(process, number.randint(1, 40))

    stored = whole_turns(url, "a")
    assert set(seen) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(seen) <= KILLS * WRITERS
    with apsw.Connection(str(tmp_path / "chat.db")) as db:
        assert db.execute("PRAGMA integrity_check").get == "ok"


def test_a_killed_writer_that_tries_again_doubles_nothing(tmp_path):
    url = f"sqlite:///{tmp_path / 'chat.db'}"

    for lines in (5, 9, 14, 100):
        acknowledged(start(url, "a", WRITERS, 5, "same"), lines)

    assert sorted(whole_turns(url, "a")) == sorted(
        f"same {writer} {at}" for writer in range(WRITERS) for at in range(5)
    )


def test_two_processes_write_one_conversation_and_each_keeps_its_order(tmp_path):
    url = f"sqlite:///{tmp_path / 'chat.db'}"

    both = [start(url, "a", 10, 10, name) for name in ("left", "right")]
    said = [acknowledged(process, 1_000) for process in both]

    stored = whole_turns(url, "a")
    assert sorted(stored) == sorted(said[0] + said[1])
    assert len(stored) == 200
    for name in ("left", "right"):
        for writer in range(10):
            mine = [key for key in stored if key.startswith(f"{name} {writer} ")]
            assert mine == [f"{name} {writer} {number}" for number in range(10)]
    assert [process.returncode for process in both] == [0, 0]
