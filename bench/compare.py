"""Compares the performance of two revisions: `make bench-compare BASE=main`, or with `ARGS="--only store,service"`.

The base revision is checked out in `.bench/`. In every round two new processes, one for each tree, measure each part.
They alternate for every figure, so that other load on the machine affects both.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from bench.corpus import ROOT
from bench.peers_env import HOME
from bench.probe import DATABASE, PARTS, READY, Cost
from bench.report import Table, comma_separated, progress
from bench.store_adapters import PostgresDatabases
from torture.server import Unsupported, postgres

WORSE = 1.15
"""Ratio above which a figure is marked as worse."""
Clock = Literal["wall", "cpu"]


@dataclass
class Figure:
    """The costs of one operation in both trees, round by round."""

    base: list[Cost] = field(default_factory=list)
    new: list[Cost] = field(default_factory=list)

    def seconds(self, clock: Clock) -> tuple[list[float], list[float]]:
        base, new = ([getattr(cost, clock) for cost in side] for side in (self.base, self.new))
        return base, new

    def ratio(self, clock: Clock) -> float:
        """The new tree's median cost over the base's."""
        base, new = self.seconds(clock)
        return median(new) / median(base) if all(base) and None not in new else 0.0

    def cells(self, clock: Clock) -> list[str]:
        """Both medians, their ratio, the ratio of the minima, and the lowest and highest ratio of a round."""
        base, new = self.seconds(clock)
        if not self.ratio(clock):
            return [""] * 5
        unit = "µs" if clock == "cpu" and self.base[0].unit == "/s" else self.base[0].unit
        ratios = [after / before for before, after in zip(base, new, strict=False)]
        shown = [show(median(side), unit) for side in (base, new)]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        return [*shown, f"{self.ratio(clock):.2f}", f"{min(new) / min(base):.2f}", spread]


def show(cost: float, unit: str) -> str:
    value = 1 / cost if unit == "/s" else cost * {"ms": 1e3, "µs": 1e6}.get(unit, 1.0)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def table(figures: Mapping[str, Figure], title: str) -> Table:
    columns = ["base", "new", "ratio", "best", "rounds"]
    result = Table(title, ["", *columns, *(f"CPU {column}" for column in columns), "worse"])
    clocks: tuple[Clock, ...] = ("wall", "cpu")
    for name, figure in figures.items():
        worse = " and ".join(clock for clock in clocks if figure.ratio(clock) > WORSE)
        result.rows.append([name, *figure.cells("wall"), *figure.cells("cpu"), worse])
    result.notes = [
        f"ratio: new median cost / base median cost, also for rates. Above {WORSE} is worse.",
        "best: ratio of the minima. rounds: lowest and highest ratio of a round.",
        "CPU: time of the service per request, of the PostgreSQL client, or of the measured process.",
    ]
    return result


class Probe:
    """A process that measures one part on one tree."""

    def __init__(self, tree: Path, part: str, database: str, *, tiny: bool) -> None:
        self.costs: dict[str, Cost] = {}
        self._source = tree / "src"
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - `close` closes it
        path = os.pathsep.join((str(self._source), str(ROOT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.probe", part, *(["--tiny"] if tiny else [])],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, DATABASE: database},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def wait_until_ready(self) -> bool:
        """Wait until the process is ready for its next figure; False if it has ended."""
        line = self._output.readline().split(maxsplit=1)
        if line and line[0] == READY:
            assert Path(line[1].strip()) == self._source, f"the probe measures {line[1]} instead of {self._source}"
        return bool(line)

    def measure_next(self) -> None:
        self._input.write("\n")
        self._input.flush()
        if line := self._output.readline():
            name, cost = json.loads(line)
            self.costs[name] = Cost(**cost)

    def close(self) -> str:
        """End the process; return its error output if it failed."""
        self._input.close()
        with self._process, self._errors:
            if not self._process.wait():
                return ""
            self._errors.seek(0)
            return self._errors.read() or f"exit status {self._process.returncode}"


def measure(
    trees: Mapping[str, Path], part: str, databases: PostgresDatabases | None = None, *, tiny: bool = False
) -> tuple[dict[str, dict[str, Cost]], dict[str, str]]:
    """Measure one part in each tree, in new processes that alternate; return the costs and the errors by tree."""
    urls = {side: asyncio.run(databases.new()) if databases and part == "postgres" else "" for side in trees}
    probes = {side: Probe(tree, part, urls[side], tiny=tiny) for side, tree in trees.items()}
    try:
        while ready := [probe for probe in probes.values() if probe.wait_until_ready()]:
            for probe in ready:
                probe.measure_next()
    finally:
        failures = {side: probe.close() for side, probe in probes.items()}
        for url in filter(None, urls.values()):
            asyncio.run(databases.remove(url))  # type: ignore[union-attr] # not None if there are URLs
    return {side: probe.costs for side, probe in probes.items()}, {
        side: error for side, error in failures.items() if error
    }


def main() -> int:
    arguments = parse_arguments()
    trees = {"base": check_out(arguments.base), "new": ROOT}
    figures: dict[str, Figure] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        databases = None
        if "postgres" in arguments.only:
            try:
                databases = PostgresDatabases(stack.enter_context(postgres("wal_recycle=on")).url())
            except Unsupported as reason:
                failed["postgres"] = str(reason)
        for number in range(arguments.rounds):
            for part in arguments.only:
                if part in failed:
                    continue
                progress(f"compare: round {number + 1} of {arguments.rounds}, {part}")
                order = dict(sorted(trees.items(), reverse=number % 2 > 0))
                costs, failures = measure(order, part, databases, tiny=arguments.tiny)
                for side, error in failures.items():
                    failed[part] = f"{side}: {error.splitlines()[-1]}"
                    progress(error)
                for side, side_costs in costs.items():
                    for name, cost in side_costs.items():
                        getattr(figures.setdefault(name, Figure()), side).append(cost)
    both = {name: figure for name, figure in figures.items() if figure.base and figure.new}
    print(table(both, f"{arguments.base} and the working tree, {arguments.rounds} rounds"))
    for part, error in failed.items():
        print(f"{part} failed: {error}")
    if arguments.json:
        arguments.json.write_text(json.dumps({name: asdict(both[name]) for name in both}, indent=1), encoding="utf-8")
    return 1 if failed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-compare", description=__doc__)
    parser.add_argument("base", help="the git revision to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", type=comma_separated(PARTS), default=list(PARTS), help=f"comma-separated list of {','.join(PARTS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the costs of every round to this file")
    parser.add_argument("--tiny", action="store_true", help="measure very little, to test that it runs")
    return parser.parse_args()


def check_out(revision: str) -> Path:
    """Check out a revision into a worktree, which stays for the next comparison; return its path."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout

    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    folder = HOME / f"base-{commit[:12]}"
    if not folder.is_dir():
        git("worktree", "prune")  # forgets worktrees whose folder `make clean` has deleted
        git("worktree", "add", "--detach", str(folder), commit)
    return folder


if __name__ == "__main__":
    sys.exit(main())
