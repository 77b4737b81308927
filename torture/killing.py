"""Writers that are killed, again and again, in the middle of their work."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from bench.report import progress
from torture.ledger import Found, Ledger
from torture.server import Server
from torture.writing import Task, Writing

WRITERS = 8
STRETCH = 100
"""How many kills one conversation sees; the next ones have another, in a new file where there are files."""
CHECKED = 2
"""After how many kills everything that is new is read. In between, whoever writes next finds what the kill left."""
MOST_KEYS = 60
"""A writer is killed after up to so many acknowledged turns, at any moment."""
TOLD = 50
LONG = 1_000_000


@dataclass
class Tally:
    """What a number of kills did."""

    kills: int = 0
    acknowledged: int = 0
    unheard: int = 0
    """Stored and not acknowledged when the kill came: the client asked for them again."""
    found: Found = field(default_factory=Found)

    def add(self, ledger: Ledger) -> None:
        self.acknowledged += len(ledger.acknowledged)
        self.unheard += ledger.unheard
        self.found += ledger.found


def kill_writers(url_of: Callable[[int], str], kills: int, *, seed: int = 4, name: str = "") -> Tally:
    """Kill a process of several writers that many times; each next one asks again for what was not acknowledged.

    `url_of` gives the store of each stretch of kills.
    """
    draw, tally = random.Random(seed), Tally()
    for stretch, first in enumerate(range(0, kills, STRETCH)):
        ledger = Ledger(url_of(stretch), f"stretch {stretch}")
        done = dict.fromkeys(range(WRITERS), 0)
        for kill in range(first, min(first + STRETCH, kills)):
            task = Task(ledger.url, ledger.conversation, "client", tuple(done.values()), LONG)
            _note(ledger, done, _killed(Writing(task), draw))
            tally.kills += 1
            if kill % CHECKED == CHECKED - 1:
                ledger.check()
            if kill % TOLD == TOLD - 1:
                progress(f"{name}: {kill + 1:,} of {kills:,} killed, {len(ledger.stored):,} turns in this stretch")
        _finish(ledger, done)
        tally.add(ledger)
    return tally


def kill_server(server: Server, kills: int, *, seed: int = 5, name: str = "") -> Tally:
    """Kill the server that many times under a client that does not give up."""
    draw, tally = random.Random(seed), Tally()
    ledger = Ledger(server.url(), "through it all")
    done = dict.fromkeys(range(WRITERS), 0)
    writing = Writing(Task(ledger.url, ledger.conversation, "client", tuple(done.values()), LONG, patient=True))
    try:
        keys = writing.acknowledged()
        for kill in range(kills):
            _note(ledger, done, islice(keys, draw.randint(1, MOST_KEYS)))
            server.kill()
            server.start()
            tally.kills += 1
            if kill % CHECKED == CHECKED - 1:
                progress(f"{name}: {kill + 1:,} of {kills:,} killed, {len(ledger.acknowledged):,} turns acknowledged")
        _note(ledger, done, islice(keys, MOST_KEYS))
    finally:
        writing.kill()
    _note(ledger, done, keys)
    writing.wait()
    _finish(ledger, done)
    tally.add(ledger)
    return tally


def _killed(writing: Writing, draw: random.Random) -> Iterable[str]:
    """What a writer said before it was killed: after some turns and a moment, or while it was still opening."""
    most, keys = draw.randint(0, MOST_KEYS), writing.acknowledged()
    heard = list(islice(keys, most))
    time.sleep(draw.uniform(0, 0.003 if most else 0.06))
    writing.kill()
    heard += keys
    writing.wait()
    return heard


def _note(ledger: Ledger, done: dict[int, int], keys: Iterable[str]) -> None:
    for key in keys:
        ledger.acknowledged.add(key)
        writer, number = key.split()[1:]
        done[int(writer)] = int(number) + 1


def _finish(ledger: Ledger, done: dict[int, int]) -> None:
    """Have a last client ask for one more of each, so that all that was not acknowledged is asked for again."""
    ledger.check()
    stop = max(done.values()) + 1
    writing = Writing(Task(ledger.url, ledger.conversation, "client", tuple(done.values()), stop, patient=True))
    _note(ledger, done, writing.acknowledged())
    writing.wait()
    ledger.check()
