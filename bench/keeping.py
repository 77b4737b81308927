"""Stores measured against each other: what an append, a load and a byte cost, in one process.

A keeper is a store behind three calls. How long a disk takes to sync changes tenfold from one second to the next where
others use it too, so keepers take turns of a fraction of a second, many of them, and are compared turn by turn.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from bench.report import progress

WRITERS = 64
LAST = 20
SHORT, LONG = 100, 100_000
BATCH = 1_000
LOAD_TURNS, LOADS = 12, 20
"""How often each loads, of each length: in so many turns, so many times, unless that takes too long."""
LOAD_SECONDS = 0.4
"""For a length, in a turn."""

Said = tuple[str, str]
"""A role, user or assistant, and a text."""


class Keeper(Protocol):
    """A store as its users use it."""

    async def open(self, place: str) -> str:
        """Open what a path or a URL names; say how durable a commit is there, as the database itself says it."""

    async def append(self, conversation: str, said: Said) -> None:
        """Add one message, durably."""

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        """Add many at once: nobody looks at the clock."""

    async def last(self, conversation: str, count: int) -> int:
        """Load the last messages; how many were given."""

    async def settle(self) -> None:
        """Do what was put off, so that it is not done while others are measured."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Contender:
    name: str
    make: Callable[[], Keeper]
    only_appends: bool = False
    """Whether nothing can be loaded from it, and its size says nothing."""


@dataclass
class Score:
    """What was measured of one keeper."""

    name: str
    durability: str = ""
    single: list[float] = field(default_factory=list)
    """Appends per second of one writer that awaits each, turn by turn."""
    many: list[float] = field(default_factory=list)
    """Appends per second of 64 writers, each with a conversation of its own, turn by turn."""
    refused: int = 0
    """How many of the appends of 64 writers failed."""
    loads: dict[str, list[float]] = field(default_factory=dict)
    """How long the last messages take, by the length of the conversation, turn by turn."""
    size: float = 0.0
    """Bytes on disk over bytes of text."""
    empty: float = 0.0
    """What is there before the first message, over bytes of the same text."""
    settling: float = 0.0
    """Seconds for each append that were put off, and are not part of its time."""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """One over the other: the median over the turns, each of which met the same disk."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Effort:
    """How much is done."""

    turns: int
    appends: int = 20
    """Of one writer, in a turn."""
    burst: int = 2
    """Of each of 64 writers, in a turn."""
    warm_seconds: float = 20.0
    long: int = LONG


class Places(Protocol):
    """Where databases are made."""

    async def new(self) -> str:
        """The path or the URL of a new, empty one."""

    async def size(self, place: str) -> int:
        """How many bytes it takes on disk."""

    async def remove(self, place: str) -> None: ...


async def contest(contenders: Sequence[Contender], said: Sequence[Said], effort: Effort, places: Places) -> list[Score]:
    """Measure each, in short turns, all on databases that are open all the time."""
    runs = [_Run(one, Score(one.name), said, effort, places) for one in contenders]
    for run in runs:
        await run.do(run.begin, "warming up")
    for number in range(effort.turns):
        progress(f"store: turn {number + 1} of {effort.turns}")
        for run in random.sample(runs, len(runs)):  # nobody always comes after the same one
            await run.do(run.turn)
    readable = [run for run in runs if not run.one.only_appends]
    for run in readable:
        await run.do(run.fill, "filling")
    for number in range(LOAD_TURNS):
        progress(f"store: loads, turn {number + 1} of {LOAD_TURNS}")
        for run in random.sample(readable, len(readable)):
            await run.do(run.load)
    for run in runs:
        await run.end()
        if not run.one.only_appends:
            await run.do(run.weigh, "bytes")
    return [run.score for run in runs]


@dataclass
class _Run:
    """One contender on its way through the contest. What fails is said, and does not go on."""

    one: Contender
    score: Score
    said: Sequence[Said]
    effort: Effort
    places: Places
    keeper: Keeper | None = None
    place: str = ""

    async def do(self, step: Callable[[], Awaitable[None]], what: str = "") -> None:
        if self.score.error:
            return
        if what:
            progress(f"store: {what}: {self.one.name}")
        try:
            await step()
        except Exception as error:
            self.score.error = f"{type(error).__name__}: {error}".splitlines()[0]

    async def begin(self) -> None:
        """Write until the log is as long as it gets and is written over: growing a file is what takes long to sync."""
        self.place = await self.places.new()
        self.keeper = self.one.make()
        self.score.durability = await self.keeper.open(self.place)
        until, number = perf_counter() + self.effort.warm_seconds, 0
        while perf_counter() < until and number < 1_200:
            await self.keeper.append("warm", self._message(number))
            number += 1
        for writer in range(WRITERS):
            await self.keeper.append(f"many {writer}", self.said[0])
        await self.keeper.settle()

    async def turn(self) -> None:
        assert self.keeper is not None
        start = len(self.score.single) * self.effort.appends
        began = perf_counter()
        for number in range(start, start + self.effort.appends):
            await self.keeper.append("alone", self._message(number))
        self.score.single.append(self.effort.appends / (perf_counter() - began))
        began = perf_counter()
        done = await asyncio.gather(*(self._burst(f"many {writer}") for writer in range(WRITERS)))
        self.score.many.append(sum(done) / (perf_counter() - began))
        self.score.refused += WRITERS * self.effort.burst - sum(done)
        began = perf_counter()
        await self.keeper.settle()
        self.score.settling += (perf_counter() - began) / (self.effort.appends + sum(done)) / self.effort.turns

    async def _burst(self, name: str) -> int:
        """How many of a writer's appends were taken; one that is refused has given up for this turn."""
        assert self.keeper is not None
        start = len(self.score.many) * self.effort.burst
        for number in range(self.effort.burst):
            try:
                await self.keeper.append(name, self._message(start + number))
            except Exception:
                return number
        return self.effort.burst

    async def fill(self) -> None:
        assert self.keeper is not None
        for length in (SHORT, self.effort.long):
            for start in range(0, length, BATCH):
                messages = [self._message(at) for at in range(start, min(start + BATCH, length))]
                await self.keeper.fill(f"of {length}", messages)

    async def load(self) -> None:
        assert self.keeper is not None
        for length in (SHORT, self.effort.long):
            seconds: list[float] = []
            while len(seconds) < LOADS and sum(seconds) < LOAD_SECONDS:
                began = perf_counter()
                given = await self.keeper.last(f"of {length}", LAST)
                seconds.append(perf_counter() - began)
                assert given >= LAST, f"{given} messages instead of {LAST}"
            self.score.loads.setdefault(str(length), []).append(median(seconds))

    async def end(self) -> None:
        if self.keeper is not None:
            await self.keeper.close()
            await self.places.remove(self.place)

    async def weigh(self) -> None:
        self.score.size = await _size(self.one, self.said, self.places)
        self.score.empty = await _size(self.one, self.said, self.places, empty=True)

    def _message(self, number: int) -> Said:
        return self.said[number % len(self.said)]


async def _size(one: Contender, said: Sequence[Said], places: Places, *, empty: bool = False) -> float:
    """Bytes on disk over bytes of text, each message appended by itself; the database is closed before it is looked at."""
    keeper, place = one.make(), await places.new()
    await keeper.open(place)
    try:
        for message in () if empty else said:
            await keeper.append("size", message)
        await keeper.settle()  # a search index that follows later is on the disk, too
    finally:
        await keeper.close()
    size = await places.size(place)
    await places.remove(place)
    return size / sum(len(text.encode()) for _, text in said)
