"""The last turns of a very long conversation, beside those of a short one."""

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
    taken = asyncio.run(_measured(long))
    ratio = taken[long] / taken[SHORT]
    table = Table(f"Store: the last {TURNS} turns", ["SQLite, minutebook", "time"])
    table.rows = [[f"of a conversation of {size:,} entries", time_of(seconds)] for size, seconds in taken.items()]
    part.tables.append(table)
    part.figures["last_turns_seconds"] = {str(size): seconds for size, seconds in taken.items()}
    what = f"the last {TURNS} turns of {long:,} entries in at most 1.5 times the time of {SHORT:,}"
    part.targets.append(Target(what, times(ratio), ratio <= 1.5))


async def _measured(long: int) -> dict[int, float]:
    seconds: dict[int, list[float]] = {SHORT: [], long: []}
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/chat.db") as store:
            for size in seconds:
                await _fill(store, size)
            await store.search("entry", limit=1)  # what was put off is done before the clock runs
            for _ in range(50):
                for size, found in seconds.items():
                    began = perf_counter()
                    loaded = await store.load(f"{size}", last_turns=TURNS)
                    found.append(perf_counter() - began)
                    assert len(loaded.entries) == TURNS * len(TURN)
    return {size: median(found) for size, found in seconds.items()}


async def _fill(store: ConversationStore, size: int) -> None:
    when = datetime.now(UTC)
    for start in range(0, size, BATCH):
        if start and start % (20 * BATCH) == 0:
            progress(f"store: {start:,} of {size:,} entries")
        entries = [
            provider_message_to_entry(
                {"role": TURN[at % len(TURN)], "content": f"entry {at}"},
                evaluation_id=UUID(int=at // len(TURN)),
                sequence=at % len(TURN),
                created_at=when,
            )
            for at in range(start, min(start + BATCH, size))
        ]
        await store.append(f"{size}", entries)
