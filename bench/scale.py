"""The time of every store operation in databases of growing size, and PostgreSQL's round trips over a slower network.

A database is filled by bulk import: whole conversations in one append, many at the same time. Ratios are of one run.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from bench import scale_length, scale_service, waiting
from bench.report import Part, Table, Target, progress, time_of, times
from minutebook import ConversationStore, Fold, open_store
from minutebook.errors import ConversationNotFound
from minutebook.store import NewDocument
from minutebook.wire import new_entries
from torture.proxy import run_proxy

SIZES = (10_000, 100_000)
QUICK_SIZES = (1_000, 10_000)
MESSAGES = 20
"""Messages of a conversation."""
CONVERSATIONS_OF_RECIPIENT = 5
WORDS = 40
"""Words of a message."""
IMPORT_TASKS = 64
REPEATS = 15
ROUND_TRIP_MILLISECONDS = (0, 1, 3)
CLIENTS = 64
BUSY_SECONDS = 3.0
"""Duration of the measurements of concurrent operations."""
MAX_GROWTH = 2.0
MAX_SEARCH_SECONDS = 1.0
MIN_IMPORT_RATIO = 5.0

Operation: TypeAlias = Callable[[ConversationStore, int], Awaitable[object]]
"""Runs on a store, with a number that is different each time."""


def measure(
    sizes: Sequence[int] | None = None, *, quick: bool, engines: Sequence[str] = ("SQLite", "PostgreSQL")
) -> Part:
    """Build a database of each size on each engine, and measure all operations in it."""
    part = asyncio.run(_measure(sorted(sizes or (QUICK_SIZES if quick else SIZES)), engines))
    for engine in engines:
        scale_length.measure(part, engine, quick=quick)
    if "PostgreSQL" in engines:
        scale_service.measure(part, quick=quick)
    return part


async def _measure(sizes: Sequence[int], engines: Sequence[str]) -> Part:
    part = Part()
    for engine in engines:
        results = [await _measure_size(engine, size) for size in sizes]
        _report(part, engine, results)
        part.tables.append(await _index_sizes(engine, min(sizes)))
        async with open_empty(engine) as (store, url):
            await import_conversations(store, min(sizes))
            conversations = min(sizes) // MESSAGES
            results_of_work = [await waiting.measure_gc(store, engine, conversations)]
            results_of_work.append(await waiting.measure_waits(store, engine, conversations))
            if engine == "PostgreSQL":
                results_of_work.append(await waiting.measure_erasures(url))
        for table, target in results_of_work:
            part.tables.append(table)
            part.targets.append(target)
    if "PostgreSQL" in engines:
        part.tables.append(await _round_trips())
    return part


@dataclass
class SizeResult:
    """The figures of one database."""

    size: int
    import_rate: float
    """Messages per second of the bulk import."""
    append_rate: float
    """Messages per second of single appends, one after the other."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Operation → median time."""
    search_p99: float = 0.0
    """Time of a search while others append, in seconds; 99th percentile."""


async def _measure_size(engine: str, size: int) -> SizeResult:
    async with open_empty(engine) as (store, _):
        started = perf_counter()
        await import_conversations(store, size)
        import_rate = size / (perf_counter() - started)
        await store.for_tenant("small").append("only", new_entries(_messages(Random(0), 0)))
        started = perf_counter()
        for number in range(100):
            await store.append("one by one", new_entries([{"role": "user", "content": _text(Random(number))}]))
        result = SizeResult(size, import_rate, 100 / (perf_counter() - started))
        for name, operation in OPERATIONS.items():
            progress(f"scale: {engine}, {size:,} messages, {name}")
            result.seconds[name] = await _median_seconds(operation, store, size)
        result.search_p99 = await _search_during_appends(store)
    return result


