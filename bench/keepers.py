"""Stores measured against each other: what an append, a load and a byte cost, in one process.

A keeper is a store behind three calls. Keepers take turns, several rounds of them, each with a new database, and the best
round counts, so that what else the machine does falls on all of them alike and mostly falls out.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol
from uuid import uuid4

from bench.report import progress
from minutebook import ConversationEntry, MessageRole, open_store

WRITERS = 64
LAST = 20
SHORT, LONG = 100, 100_000
BATCH = 1_000

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

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Contender:
    name: str
    make: Callable[[], Keeper]
    loads: bool = True
    """Whether its loads are looked at, too."""


@dataclass
class Score:
    """What was measured of one keeper."""

    name: str
    durability: str = ""
    single: float = 0.0
    """Appends per second of one writer that awaits each."""
    many: float = 0.0
    """Appends per second of 64 writers, each with a conversation of its own."""
    refused: int = 0
    """How many of the appends of 64 writers failed."""
    loads: dict[str, float] = field(default_factory=dict)
    """How long the last messages take, by the length of the conversation."""
    size: float = 0.0
    """Bytes on disk over bytes of text."""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Effort:
    """How much is done."""

    rounds: int
    appends: int
    warm_seconds: float
    long: int = LONG


async def contest(
    contenders: Sequence[Contender], said: Sequence[Said], effort: Effort, place: Callable[[], Awaitable[str]]
) -> list[Score]:
    """Measure each, in turns. `place` gives a new, empty database each time."""
    scores = {one.name: Score(one.name) for one in contenders}
    for number in range(effort.rounds):
        for one in contenders:
            score = scores[one.name]
            if score.error:
                continue
            progress(f"store: round {number + 1} of {effort.rounds}: {one.name}")
            where = await place()
            try:
                await _round(one, score, said, effort, where, first=number == 0)
            except Exception as error:
                score.error = f"{type(error).__name__}: {error}".splitlines()[0]
            finally:
                if "://" not in where:
                    shutil.rmtree(Path(where).parent)
    return list(scores.values())


async def new_file() -> str:
    """A path for a database in a new folder, on the disk that temporary files are on."""
    return str(Path(tempfile.mkdtemp(prefix="minutebook-bench-")) / "chat.db")


async def _round(
    one: Contender, score: Score, said: Sequence[Said], effort: Effort, where: str, *, first: bool
) -> None:
    keeper = one.make()
    score.durability = await keeper.open(where)
    try:
        await _warm(keeper, said, effort.warm_seconds)
        score.single = max(score.single, await _one_writer(keeper, said, effort.appends))
        rate, score.refused = await _many_writers(keeper, said, max(1, effort.appends // 16))
        score.many = max(score.many, rate)
        if first and one.loads:
            await _loads(keeper, score, said, effort.long)
    finally:
        await keeper.close()
    if first and "://" not in where:
        score.size = await _size(one.make(), said, str(Path(where).with_name("size.db")))


async def _warm(keeper: Keeper, said: Sequence[Said], seconds: float) -> None:
    """Write until the log is as long as it gets and is written over: growing a file is what takes long to sync."""
    until, number = perf_counter() + seconds, 0
    while perf_counter() < until and number < 1_200:
        await keeper.append("warm", said[number % len(said)])
        number += 1


async def _one_writer(keeper: Keeper, said: Sequence[Said], appends: int) -> float:
    began = perf_counter()
    for number in range(appends):
        await keeper.append("alone", said[number % len(said)])
    return appends / (perf_counter() - began)


async def _many_writers(keeper: Keeper, said: Sequence[Said], appends: int) -> tuple[float, int]:
    done = 0

    async def write(name: str) -> None:
        nonlocal done
        for number in range(appends):
            await keeper.append(name, said[number % len(said)])
            done += 1

    for writer in range(WRITERS):  # the conversations are there before the clock runs
        await keeper.append(f"many {writer}", said[0])
    began = perf_counter()
    await asyncio.gather(*(write(f"many {writer}") for writer in range(WRITERS)), return_exceptions=True)
    return done / (perf_counter() - began), WRITERS * appends - done


async def _loads(keeper: Keeper, score: Score, said: Sequence[Said], long: int) -> None:
    for length in (SHORT, long):
        for start in range(0, length, BATCH):
            await keeper.fill(f"of {length}", [said[at % len(said)] for at in range(start, min(start + BATCH, length))])
    taken: dict[int, list[float]] = {SHORT: [], long: []}
    for _ in range(30):
        for length, seconds in taken.items():
            began = perf_counter()
            given = await keeper.last(f"of {length}", LAST)
            seconds.append(perf_counter() - began)
            assert given >= LAST, f"{given} messages instead of {LAST}"
            if seconds[-1] > 1:  # it is slow; that is known by now
                break
    score.loads = {str(length): median(seconds) for length, seconds in taken.items() if seconds}


async def _size(keeper: Keeper, said: Sequence[Said], where: str) -> float:
    """Bytes on disk over bytes of text, each message appended by itself; the database is closed before it is looked at."""
    await keeper.open(where)
    try:
        for one in said:
            await keeper.append("size", one)
    finally:
        await keeper.close()
    files = Path(where).parent.glob(Path(where).name + "*")
    return sum(file.stat().st_size for file in files) / sum(len(text.encode()) for _, text in said)


class Ours:
    """minutebook, on a file or on a server."""

    async def open(self, place: str) -> str:
        self._store: Any = open_store(place if "://" in place else f"sqlite:///{place}")
        await self._store.__aenter__()
        if "://" in place:
            return "server"
        settings = await self._store._engine.write(  # noqa: SLF001 - what the connection that writes is set to
            lambda unit: [unit.db.execute(f"PRAGMA {name}").get for name in ("journal_mode", "synchronous")]
        )
        return sqlite_durability(*settings)

    async def append(self, conversation: str, said: Said) -> None:
        await self._store.append(conversation, [self._entry(said)])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        await self._store.append(conversation, [self._entry(said) for said in many])

    async def last(self, conversation: str, count: int) -> int:
        return len((await self._store.load(conversation, last_messages=count)).entries)

    async def close(self) -> None:
        await self._store.close()

    @staticmethod
    def _entry(said: Said) -> ConversationEntry:
        role, text = said
        return ConversationEntry(
            evaluation_id=uuid4(), sequence=0, created_at=datetime.now(UTC), role=MessageRole(role), content=text
        )


class Raw:
    """The least that keeps a message: one table, one row, one commit. Whoever waits for the disk, the loop waits too."""

    async def open(self, place: str) -> str:
        self._db = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, conversation TEXT, role TEXT, text TEXT)")
        self._db.execute("CREATE INDEX by_conversation ON message (conversation, number)")
        return sqlite_durability(
            *(self._db.execute(f"PRAGMA {one}").fetchone()[0] for one in ("journal_mode", "synchronous"))
        )

    async def append(self, conversation: str, said: Said) -> None:
        self._insert(conversation, [said])

    async def fill(self, conversation: str, many: Sequence[Said]) -> None:
        self._insert(conversation, many)

    async def last(self, conversation: str, count: int) -> int:
        return len(self._select(conversation, count))

    async def close(self) -> None:
        self._db.close()

    def _insert(self, conversation: str, many: Sequence[Said]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        rows = [(conversation, *said) for said in many]
        self._db.executemany("INSERT INTO message (conversation, role, text) VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _select(self, conversation: str, count: int) -> list[Any]:
        query = "SELECT role, text FROM message WHERE conversation = ? ORDER BY number DESC LIMIT ?"
        return self._db.execute(query, (conversation, count)).fetchall()


class RawInThread(Raw):
    """The same, where the loop goes on meanwhile: what an async program must do."""

    async def open(self, place: str) -> str:
        self._turn = asyncio.Lock()
        return await super().open(place)

    async def append(self, conversation: str, said: Said) -> None:
        async with self._turn:
            await asyncio.to_thread(self._insert, conversation, [said])

    async def last(self, conversation: str, count: int) -> int:
        async with self._turn:
            return len(await asyncio.to_thread(self._select, conversation, count))


def sqlite_durability(journal: str, synchronous: int) -> str:
    return f"{journal}, {('OFF', 'NORMAL', 'FULL', 'EXTRA')[synchronous]}"


OURS = "minutebook"
RAW = "raw sqlite3, the loop waits"
RAW_IN_THREAD = "raw sqlite3, in a thread"


def our_contenders() -> list[Contender]:
    return [Contender(OURS, Ours), Contender(RAW, Raw), Contender(RAW_IN_THREAD, RawInThread)]
