"""Our figures beside the peers', from one run on this machine: `make bench`, or `make bench ARGS=--quick`."""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench import calls, decision, imports, planning, policies, runner, service, store, survival, tokens
from bench.peers_env import Peers, peers
from bench.report import Part, comma_separated, progress

PARTS: dict[str, Callable[[Peers, bool], Part]] = {
    "calls": lambda them, quick: calls.measure(them, quick=quick),
    "decision": lambda them, quick: decision.measure(them, quick=quick),
    "planning": lambda _, quick: planning.measure(quick=quick),
    "runner": lambda _, quick: runner.measure(quick=quick),
    "service": lambda _, quick: service.measure(quick=quick),
    "store": lambda them, quick: store.measure(them, quick=quick),
    "survival": lambda _, quick: survival.measure(quick=quick),
    "tokens": lambda _, quick: tokens.measure(quick=quick),
    "import": lambda them, quick: imports.measure(them, quick=quick),
    "replay": lambda them, quick: policies.measure(them, quick=quick),
}


def main() -> int:
    asked = _arguments()
    began = perf_counter()
    them = Peers(None, "--quick leaves them out") if asked.quick else peers()
    print(f"minutebook's benchmark, Python {platform.python_version()}, {platform.machine()}")
    missed = 0
    figures = {}
    for name in asked.only:
        part = PARTS[name](them, asked.quick)
        print(f"\n== {name}\n\n{part}", flush=True)
        missed += sum(not target.met for target in part.targets)
        figures[name] = {**part.figures, "targets": [vars(target) for target in part.targets]}
    progress(f"done in {perf_counter() - began:.0f} s")
    print(f"\n{missed} target(s) missed" if missed else "\nevery target met")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 1 if missed and asked.strict else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller version, without the peers, under a minute")
    parser.add_argument("--only", type=comma_separated(PARTS), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
