"""Crash tests of the stores and the service: `make torture`, or `make torture ARGS="--only sqlite --kills 50"`.

Writers and servers are killed at random moments, disks fill up and files are moved. Prints what was found, and exits with
1 if anything was lost, stored twice, stored in part or stored out of order.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from bench.report import Table, progress
from torture import file_faults, large_import
from torture.concurrency import write_from_two_processes
from torture.kills import CrashResult, kill_server, kill_writers
from torture.runs import kill_runs
from torture.server import Unsupported, postgres
from torture.service import kill_service

SQLITE_KILLS, CLIENT_KILLS, SERVER_KILLS, SERVICE_KILLS, RUN_KILLS = 1_000, 300, 50, 200, 100
WRITERS, MESSAGES = 200, 100

CrashTests = Callable[[argparse.Namespace], Iterator[tuple[str, CrashResult]]]
"""Runs crash tests, and yields the name and the result of each."""


def main() -> int:
    arguments = _parse_arguments()
    started = perf_counter()
    table = Table(
        "Crash tests, and the violations found",
        ["", "kills", "acknowledged", "retries", "lost", "partial", "gaps", "duplicates", "out of order", "time"],
        notes=[
            "retries: turns that were stored but not acknowledged when the writer was killed, if they were read before the",
            "retry; for the service, the retries of its clients (completions, responses and threads, streamed or not);",
            "for runs, the requests that were sent again after a kill.",
        ],
    )
    is_good = True
    for name in (name for name in arguments.only if name in PARTS):
        try:
            is_good &= _run_crash_tests(table, PARTS[name](arguments))
        except Unsupported as reason:
            table.rows.append([name, f"skipped: {reason}"])
    if table.rows:
        print(table)
    if IMPORT in arguments.only:
        result = large_import.measure(arguments.megabytes)
        is_good &= result.passed
        print(f"\nSQLite, import of a large file: {result.text}")
    if "sqlite" in arguments.only:
        is_good &= _run_file_faults()
    print(f"\n{'nothing was lost' if is_good else 'FAILED: see above'}, in {perf_counter() - started:.0f} s")
    return 0 if is_good else 1


def _run_crash_tests(table: Table, tests: Iterator[tuple[str, CrashResult]]) -> bool:
    is_good, started = True, perf_counter()
    for name, result in tests:
        violations, seconds = result.violations, perf_counter() - started
        is_good &= not violations
        counts = (
            *(violations.lost, violations.partial, violations.gaps),
            *(violations.duplicates, violations.out_of_order),
        )
        cells = (result.kills, result.acknowledged, result.retries, *counts)
        table.rows.append([name, *(f"{cell:,}" for cell in cells), f"{seconds:.0f} s"])
        started = perf_counter()
    return is_good


def crash_sqlite(arguments: argparse.Namespace) -> Iterator[tuple[str, CrashResult]]:
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        kills = arguments.kills or SQLITE_KILLS
        name = "SQLite: kill -9 of a writer"
        yield name, kill_writers(lambda batch: f"sqlite:///{folder}/{batch}.db", kills, name=name)
        name = f"SQLite: {WRITERS} writers in 2 processes"
        url = f"sqlite:///{folder}/shared.db"
        yield name, write_from_two_processes(url, writers=WRITERS, messages=MESSAGES, name=name)


def crash_postgres(arguments: argparse.Namespace) -> Iterator[tuple[str, CrashResult]]:
    with postgres() as server:
        url = server.url()
        name = "PostgreSQL: kill -9 of a client"
        yield name, kill_writers(lambda _: url, arguments.kills or CLIENT_KILLS, name=name)
        name = f"PostgreSQL: {WRITERS} writers in 2 processes"
        yield name, write_from_two_processes(url, writers=WRITERS, messages=MESSAGES, name=name)
        name = "PostgreSQL: kill -9 of the postmaster"
        yield name, kill_server(server, min(arguments.kills or SERVER_KILLS, SERVER_KILLS), name=name)


def crash_service(arguments: argparse.Namespace) -> Iterator[tuple[str, CrashResult]]:
    kills = arguments.kills or SERVICE_KILLS
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        name = "service on SQLite: kill -9 while it streams"
        yield name, kill_service(f"sqlite:///{folder}/service.db", kills, name=name)
    with postgres() as server:
        name = "service on PostgreSQL: kill -9 while it streams"
        yield name, kill_service(server.url(), kills, name=name)
    with postgres() as server:
        name = "two replicas on PostgreSQL, one at a time killed"
        yield name, kill_service(server.url(), kills, replicas=2, name=name)


def crash_runs(arguments: argparse.Namespace) -> Iterator[tuple[str, CrashResult]]:
    kills = arguments.kills or RUN_KILLS
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        name = "Conversation.run on SQLite: kill -9"
        yield name, kill_runs(f"sqlite:///{folder}/runs.db", kills, name=name)
    with postgres() as server:
        name = "Conversation.run on PostgreSQL: kill -9"
        yield name, kill_runs(server.url(), kills, name=name)


def _run_file_faults() -> bool:
    is_good = True
    print()
    for name, run in FILE_FAULTS.items():
        progress(f"SQLite: {name}")
        with file_faults.world_writable_folder() as folder:
            try:
                outcome = run(folder)
            except Unsupported as reason:
                outcome = f"skipped: {reason}"
            except AssertionError as error:
                is_good, outcome = False, f"FAILED: {error}"
        print(f"SQLite, {name}: {outcome}")
    return is_good


FILE_FAULTS: dict[str, Callable[[Path], str]] = {
    "full disk": file_faults.fill_disk,
    "read-only file": file_faults.write_to_read_only_file,
    "moved file": file_faults.move_file,
}
PARTS: dict[str, CrashTests] = {
    "sqlite": crash_sqlite,
    "postgres": crash_postgres,
    "service": crash_service,
    "run": crash_runs,
}
IMPORT = "import"
"""Runs only if named in `--only`: it takes gigabytes and minutes."""


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    names = ",".join((*PARTS, IMPORT))
    parser.add_argument("--only", type=_parse_parts, default=list(PARTS), help=f"comma-separated list of {names}")
    parser.add_argument(
        "--megabytes", type=int, metavar="N", default=1_024, help="size of the file that --only import reads"
    )
    parser.add_argument(
        "--kills", type=int, metavar="N", help="number of kills. Default: 1,000, 300, 50, 200 and 100, by test"
    )
    return parser.parse_args()


def _parse_parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = set(names) - {*PARTS, IMPORT}
    if unknown:
        valid = ", ".join((*PARTS, IMPORT))
        raise argparse.ArgumentTypeError(f"unknown part {', '.join(sorted(unknown))}; expected some of {valid}")
    return names


if __name__ == "__main__":
    sys.exit(main())
