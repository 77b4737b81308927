"""The cost of `import`, measured inside a new interpreter with compiled bytecode.

The difference to the time of an empty interpreter would be less exact: its noise is larger than our import.
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
    own_python = Path(sys.executable)
    lines = [(own_python, line) for line in OURS]
    if peers.python is not None:
        lines += [(peers.python, line) for line in THEIRS]
    seconds_of: dict[str, float] = {}
    failed: dict[str, str] = {}
    progress("import: compiling")
    for python, line in lines:  # the first import compiles
        process = run(python, line)
        if process.returncode:
            failed[line] = (process.stderr.strip().splitlines() or ["no error output"])[-1]
    for number in range(rounds):
        progress(f"import: round {number + 1} of {rounds}")
        for python, line in lines:
            if line not in failed:
                seconds = float(run(python, line).stdout.split()[-2])
                seconds_of[line] = min(seconds_of.get(line, float("inf")), seconds)
    return _part(seconds_of, failed, peers, rounds)


def _part(seconds_of: dict[str, float], failed: dict[str, str], peers: Peers, rounds: int) -> Part:
    part = Part()
    ours = seconds_of[OURS[0]]
    table = Table(
        f"Import: minimum of {rounds} new interpreters",
        ["statement", "time", "/ import", "/ used names"],
    )
    table.rows = [
        [line, time_of(seconds_of[line]), times(seconds_of[line] / ours), times(seconds_of[line] / seconds_of[OURS[1]])]
        for line in (*OURS, *THEIRS)
        if line in seconds_of
    ]
    table.notes.append("Our names load on first use, so a program pays the second row: compare the peers with that.")
    table.rows += [[line, f"failed: {error[:90]}"] for line, error in failed.items()]
    if peers.python is None:
        table.notes.append(f"Without peers: {peers.missing_reason}")
    part.tables.append(table)
    part.targets.append(Target("import minutebook takes less than 50 ms", time_of(ours), ours < 0.05))
    theirs = {line: seconds_of[line] for line in THEIRS if line in seconds_of}
    if theirs:
        fastest = min(theirs, key=lambda line: theirs[line])
        ratio = theirs[fastest] / ours
        measured = f"{times(ratio)} of {fastest}; with used names {times(theirs[fastest] / seconds_of[OURS[1]])}"
        part.targets.append(Target("import minutebook 10 times faster than the fastest peer", measured, ratio >= 10))
    part.figures["import_seconds"] = seconds_of
    return part


def run(python: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Import in a new interpreter, which prints the wall time and the CPU time in seconds.

    Bytecode is written to a separate folder, also if the environment disables it.
    """
    environment = os.environ | OFFLINE | {"PYTHONPYCACHEPREFIX": str(HOME / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [str(python), "-P", "-c", TIMED.format(line)], env=environment, capture_output=True, text=True, check=False
    )
