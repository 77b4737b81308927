"""What `import` costs: wall time of a fresh interpreter, bytecode compiled, the bare interpreter's own taken off."""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench.peers_env import HOME, OFFLINE, Peers
from bench.report import Part, Table, Target, progress, time_of, times

OURS = ("import minutebook", "from minutebook import TokenBudgetManager, Transcript")
THEIRS = ("import langchain_core.messages", "import agents", "import litellm")


def measure(peers: Peers, *, quick: bool) -> Part:
    rounds = 3 if quick else 5
    us = Path(sys.executable)
    lines = [(us, "pass"), *((us, line) for line in OURS)]
    if peers.python is not None:
        lines += [(peers.python, "pass"), *((peers.python, line) for line in THEIRS)]
    best: dict[tuple[Path, str], float] = {}
    failed: dict[str, str] = {}
    progress("import: compiling")
    for python, line in lines:  # the first import compiles
        done = _run(python, line)
        if done.returncode:
            failed[line] = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    for number in range(rounds):
        progress(f"import: round {number + 1} of {rounds}")
        for python, line in lines:
            if line not in failed:
                began = perf_counter()
                _run(python, line)
                best[python, line] = min(best.get((python, line), float("inf")), perf_counter() - began)
    return _part(best, failed, us, peers, rounds)


def _part(best: dict[tuple[Path, str], float], failed: dict[str, str], us: Path, peers: Peers, rounds: int) -> Part:
    part = Part()
    net = {
        line: max(1e-5, seconds - best[python, "pass"]) for (python, line), seconds in best.items() if line != "pass"
    }
    ours = net[OURS[0]]
    table = Table(
        f"Import: best of {rounds} fresh interpreters, less {time_of(best[us, 'pass'])} for python -c pass",
        ["statement", "time", "/ import", "/ in use"],
    )
    table.rows = [
        [line, time_of(net[line]), times(net[line] / ours), times(net[line] / net[OURS[1]])]
        for line in (*OURS, *THEIRS)
        if line in net
    ]
    table.notes.append("Our names load on first use, so a program that uses us pays the second row: compare with that.")
    table.rows += [[line, f"failed: {why[:90]}"] for line, why in failed.items()]
    if peers.python is None:
        table.notes.append(f"No peers in this table: {peers.why}")
    part.tables.append(table)
    part.targets.append(Target("import minutebook takes less than 50 ms", time_of(ours), ours < 0.05))
    theirs = {line: net[line] for line in THEIRS if line in net}
    if theirs:
        fastest = min(theirs, key=lambda line: theirs[line])
        ratio = theirs[fastest] / ours
        part.targets.append(
            Target("10 times faster than the fastest peer", f"{times(ratio)} of {fastest}", ratio >= 10)
        )
    part.figures["import_seconds"] = net
    return part


def _run(python: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Our environment says not to write bytecode, and installers may not have: here it is written, in a place apart."""
    environment = os.environ | OFFLINE | {"PYTHONPYCACHEPREFIX": str(HOME / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([str(python), "-P", "-c", line], env=environment, capture_output=True, text=True, check=False)
