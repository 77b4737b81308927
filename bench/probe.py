"""Measures the minutebook that is first on the path: `python -m bench.probe store </dev/null`.

`bench.compare` runs this on two trees. Before each measurement the probe prints that it is ready and reads a line, so
that the two alternate. It uses only public names, and imports them inside the measurements.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench import imports, service_processes
from bench.service_load import load
from bench.session import coding_session

DATABASE = "MINUTEBOOK_BENCH_POSTGRES"
"""The variable with the URL of the empty database that `postgres` measures in."""
READY = "ready"
LAST = 20
WRITERS = 64


@dataclass(frozen=True)
class Effort:
    """The amount of work."""

    repeats: int = 4
    messages: int = 1_000
    """Messages of a session."""
    appends: int = 300
    burst: int = 20
    """Appends of each of 64 writers."""
    stored: int = 10_000
    loads: int = 400
    seconds: float = 1.5
    """Duration of the load, for each kind of request."""


FULL = Effort()
TINY = Effort(repeats=1, messages=20, appends=2, burst=1, stored=40, loads=2, seconds=0.05)


@dataclass(frozen=True)
class Cost:
    """The cost of one operation, in seconds or bytes."""

    unit: str
    """The unit of the printed value. For "/s" it is the reciprocal."""
    wall: float
    cpu: float | None = None
    """CPU time of the process that runs our code: the service, or the client of a database server."""


def wait_for_turn() -> None:
    gc.collect()
    print(READY, Path(import_module("minutebook").__file__ or "").parents[1], flush=True)
    sys.stdin.readline()


def print_cost(name: str, unit: str, wall: float, cpu: float | None = None) -> None:
    print(json.dumps([name, asdict(Cost(unit, wall, cpu))]), flush=True)


@contextmanager
def measure_time(name: str, unit: str, operations: int) -> Iterator[None]:
    """Wait for this tree's turn, then measure the block, which does this number of operations."""
    wait_for_turn()
    wall, cpu = perf_counter(), process_time()
    yield
    print_cost(name, unit, (perf_counter() - wall) / operations, (process_time() - cpu) / operations)


def measure_calls(effort: Effort) -> None:
    """A view after every message of a session that grows."""
    from minutebook import SlidingWindowManager, TokenBudgetManager, Transcript, view_of

    for manager in (TokenBudgetManager(32_000), SlidingWindowManager(40)):
        view_of(coding_session(50, seed=99), manager)  # loads what is loaded on first use
        # Each session has different texts, because token counts are cached by text.
        sessions = [coding_session(effort.messages, seed=seed) for seed in range(effort.repeats)]
        with measure_time(f"view_of, {type(manager).__name__}, a coding session", "ms", len(sessions)):
            for messages in sessions:
                transcript = Transcript(broken="mark")
                for message in messages:
                    transcript.append(message)
                    view_of(transcript, manager)


def measure_runner(effort: Effort) -> None:
    from bench.runner import CALLS, prepared_runner
    from minutebook import TokenBudgetManager

    runners = [prepared_runner(effort.messages, TokenBudgetManager(32_000)) for _ in range(effort.repeats)]
    with measure_time("runner, a model call", "µs", effort.repeats * CALLS):
        for runner in runners:
            asyncio.run(runner.run())


def measure_sqlite(effort: Effort) -> None:
    with TemporaryDirectory(prefix="minutebook-bench-") as folder:
        asyncio.run(_measure_store(effort, "SQLite", f"sqlite:///{folder}/chat.db", "µs"))


def measure_postgres(effort: Effort) -> None:
    asyncio.run(_measure_store(effort, "PostgreSQL", os.environ[DATABASE], "ms"))


async def _measure_store(effort: Effort, database: str, url: str, unit: str) -> None:
    from bench.store_adapters import entry_of
    from minutebook import open_store

    entries = [
        entry_of(("user", f"message {number}: {'some words of a message ' * 12}")) for number in range(effort.stored)
    ]
    async with open_store(url) as store:

        async def write(conversation: str, count: int) -> None:
            for entry in entries[:count]:
                await store.append(conversation, [entry])

        await write("warm", effort.appends // 2)  # also grows the log
        with measure_time(f"{database}, append, 1 writer", "/s", effort.appends):
            await write("one", effort.appends)
        with measure_time(f"{database}, append, {WRITERS} writers", "/s", WRITERS * effort.burst):
            await asyncio.gather(*(write(f"many {writer}", effort.burst) for writer in range(WRITERS)))
        for start in range(0, effort.stored, 1_000):
            await store.append("long", entries[start : start + 1_000])
        await store.load("long", last_messages=LAST)
        with measure_time(f"{database}, load the last {LAST} of {effort.stored:,}", unit, effort.loads):
            for _ in range(effort.loads):
                await store.load("long", last_messages=LAST)


def measure_bytes(effort: Effort) -> None:
    from bench.sizes import measure_stored_bytes
    from bench.store_adapters import SqliteFiles

    session = coding_session(2 * effort.messages)
    text = sum(len(message["content"].encode()) for message in session)
    wait_for_turn()
    size = asyncio.run(measure_stored_bytes([session], SqliteFiles()))
    print_cost("SQLite, bytes on disk for a byte of an agent session", "bytes", size / text)


def measure_service(effort: Effort) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="minutebook-bench-"))
        provider, _ = stack.enter_context(service_processes.run_provider())
        upstream = f"http://127.0.0.1:{provider}/v1"
        port, pid = stack.enter_context(service_processes.run_service(f"sqlite:///{folder}/service.db", upstream))
        for kind, named in (("recorded", True), ("passed through", False)):
            load(port, clients=4, seconds=effort.seconds, stream=True, named=named)  # loads what is loaded on first use
            for stream in (False, True):
                for clients in (1, 16):
                    wait_for_turn()
                    before = service_processes.cpu_seconds(pid)
                    result = load(port, clients=clients, seconds=effort.seconds, stream=stream, named=named)
                    cpu = (service_processes.cpu_seconds(pid) - before) / result.answers
                    name = f"service, {kind}, {'streamed' if stream else 'whole'}, clients: {clients}"
                    service_processes.wait_until_idle(pid)
                    print_cost(name, "/s", 1 / result.per_second, cpu)


def measure_import(effort: Effort) -> None:
    """The minimum of several new interpreters."""
    for line in imports.OURS:
        imports.run(Path(sys.executable), line)  # compiles
        wait_for_turn()
        seconds = [imports.run(Path(sys.executable), line).stdout.split()[-2:] for _ in range(effort.repeats)]
        print_cost(line, "ms", *(min(map(float, clock)) for clock in zip(*seconds, strict=True)))


PARTS: dict[str, Callable[[Effort], None]] = {
    "calls": measure_calls,
    "runner": measure_runner,
    "store": measure_sqlite,
    "postgres": measure_postgres,
    "bytes": measure_bytes,
    "service": measure_service,
    "import": measure_import,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.probe", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--tiny", action="store_true", help="measure very little, to test that it runs")
    arguments = parser.parse_args()
    PARTS[arguments.part](TINY if arguments.tiny else FULL)


if __name__ == "__main__":
    main()
