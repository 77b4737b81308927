"""What `import` costs, timed inside a fresh interpreter, bytecode compiled.

Taking the bare interpreter's wall time off that of a whole process would not do: its noise is larger than our import.
"""

import os
import subprocess
import sys
from pathlib import Path

from bench.peers_env import HOME, OFFLINE, Peers
from bench.report import Part, Table, Target, progress, time_of, times

OURS = ("import minutebook", "from minutebook import TokenBudgetManager, Transcript")
THEIRS = ("import langchain_core.messages", "import agents", "import litellm")

TIMED = (
    "from time import perf_counter as wall, process_time as cpu; "
    "wall_before, cpu_before = wall(), cpu(); {}; print(wall() - wall_before, cpu() - cpu_before)"
)


def measure(peers: Peers, *, quick: bool) -> Part:
    rounds = 3 if quick else 5
    us = Path(sys.executable)
    lines = [(us, line) for line in OURS]
    if peers.python is not None:
        lines += [(peers.python, line) for line in THEIRS]
    net: dict[str, float] = {}
    failed: dict[str, str] = {}
    progress("import: compiling")
    for python, line in lines:  # the first import compiles
        done = run(python, line)
        if done.returncode:
            failed[line] = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    for number in range(rounds):
        progress(f"import: round {number + 1} of {rounds}")
        for python, line in lines:
            if line not in failed:
                seconds = float(run(python, line).stdout.split()[-2])
                net[line] = min(net.get(line, float("inf")), seconds)
    return _part(net, failed, peers, rounds)


def _part(net: dict[str, float], failed: dict[str, str], peers: Peers, rounds: int) -> Part:
    part = Part()
    ours = net[OURS[0]]
    table = Table(
        f"Import: best of {rounds} fresh interpreters",
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
        measured = f"{times(ratio)} of {fastest}; in use {times(theirs[fastest] / net[OURS[1]])}"
        part.targets.append(Target("import minutebook 10 times faster than the fastest peer", measured, ratio >= 10))
    part.figures["import_seconds"] = net
    return part


def run(python: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Import in a fresh interpreter, which prints the wall time and the CPU time in seconds.

    Our environment says not to write bytecode, and installers may not have: here it is written, in a place apart.
    """
    environment = os.environ | OFFLINE | {"PYTHONPYCACHEPREFIX": str(HOME / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [str(python), "-P", "-c", TIMED.format(line)], env=environment, capture_output=True, text=True, check=False
    )