async def _median_seconds(operation: Operation, store: ConversationStore, size: int) -> float:
    numbers = Random(size)
    measured = []
    for _ in range(REPEATS):
        number = numbers.randrange(size // MESSAGES)
        started = perf_counter()
        with suppress(ConversationNotFound):  # an earlier repeat has erased it
            await operation(store, number)
        measured.append(perf_counter() - started)
    return median(measured)


@asynccontextmanager
async def open_empty(engine: str, search: bool = True) -> AsyncIterator[tuple[ConversationStore, str]]:
    """A store on a new database, and its URL."""
    async with AsyncExitStack() as stack:
        if engine == "SQLite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = f"sqlite:///{folder}/chat.db"
        else:
            from tests.servers import Postgres

            server = await asyncio.to_thread(Postgres.make, (), on_disk=True)
            stack.callback(server.remove)
            url = server.url()
        yield await stack.enter_async_context(open_store(url, search=search)), url


async def import_conversations(store: ConversationStore, size: int) -> None:
    """Append conversations of `MESSAGES` messages each, many at the same time."""
    numbers = iter(range(size // MESSAGES))

    async def append_some() -> None:
        for number in numbers:
            if number and number % 10_000 == 0:
                progress(f"scale: {number * MESSAGES:,} of {size:,} messages")
            entries = new_entries(_messages(Random(number), number))
            await store.append(f"c{number}", entries, recipient=_recipient(number))

    await asyncio.gather(*(append_some() for _ in range(IMPORT_TASKS)))


_VOCABULARY = [f"word{number}" for number in range(20_000)]
_FREQUENCIES = [sum(1 / (rank + 1) for rank in range(number + 1)) for number in range(1_000)]
_FREQUENCIES += [_FREQUENCIES[-1] + (number + 1) / 4_000 for number in range(19_000)]
"""Cumulative: the first words are frequent, as in a language."""


def _text(random: Random) -> str:
    return " ".join(random.choices(_VOCABULARY, cum_weights=_FREQUENCIES, k=WORDS))


def _messages(random: Random, number: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    texts = [_text(random) for _ in range(MESSAGES)]
    texts[0] += f" order{number}"
    return [{"role": roles[position % 2], "content": text} for position, text in enumerate(texts)]


def _recipient(number: int) -> str:
    return f"recipient {number // CONVERSATIONS_OF_RECIPIENT}"


async def _append(store: ConversationStore, number: int) -> None:
    await store.append(f"c{number}", new_entries([{"role": "user", "content": _text(Random(number))}]))


async def _create(store: ConversationStore, number: int) -> None:
    await store.append(f"new {number} {perf_counter()}", new_entries(_messages(Random(number), number)))


async def _fold(store: ConversationStore, number: int) -> None:
    fold = Fold(f"fold {perf_counter()}", 0, 4, ({"role": "system", "content": "a summary"},), "scale")
    await store.add_fold(f"c{number}", fold)
    await store.undo_fold(f"c{number}", fold.id)


async def _lease(store: ConversationStore, number: int) -> None:
    await store.release_lease(await store.acquire_lease(f"c{number}", "bench", seconds=30))


async def _export(store: ConversationStore, number: int) -> None:
    async for _ in store.export(f"c{number}"):
        pass


OPERATIONS: dict[str, Operation] = {
    "append a message": _append,
    "append a new conversation": _create,
    "header": lambda store, number: store.header(f"c{number}"),
    "load 2 turns": lambda store, number: store.load(f"c{number}", last_turns=2),
    "list a page": lambda store, _: store.list(limit=50),
    "list of a recipient": lambda store, number: store.list(recipient=_recipient(number)),
    "search a rare word": lambda store, number: store.search(f"order{number}"),
    "search a frequent word": lambda store, _: store.search("word0"),
    "search a word in between": lambda store, number: store.search(f"word{20 + number % 50}"),
    "search a phrase": lambda store, _: store.search('"word0 word1"'),
    "search of a recipient": lambda store, number: store.search("word1", recipient=_recipient(number)),
    "search in a conversation": lambda store, number: store.search("word1", conversation=f"c{number}"),
    "search of a small tenant": lambda store, _: store.for_tenant("small").search("word0"),
    "add and undo a fold": _fold,
    "pin": lambda store, number: store.pin(f"c{number}", 0),
    "put a document": lambda store, number: store.put_document(
        f"c{number}", NewDocument("bench", f"{number} {perf_counter()}", {"a": 1})
    ),
    "acquire and release a lease": _lease,
    "set a label": lambda store, number: store.set_labels(f"c{number}", {"team": "blue"}),
    "fork": lambda store, number: store.fork(f"c{number}", f"fork {perf_counter()}"),
    "export": _export,
    "erase a conversation": lambda store, number: store.erase(conversation=f"c{number}"),
}
"""Every operation on one conversation or one page. The last ones change the database most."""


async def _search_during_appends(store: ConversationStore) -> float:
    """The 99th percentile of the time of a search while other tasks append without a pause."""
    stop = perf_counter() + BUSY_SECONDS
    measured: list[float] = []

    async def append_some(task: int) -> None:
        while perf_counter() < stop:
            await store.append(f"busy {task}", new_entries([{"role": "user", "content": _text(Random(task))}]))

    async def search() -> None:
        while perf_counter() < stop:
            started = perf_counter()
            await store.search("word3 word7")
            measured.append(perf_counter() - started)

    await asyncio.gather(*(append_some(task) for task in range(16)), search())
    return quantiles(measured, n=100)[-1] if len(measured) > 1 else measured[0]


def _report(part: Part, engine: str, results: Sequence[SizeResult]) -> None:
    columns = [engine, *(f"{result.size:,}" for result in results), "growth"]
    table = Table(f"Scale: {engine}, time by number of messages", columns)
    growth = {}
    for name in OPERATIONS:
        seconds = [result.seconds[name] for result in results]
        growth[name] = seconds[-1] / seconds[-2] if len(seconds) > 1 else 1.0
        table.rows.append([name, *map(time_of, seconds), times(growth[name])])
    table.rows.append(["search during appends, p99", *(time_of(result.search_p99) for result in results), ""])
    table.rows.append(["bulk import, messages/s", *(f"{result.import_rate:,.0f}" for result in results), ""])
    table.rows.append(["single appends, messages/s", *(f"{result.append_rate:,.0f}" for result in results), ""])
    table.notes.append(f"Medians of {REPEATS}. Growth is from the second largest database to the largest.")
    part.tables.append(table)
    part.figures[engine] = {str(result.size): vars(result) for result in results}
    largest = results[-1]
    worst = max(growth, key=lambda name: growth[name])
    part.targets += [
        Target(
            f"{engine}: every operation at most {MAX_GROWTH:g} times as long in the largest database",
            f"{worst}: {times(growth[worst])}",
            growth[worst] <= MAX_GROWTH,
        ),
        Target(
            f"{engine}: a search during appends within {time_of(MAX_SEARCH_SECONDS)} (p99)",
            time_of(largest.search_p99),
            largest.search_p99 <= MAX_SEARCH_SECONDS,
        ),
        Target(
            f"{engine}: bulk import at least {MIN_IMPORT_RATIO:g} times as fast as single appends",
            times(largest.import_rate / largest.append_rate),
            largest.import_rate >= MIN_IMPORT_RATIO * largest.append_rate,
        ),
    ]


async def _index_sizes(engine: str, size: int) -> Table:
    table = Table(f"Scale: {engine}, bytes per message of {WORDS} words", ["search index", "bytes", "of the text"])
    text_bytes = sum(len(_text(Random(number))) for number in range(1_000)) / 1_000
    for search in (True, False):
        async with open_empty(engine, search) as (store, url):
            empty = await _database_bytes(store, url)
            await import_conversations(store, size)
            message_bytes = (await _database_bytes(store, url) - empty) / size
        table.rows.append(["yes" if search else "no", f"{message_bytes:,.0f}", times(message_bytes / text_bytes)])
    return table


async def _database_bytes(store: ConversationStore, url: str) -> int:
    await store.vacuum()
    if url.startswith("sqlite"):
        return await asyncio.to_thread(lambda: Path(urlsplit(url).path).stat().st_size)
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        size = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r'"
        row = await (await db.execute(f"{size} AND relnamespace = 'minutebook'::regnamespace")).fetchone()
    return int(row[0]) if row else 0


async def _round_trips() -> Table:
    """The time of operations and the throughput of appends over networks with different round-trip times."""
    columns = ["PostgreSQL", *(f"+{rtt} ms" for rtt in ROUND_TRIP_MILLISECONDS), "round trips"]
    seconds: dict[str, list[float]] = {}
    rates: list[float] = []
    async with open_empty("PostgreSQL") as (store, url):
        await import_conversations(store, QUICK_SIZES[0])
        address = urlsplit(url)
        for rtt in ROUND_TRIP_MILLISECONDS:
            with run_proxy(address.hostname or "127.0.0.1", address.port or 5432, rtt / 1000) as proxy:
                slow_url = url.replace(f":{address.port}", f":{proxy.address[1]}", 1)
                async with open_store(slow_url) as slow_store:
                    for name, operation in OPERATIONS.items():
                        measured = await _median_seconds(operation, slow_store, QUICK_SIZES[0])
                        seconds.setdefault(name, []).append(measured)
                    rates.append(await _append_rate(slow_store))
    table = Table("Scale: PostgreSQL, time by round-trip time of the network", columns)
    added = (ROUND_TRIP_MILLISECONDS[-1] - ROUND_TRIP_MILLISECONDS[0]) / 1000
    for name, by_rtt in seconds.items():
        table.rows.append([name, *map(time_of, by_rtt), f"{(by_rtt[-1] - by_rtt[0]) / added:.1f}"])
    table.rows.append([f"appends/s of {CLIENTS} clients", *(f"{rate:,.0f}" for rate in rates), ""])
    return table


async def _append_rate(store: ConversationStore) -> float:
    stop = perf_counter() + BUSY_SECONDS
    count = 0

    async def append_some(client: int) -> None:
        nonlocal count
        while perf_counter() < stop:
            await store.append(f"client {client}", new_entries([{"role": "user", "content": _text(Random(client))}]))
            count += 1

    await asyncio.gather(*(append_some(client) for client in range(CLIENTS)))
    return count / BUSY_SECONDS
