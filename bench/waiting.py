"""How long appends wait while a database is vacuumed, trimmed and erased, how fast `gc` finds that nothing is due, and how
erasures scale with processes.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from random import Random
from statistics import quantiles
from time import perf_counter
from urllib.parse import urlsplit

from bench.report import Table, Target, progress, time_of, times
from minutebook import ConversationStore, open_store
from minutebook.conversation.config import Persistence
from minutebook.conversation.trimming import trim_all
from minutebook.wire import new_entries
from torture.proxy import run_proxy

WRITERS = 4
MAX_WAIT_SECONDS = 0.1
PROCESSES = 3
MIN_SCALING = 2.5
ERASED_BY_PROCESS = 60
ROUND_TRIP_SECONDS = 0.002
GC_TURNS = 2
GC_TASKS = 32
"""Conversations that `minutebook gc` trims at the same time."""
MIN_GC_RATE = 1_000

Work = Callable[[ConversationStore, int], Awaitable[object]]
"""Runs on a store with this many conversations."""


async def _erase(store: ConversationStore, conversations: int) -> None:
    for number in range(conversations // 4):
        await store.erase(conversation=f"c{number}")


async def _trim(store: ConversationStore, conversations: int) -> None:
    for number in range(conversations // 4, conversations // 2):
        await _trim_conversation(store, number)


async def _trim_conversation(store: ConversationStore, number: int) -> None:
    await trim_all(store, f"c{number}", older_than_turns=GC_TURNS, persistence=Persistence.STATUS, write=True)


WORK: dict[str, Work] = {
    "nothing": lambda _store, _count: asyncio.sleep(2),
    "gc": _trim,
    "erase": _erase,
    "vacuum": lambda store, _count: store.vacuum(),
}
"""In this order: the vacuum has something to remove."""


async def measure_waits(store: ConversationStore, engine: str, conversations: int) -> tuple[Table, Target]:
    """The 99th percentile of the time of an append during other work."""
    table = Table(f"Scale: {engine}, time of an append meanwhile", [engine, "appends", "median", "p99", "took"])
    slowest = 0.0
    for name, work in WORK.items():
        progress(f"scale: {engine}, appends during {name}")
        measured: list[float] = []
        done = asyncio.Event()

        async def append(writer: int, measured: list[float] = measured, done: asyncio.Event = done) -> None:
            while not (measured and done.is_set()):
                message = {"role": "user", "content": f"message {Random(len(measured)).random()}"}
                started = perf_counter()
                await store.append(f"waiting {writer}", new_entries([message]))
                measured.append(perf_counter() - started)
                await asyncio.sleep(0.002)

        started = perf_counter()
        writers = [asyncio.create_task(append(writer)) for writer in range(WRITERS)]
        await work(store, conversations)
        took = perf_counter() - started
        done.set()
        await asyncio.gather(*writers)
        *_, p99 = quantiles(measured, n=100)
        if name != "nothing":
            slowest = max(slowest, p99)
        table.rows.append(
            [name, f"{len(measured):,}", *map(time_of, (sorted(measured)[len(measured) // 2], p99, took))]
        )
    table.notes.append(f"{WRITERS} tasks append to their own conversations in the process that does the work.")
    claim = f"{engine}: no append waits longer than {time_of(MAX_WAIT_SECONDS)} (p99) during gc, erase or vacuum"
    return table, Target(claim, time_of(slowest), slowest <= MAX_WAIT_SECONDS)


async def measure_gc(store: ConversationStore, engine: str, conversations: int) -> tuple[Table, Target]:
    """Conversations per second that `gc` checks, if nothing is due in any of them."""
    progress(f"scale: {engine}, gc with nothing due")
    started = perf_counter()
    for start in range(0, conversations, GC_TASKS):
        batch = range(start, min(start + GC_TASKS, conversations))
        await asyncio.gather(*(_trim_conversation(store, number) for number in batch))
    rate = conversations / (perf_counter() - started)
    table = Table(f"Scale: {engine}, conversations checked by gc per second", [engine, "per second"])
    table.rows.append(["nothing due", f"{rate:,.0f}"])
    claim = f"{engine}: gc checks at least {MIN_GC_RATE:,} conversations per second if nothing is due"
    return table, Target(claim, f"{rate:,.0f}", rate >= MIN_GC_RATE)


async def measure_erasures(url: str) -> tuple[Table, Target]:
    """Erasures per second of one and of several processes, over a slower network."""
    table = Table("Scale: PostgreSQL, conversations erased per second at +2 ms", ["processes", "per second"])
    rates = []
    async with open_store(url) as store:
        for count in (1, PROCESSES):
            for number in range(count * ERASED_BY_PROCESS):
                await store.append(f"erased {count} {number}", new_entries([{"role": "user", "content": "a message"}]))
    address = urlsplit(url)
    with run_proxy(address.hostname or "127.0.0.1", address.port or 5432, ROUND_TRIP_SECONDS) as proxy:
        slow_url = url.replace(f":{address.port}", f":{proxy.address[1]}", 1)
        for count in (1, PROCESSES):
            seconds = await asyncio.gather(*(_run_eraser(slow_url, count, part) for part in range(count)))
            rates.append(count * ERASED_BY_PROCESS / max(seconds))
            table.rows.append([str(count), f"{rates[-1]:,.0f}"])
    scaling = rates[1] / rates[0]
    claim = f"PostgreSQL: {PROCESSES} processes erase at least {MIN_SCALING:g} times as fast as one, at +2 ms"
    return table, Target(claim, times(scaling), scaling >= MIN_SCALING)


async def _run_eraser(url: str, count: int, part: int) -> float:
    """Erase conversations in another process; return the seconds that it took."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.waiting", url, str(count), str(part)), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return float(output)


async def _main(url: str, count: int, part: int) -> None:
    async with open_store(url) as store:
        started = perf_counter()
        for number in range(part * ERASED_BY_PROCESS, (part + 1) * ERASED_BY_PROCESS):
            receipt = await store.erase(conversation=f"erased {count} {number}")
            assert receipt.conversations == 1
        sys.stdout.write(str(perf_counter() - started))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
