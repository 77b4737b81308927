"""Compares stores in one process: appends per second, load times and bytes on disk.

The time of a disk sync can change tenfold from one second to the next if other programs use the disk. So the stores
alternate in many turns of a fraction of a second, and are compared turn by turn.
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
"""Turns, and maximum number of loads of each conversation in a turn."""
LOAD_SECONDS = 0.4
"""Maximum time for the loads of a conversation in a turn."""

TextMessage = tuple[str, str]
"""A role (user or assistant) and a text."""


class StoreAdapter(Protocol):
    """The operations that are measured, for one store."""

    async def open(self, location: str) -> str:
        """Open the database at a path or URL; return its settings for durable commits."""

    async def append(self, conversation: str, message: TextMessage) -> None:
        """Append one message durably."""

    async def fill(self, conversation: str, messages: Sequence[TextMessage]) -> None:
        """Append many messages. Not measured."""

    async def load_last(self, conversation: str, count: int) -> int:
        """Load the last messages; return how many were loaded."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Contender:
    name: str
    make: Callable[[], StoreAdapter]
    only_appends: bool = False
    """Loads and size are not measured."""


@dataclass
class Score:
    """The measurements of one store."""

    name: str
    durability: str = ""
    single: list[float] = field(default_factory=list)
    """Appends per second of one writer, for each turn."""
    many: list[float] = field(default_factory=list)
    """Appends per second of 64 writers with separate conversations, for each turn."""
    failed: int = 0
    """Failed appends of the 64 writers."""
    loads: dict[str, list[float]] = field(default_factory=dict)
    """Length of the conversation → time to load the last messages, for each turn."""
    size: float = 0.0
    """Bytes on disk / bytes of text."""
    empty: float = 0.0
    """Bytes of an empty database / bytes of the same text."""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each turn: the disk was equally fast within a turn."""
    return median(own / other for own, other in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Effort:
    """The amount of work."""

    turns: int
    appends: int = 20
    """Appends of one writer in a turn."""
    burst: int = 2
    """Appends of each of 64 writers in a turn."""
    warm_seconds: float = 20.0
    long: int = LONG


class DatabaseSource(Protocol):
    """Creates and removes databases."""

    async def new(self) -> str:
        """Create an empty database; return its path or URL."""

    async def size(self, location: str) -> int:
        """The size of a database on disk, in bytes."""

    async def remove(self, location: str) -> None: ...


async def contest(
    contenders: Sequence[Contender], messages: Sequence[TextMessage], effort: Effort, databases: DatabaseSource
) -> list[Score]:
    """Measure the stores in short alternating turns. All databases stay open."""
    runs = [_ContestRun(contender, Score(contender.name), messages, effort, databases) for contender in contenders]
    for run in runs:
        await run.attempt(run.open, "warming up")
    for number in range(effort.turns):
        progress(f"store: turn {number + 1} of {effort.turns}")
        for run in random.sample(runs, len(runs)):  # a random order, so that no store always follows the same one
            await run.attempt(run.turn)
    readable = [run for run in runs if not run.contender.only_appends]
    for run in readable:
        await run.attempt(run.fill, "filling")
    for number in range(LOAD_TURNS):
        progress(f"store: loads, turn {number + 1} of {LOAD_TURNS}")
        for run in random.sample(readable, len(readable)):
            await run.attempt(run.load)
    for run in runs:
        await run.close()
        if not run.contender.only_appends:
            await run.attempt(run.measure_size, "bytes")
    return [run.score for run in runs]


@dataclass
class _ContestRun:
    """The state of one contender. After an error it is not measured any more."""

    contender: Contender
    score: Score
    messages: Sequence[TextMessage]
    effort: Effort
    databases: DatabaseSource
    adapter: StoreAdapter | None = None
    location: str = ""

    async def attempt(self, step: Callable[[], Awaitable[None]], label: str = "") -> None:
        """Run a step unless an earlier one failed."""
        if self.score.error:
            return
        if label:
            progress(f"store: {label}: {self.contender.name}")
        try:
            await step()
        except Exception as error:
            self.score.error = f"{type(error).__name__}: {error}".splitlines()[0]

    async def open(self) -> None:
        """Open the database, and append until its log is reused: syncing a growing file takes longer."""
        self.location = await self.databases.new()
        self.adapter = self.contender.make()
        self.score.durability = await self.adapter.open(self.location)
        until, number = perf_counter() + self.effort.warm_seconds, 0
        while perf_counter() < until and number < 1_200:
            await self.adapter.append("warm", self._message(number))
            number += 1
        for writer in range(WRITERS):
            await self.adapter.append(f"many {writer}", self.messages[0])

    async def turn(self) -> None:
        assert self.adapter is not None
        start = len(self.score.single) * self.effort.appends
        started = perf_counter()
        for number in range(start, start + self.effort.appends):
            await self.adapter.append("alone", self._message(number))
        self.score.single.append(self.effort.appends / (perf_counter() - started))
        started = perf_counter()
        counts = await asyncio.gather(*(self._burst(f"many {writer}") for writer in range(WRITERS)))
        self.score.many.append(sum(counts) / (perf_counter() - started))
        self.score.failed += WRITERS * self.effort.burst - sum(counts)

    async def _burst(self, name: str) -> int:
        """Append a writer's messages, until one fails; return how many succeeded."""
        assert self.adapter is not None
        start = len(self.score.many) * self.effort.burst
        for number in range(self.effort.burst):
            try:
                await self.adapter.append(name, self._message(start + number))
            except Exception:
                return number
        return self.effort.burst

    async def fill(self) -> None:
        assert self.adapter is not None
        for length in (SHORT, self.effort.long):
            for start in range(0, length, BATCH):
                messages = [self._message(number) for number in range(start, min(start + BATCH, length))]
                await self.adapter.fill(f"of {length}", messages)

    async def load(self) -> None:
        assert self.adapter is not None
        for length in (SHORT, self.effort.long):
            seconds: list[float] = []
            while len(seconds) < LOADS and sum(seconds) < LOAD_SECONDS:
                started = perf_counter()
                count = await self.adapter.load_last(f"of {length}", LAST)
                seconds.append(perf_counter() - started)
                assert count >= LAST, f"{count} messages instead of {LAST}"
            self.score.loads.setdefault(str(length), []).append(median(seconds))

    async def close(self) -> None:
        if self.adapter is not None:
            await self.adapter.close()
            await self.databases.remove(self.location)

    async def measure_size(self) -> None:
        self.score.size = await _size(self.contender, self.messages, self.databases)
        self.score.empty = await _size(self.contender, self.messages, self.databases, empty=True)

    def _message(self, number: int) -> TextMessage:
        return self.messages[number % len(self.messages)]


async def _size(
    contender: Contender, messages: Sequence[TextMessage], databases: DatabaseSource, *, empty: bool = False
) -> float:
    """Bytes on disk / bytes of text, after appending each message separately and closing the database."""
    adapter, location = contender.make(), await databases.new()
    await adapter.open(location)
    try:
        for message in () if empty else messages:
            await adapter.append("size", message)
    finally:
        await adapter.close()
    size = await databases.size(location)
    await databases.remove(location)
    return size / sum(len(text.encode()) for _, text in messages)
