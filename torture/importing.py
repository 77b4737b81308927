"""A file larger than one would read into memory, imported by the command: how long it takes, and how much memory."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench.report import progress
from minutebook.testing import coding_session

TURNS = 16
"""In each conversation, which is a line."""
_MAIN = "from minutebook.cli.main import main; main()"
MOST_MEGABYTES = 300
"""How much memory an import may take, however large the file is."""


def measure(megabytes: int) -> tuple[bool, str]:
    """Whether it went well, and what was found."""
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        file, database = Path(folder) / "large.jsonl", Path(folder) / "chat.db"
        progress(f"import: writing {megabytes:,} MB")
        conversations = _write(file, megabytes * 1_000_000)
        progress("import: reading them")
        began = perf_counter()
        code, peak = _imported(file, database)
        took = perf_counter() - began
        size = database.stat().st_size if database.exists() else 0
    speed = megabytes / took
    said = (
        f"{megabytes:,} MB, {conversations:,} conversations in {took:.0f} s ({speed:.1f} MB/s),"
        f" at most {peak:,} MB of memory, {size / 1e6:,.0f} MB of database"
    )
    if code:
        return False, f"FAILED with {code}: {said}"
    if peak > MOST_MEGABYTES:
        return False, f"FAILED, more than {MOST_MEGABYTES} MB of memory: {said}"
    return True, said


def _write(file: Path, size: int) -> int:
    """Sessions that differ, so that nothing is stored once for all of them."""
    number = written = 0
    with file.open("w", encoding="utf-8") as lines:
        while written < size:
            messages = [dict(message) for message in coding_session(number, TURNS)]
            written += lines.write(json.dumps({"id": f"session {number}", "messages": messages}) + "\n")
            number += 1
    return number


def _imported(file: Path, database: Path) -> tuple[int, int]:
    """The exit code of `minutebook import`, and how many megabytes it took at most."""
    command = [sys.executable, "-c", _MAIN, "import", str(file), "--db", f"sqlite:///{database}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss // 1024
