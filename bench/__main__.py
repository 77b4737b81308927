"""Measures minutebook and other libraries in one run on this machine: `make bench`, or `make bench ARGS=--quick`."""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench import (
    adapter_cpu,
    calls,
    conversation,
    decision,
    imports,
    planning,
    policies,
    runner,
    scale,
    service,
    service_agent,
    statements,
    store,
    survival,
    tasks,
    tokens,
)
from bench.peers_env import Peers, find_or_install_peers
from bench.report import Part, comma_separated, progress

PARTS: dict[str, Callable[[Peers, bool], Part]] = {
    "adapter": lambda _, quick: adapter_cpu.measure(quick=quick),
    "calls": lambda peers, quick: calls.measure(peers, quick=quick),
    "conversation": lambda _, quick: conversation.measure(quick=quick),
    "decision": lambda peers, quick: decision.measure(peers, quick=quick),
    "planning": lambda _, quick: planning.measure(quick=quick),
    "runner": lambda _, quick: runner.measure(quick=quick),
    "scale": lambda _, quick: scale.measure(quick=quick),
    "service": lambda _, quick: service.measure(quick=quick),
    "service_agent": lambda _, quick: service_agent.measure(quick=quick),
    "store": lambda peers, quick: store.measure(peers, quick=quick),
    "statements": lambda _, quick: statements.measure(quick=quick),
    "survival": lambda _, quick: survival.measure(quick=quick),
    "tasks": lambda _, quick: tasks.measure(quick=quick),
    "tokens": lambda _, quick: tokens.measure(quick=quick),
    "import": lambda peers, quick: imports.measure(peers, quick=quick),
    "replay": lambda peers, quick: policies.measure(peers, quick=quick),
}


def main() -> int:
    arguments = _parse_arguments()
    started = perf_counter()
    peers = Peers(None, "--quick leaves them out") if arguments.quick else find_or_install_peers()
    print(f"minutebook benchmark, Python {platform.python_version()}, {platform.machine()}")
    missed = 0
    figures = {}
    parts = PARTS | {"scale": lambda _, quick: scale.measure(arguments.sizes, quick=quick)}
    for name in arguments.only:
        part = parts[name](peers, arguments.quick)
        print(f"\n== {name}\n\n{part}", flush=True)
        missed += sum(not target.met for target in part.targets)
        figures[name] = {**part.figures, "targets": [vars(target) for target in part.targets]}
    progress(f"done in {perf_counter() - started:.0f} s")
    print(f"\n{missed} target(s) missed" if missed else "\nevery target met")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 1 if missed and arguments.strict else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a shorter run without the peers, under a minute")
    parser.add_argument(
        "--only", type=comma_separated(PARTS), default=list(PARTS), help=f"comma-separated list of {','.join(PARTS)}"
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        help="numbers of messages for the part scale, such as 10000,100000,1000000",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
