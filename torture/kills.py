"""Kills processes that write to a store, or the database server under them, many times."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from bench.report import progress
from torture.checker import ConversationChecker, Violations
from torture.server import Server
from torture.writers import WriterProcess, WriteTask

WRITERS = 8
KILLS_PER_BATCH = 100
"""Kills during the writing of one conversation. The next batch has a new conversation and, on SQLite, a new file."""
KILLS_PER_CHECK = 2
"""Kills after which new entries are read and checked. In between, the next writer finds what the kill left."""
MAX_TURNS_PER_RUN = 60
"""Maximum number of acknowledged turns after which a process is killed. The number is random."""
KILLS_PER_PROGRESS = 50
UNLIMITED = 1_000_000
"""A number of turns that no writer reaches before it is killed."""


@dataclass
class CrashResult:
    kills: int = 0
    acknowledged: int = 0
    retries: int = 0
    """Turns that were stored but not acknowledged when the process was killed, so that its client retried them."""
    violations: Violations = field(default_factory=Violations)

    def add(self, checker: ConversationChecker) -> None:
        self.acknowledged += len(checker.acknowledged)
        self.retries += checker.unacknowledged
        self.violations += checker.violations


def kill_writers(url_of: Callable[[int], str], kills: int, *, seed: int = 4, name: str = "") -> CrashResult:
    """Kill a process with several writers many times. Each new process retries the turns that were not acknowledged.

    `url_of` returns the store of a batch of kills, by its number.
    """
    draw, result = random.Random(seed), CrashResult()
    for batch, first in enumerate(range(0, kills, KILLS_PER_BATCH)):
        checker = ConversationChecker(url_of(batch), f"batch {batch}")
        next_turns = dict.fromkeys(range(WRITERS), 0)
        for kill in range(first, min(first + KILLS_PER_BATCH, kills)):
            task = WriteTask(checker.url, checker.conversation, "client", tuple(next_turns.values()), UNLIMITED)
            _acknowledge(checker, next_turns, run_and_kill(WriterProcess(task), draw))
            result.kills += 1
            if kill % KILLS_PER_CHECK == KILLS_PER_CHECK - 1:
                checker.check()
            if kill % KILLS_PER_PROGRESS == KILLS_PER_PROGRESS - 1:
                progress(f"{name}: {kill + 1:,} of {kills:,} kills, {len(checker.stored):,} turns in this batch")
        _finish(checker, next_turns)
        result.add(checker)
    return result


def kill_server(server: Server, kills: int, *, seed: int = 5, name: str = "") -> CrashResult:
    """Kill the database server many times, under one client that retries."""
    draw, result = random.Random(seed), CrashResult()
    checker = ConversationChecker(server.url(), "server kills")
    next_turns = dict.fromkeys(range(WRITERS), 0)
    task = WriteTask(
        checker.url, checker.conversation, "client", tuple(next_turns.values()), UNLIMITED, retry_unavailable=True
    )
    process = WriterProcess(task)
    try:
        keys = process.acknowledged_keys()
        for kill in range(kills):
            _acknowledge(checker, next_turns, islice(keys, draw.randint(1, MAX_TURNS_PER_RUN)))
            server.kill()
            server.start()
            result.kills += 1
            if kill % KILLS_PER_CHECK == KILLS_PER_CHECK - 1:
                progress(f"{name}: {kill + 1:,} of {kills:,} kills, {len(checker.acknowledged):,} turns acknowledged")
        _acknowledge(checker, next_turns, islice(keys, MAX_TURNS_PER_RUN))
    finally:
        process.kill()
    _acknowledge(checker, next_turns, keys)
    process.wait()
    _finish(checker, next_turns)
    result.add(checker)
    return result


def run_and_kill(process: WriterProcess, draw: random.Random) -> Iterable[str]:
    """Kill a process after some turns, or while it opens the store; return the keys that it acknowledged."""
    turns, keys = draw.randint(0, MAX_TURNS_PER_RUN), process.acknowledged_keys()
    acknowledged = list(islice(keys, turns))
    time.sleep(draw.uniform(0, 0.003 if turns else 0.06))
    process.kill()
    acknowledged += keys
    process.wait()
    return acknowledged


def _acknowledge(checker: ConversationChecker, next_turns: dict[int, int], keys: Iterable[str]) -> None:
    for key in keys:
        checker.acknowledged.add(key)
        writer, number = key.split()[1:]
        next_turns[int(writer)] = int(number) + 1


def _finish(checker: ConversationChecker, next_turns: dict[int, int]) -> None:
    """Write one more turn with each writer, so that every unacknowledged turn is retried."""
    checker.check()
    stop = max(next_turns.values()) + 1
    task = WriteTask(
        checker.url, checker.conversation, "client", tuple(next_turns.values()), stop, retry_unavailable=True
    )
    process = WriterProcess(task)
    _acknowledge(checker, next_turns, process.acknowledged_keys())
    process.wait()
    checker.check()
