"""Imports a file larger than memory should hold: how long `minutebook import` takes, and how much memory."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from bench.report import progress
from minutebook.testing import coding_session

TURNS = 16
"""Turns of each conversation. A conversation is one line of the file."""
MAX_MEMORY_MEGABYTES = 300
"""Maximum memory of an import, for files of any size."""
_MAIN = "from minutebook.cli.main import main; main()"


class ImportMeasurement(NamedTuple):
    passed: bool
    text: str


class _ImportRun(NamedTuple):
    exit_code: int
    peak_megabytes: int


def measure(megabytes: int) -> ImportMeasurement:
    with tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder:
        file, database = Path(folder) / "large.jsonl", Path(folder) / "chat.db"
        progress(f"import: writing {megabytes:,} MB")
        conversations = _write_sessions(file, megabytes * 1_000_000)
        progress("import: reading them")
        started = perf_counter()
        run = _run_import(file, database)
        seconds = perf_counter() - started
        size = database.stat().st_size if database.exists() else 0
    text = (
        f"{megabytes:,} MB, {conversations:,} conversations in {seconds:.0f} s ({megabytes / seconds:.1f} MB/s),"
        f" at most {run.peak_megabytes:,} MB of memory, {size / 1e6:,.0f} MB of database"
    )
    if run.exit_code:
        return ImportMeasurement(False, f"FAILED with exit code {run.exit_code}: {text}")
    if run.peak_megabytes > MAX_MEMORY_MEGABYTES:
        return ImportMeasurement(False, f"FAILED, more than {MAX_MEMORY_MEGABYTES} MB of memory: {text}")
    return ImportMeasurement(True, text)


def _write_sessions(file: Path, size: int) -> int:
    """Write sessions until the file has a size; return how many. All differ, so that no payload is shared."""
    number = written = 0
    with file.open("w", encoding="utf-8") as lines:
        while written < size:
            messages = [dict(message) for message in coding_session(number, TURNS)]
            written += lines.write(json.dumps({"id": f"session {number}", "messages": messages}) + "\n")
            number += 1
    return number


def _run_import(file: Path, database: Path) -> _ImportRun:
    command = [sys.executable, "-c", _MAIN, "import", str(file), "--db", f"sqlite:///{database}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return _ImportRun(process.returncode, usage.ru_maxrss // 1024)
