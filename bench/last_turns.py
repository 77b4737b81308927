"""The time to load the last turns of a very long conversation, compared with a short one."""

import asyncio
import tempfile
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from uuid import UUID

from bench.report import Part, Table, Target, progress, time_of, times
from minutebook import ConversationStore, open_store
from minutebook.wire.chat import provider_message_to_entry

LONG, SHORT = 1_000_000, 1_000
TURNS = 10
TURN = ("user", "assistant", "assistant", "assistant", "assistant")
BATCH = 10_000


def measure(part: Part, *, quick: bool) -> None:
    long = LONG // 10 if quick else LONG
    times_by_size = asyncio.run(_measure_loads(long))
    ratio = times_by_size[long] / times_by_size[SHORT]
    table = Table(f"Store: the last {TURNS} turns", ["SQLite, minutebook", "time"])
    table.rows = [
        [f"of a conversation of {size:,} entries", time_of(seconds)] for size, seconds in times_by_size.items()
    ]
    part.tables.append(table)
    part.figures["last_turns_seconds"] = {str(size): seconds for size, seconds in times_by_size.items()}
    what = f"the last {TURNS} turns of {long:,} entries in at most 1.5 times the time of {SHORT:,}"
    part.targets.append(Target(what, times(ratio), ratio <= 1.5))


async def _measure_loads(long: int) -> dict[int, float]:
    seconds: dict[int, list[float]] = {SHORT: [], long: []}
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/chat.db") as store:
            for size in seconds:
                await _fill(store, size)
            for _ in range(50):
                for size, measured in seconds.items():
                    started = perf_counter()
                    loaded = await store.load(f"{size}", last_turns=TURNS)
                    measured.append(perf_counter() - started)
                    assert len(loaded.entries) == TURNS * len(TURN)
    return {size: median(measured) for size, measured in seconds.items()}


async def _fill(store: ConversationStore, size: int) -> None:
    now = datetime.now(UTC)
    for start in range(0, size, BATCH):
        if start and start % (20 * BATCH) == 0:
            progress(f"store: {start:,} of {size:,} entries")
        entries = [
            provider_message_to_entry(
                {"role": TURN[position % len(TURN)], "content": f"entry {position}"},
                evaluation_id=UUID(int=position // len(TURN)),
                sequence=position % len(TURN),
                created_at=now,
            )
            for position in range(start, min(start + BATCH, size))
        ]
        await store.append(f"{size}", entries)
