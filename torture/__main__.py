"""What no crash may do, tried in earnest: `make torture`, or `make torture ARGS="--only sqlite --kills 50"`.

Writers are killed at any moment, servers under them, disks fill up and files go away. Prints what was found; ends with 1
if anything was lost, doubled, halved or put out of order.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from bench.report import Table, progress
from torture import importing, trouble
from torture.killing import Tally, kill_server, kill_writers
from torture.server import NotPossible, postgres
from torture.serving import kill_service
from torture.sharing import share

SQLITE_KILLS, CLIENT_KILLS, SERVER_KILLS, SERVICE_KILLS = 1_000, 300, 50, 200
WRITERS, MESSAGES = 200, 100

Run = Callable[[argparse.Namespace], Iterator[tuple[str, Tally]]]


def main() -> int:
    asked = _arguments()
    began = perf_counter()
    table = Table(
        "What was tried, and what was found that must not be",
        ["", "kills", "acknowledged", "asked again", "lost", "half", "gaps", "doubled", "disordered", "time"],
        notes=[
            "asked again: stored, but not acknowledged when the kill came, as far as we looked before the retry;",
            "for the service, how often a client had to ask again: completions, responses and threads, streamed and whole.",
        ],
    )
    good = True
    for name in (name for name in asked.only if name in PARTS):
        try:
            good &= _try(table, PARTS[name](asked))
        except NotPossible as why:
            table.rows.append([name, f"not tried: {why}"])
    if table.rows:
        print(table)
    if IMPORT in asked.only:
        fine, said = importing.measure(asked.megabytes)
        good &= fine
        print(f"\nSQLite, import of a large file: {said}")
    if "sqlite" in asked.only:
        good &= _troubles()
    print(f"\n{'nothing was lost' if good else 'SOMETHING WAS LOST'}, in {perf_counter() - began:.0f} s")
    return 0 if good else 1


def _try(table: Table, tries: Iterator[tuple[str, Tally]]) -> bool:
    good, started = True, perf_counter()
    for what, tally in tries:
        found, took = tally.found, perf_counter() - started
        good &= found.is_nothing
        counts = (found.lost, found.halves, found.gaps, found.doubled, found.disordered)
        cells = (tally.kills, tally.acknowledged, tally.unheard, *counts)
        table.rows.append([what, *(f"{cell:,}" for cell in cells), f"{took:.0f} s"])
        started = perf_counter()
    return good


def on_sqlite(asked: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        kills = asked.kills or SQLITE_KILLS
        name = "SQLite: kill -9 of a writer"
        yield name, kill_writers(lambda stretch: f"sqlite:///{folder}/{stretch}.db", kills, name=name)
        name = f"SQLite: {WRITERS} writers in 2 processes"
        yield name, share(f"sqlite:///{folder}/shared.db", writers=WRITERS, messages=MESSAGES, name=name)


def on_postgres(asked: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    with postgres() as server:
        url = server.url()
        name = "PostgreSQL: kill -9 of a client"
        yield name, kill_writers(lambda _: url, asked.kills or CLIENT_KILLS, name=name)
        name = f"PostgreSQL: {WRITERS} writers in 2 processes"
        yield name, share(url, writers=WRITERS, messages=MESSAGES, name=name)
        name = "PostgreSQL: kill -9 of the postmaster"
        yield name, kill_server(server, min(asked.kills or SERVER_KILLS, SERVER_KILLS), name=name)


def on_service(asked: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    kills = asked.kills or SERVICE_KILLS
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        name = "service on SQLite: kill -9 while it streams"
        yield name, kill_service(f"sqlite:///{folder}/service.db", kills, name=name)
    with postgres() as server:
        name = "service on PostgreSQL: kill -9 while it streams"
        yield name, kill_service(server.url(), kills, name=name)
    with postgres() as server:
        name = "two replicas on PostgreSQL, one at a time killed"
        yield name, kill_service(server.url(), kills, replicas=2, name=name)


def _troubles() -> bool:
    good = True
    print()
    for what, make in TROUBLES.items():
        progress(f"SQLite: {what}")
        with trouble.folder_for_all() as folder:
            try:
                said = make(folder)
            except NotPossible as why:
                said = f"not tried: {why}"
            except AssertionError as why:
                good, said = False, f"FAILED: {why}"
        print(f"SQLite, {what}: {said}")
    return good


TROUBLES: dict[str, Callable[[Path], str]] = {
    "full disk": trouble.full_disk,
    "read-only file": trouble.read_only,
    "file taken away": trouble.gone,
}
PARTS: dict[str, Run] = {"sqlite": on_sqlite, "postgres": on_postgres, "service": on_service}
IMPORT = "import"
"""Asked for by name: it takes gigabytes, and minutes."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--only", type=_parts, default=list(PARTS), help=f"some of {','.join((*PARTS, IMPORT))}")
    parser.add_argument(
        "--megabytes", type=int, metavar="N", default=1_024, help="how large a file --only import reads"
    )
    parser.add_argument(
        "--kills", type=int, metavar="N", help="fewer kills than the 1,000, 300, 50 and 200 of a whole run"
    )
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = set(names) - {*PARTS, IMPORT}
    if unknown:
        there = ", ".join((*PARTS, IMPORT))
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; there are {there}")
    return names


if __name__ == "__main__":
    sys.exit(main())
