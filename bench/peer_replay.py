"""Replays a set of sessions with one peer, in the peer's environment.

python -m bench.peer_replay RESULT.json SET quick|full PEER
"""

import json
import logging
import sys
import warnings
from pathlib import Path

from bench.policies import SETS, sessions_of
from minutebook.lab import FULL, TYPICAL_BILLING, evaluate
from minutebook.lab.peers import peer_policies


def main(result_path: str, name: str, effort: str, peer: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    report = evaluate(
        peer_policies(peer),
        sessions_of(name, quick=effort == "quick"),
        budget=SETS[name].budget,
        billing=TYPICAL_BILLING,
    )
    rows = {
        result.name: [outcome.to_json() for outcome in result.outcomes]
        for result in report.results
        if result.name != FULL
    }
    Path(result_path).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
