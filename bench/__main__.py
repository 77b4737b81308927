"""Measures minutebook and other libraries in one run on this machine: `make bench`, or `make bench ARGS=--quick`."""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from time import perf_counter

from bench import (
    adapter_cpu,
    calls,
    capacity,
    conversation,
    decision,
    formats,
    imports,
    inspector,
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

PARTS: dict[str, Callable[..., Part]] = {
    "adapter": adapter_cpu.measure,
    "calls": calls.measure,
    "capacity": capacity.measure,
    "conversation": conversation.measure,
    "decision": decision.measure,
    "formats": formats.measure,
    "inspector": inspector.measure,
    "planning": planning.measure,
    "runner": runner.measure,
    "scale": scale.measure,
    "service": service.measure,
    "service_agent": service_agent.measure,
    "store": store.measure,
    "statements": statements.measure,
    "survival": survival.measure,
    "tasks": tasks.measure,
    "tokens": tokens.measure,
    "import": imports.measure,
    "replay": policies.measure,
}
"""The parts. Those that measure other libraries too have the parameter `peers`."""


def main() -> int:
    arguments = _parse_arguments()
    started = perf_counter()
    with_peers = {name for name in arguments.only if "peers" in signature(PARTS[name]).parameters}
    is_without = arguments.quick or not with_peers
    peers = Peers(None, "--quick leaves them out") if is_without else find_or_install_peers()
    print(f"minutebook benchmark, Python {platform.python_version()}, {platform.machine()}")
    missed = 0
    figures = {}
    parts = PARTS | {"scale": partial(scale.measure, arguments.sizes)}
    for name in arguments.only:
        part = parts[name](*([peers] if name in with_peers else []), quick=arguments.quick)
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
