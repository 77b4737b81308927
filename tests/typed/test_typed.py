"""Type checkers accept what users write."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("client_calls.py")
ROOT = PROGRAM.parents[2]


def test_mypy_strict_accepts_views_as_arguments_of_the_official_clients():
    command = [sys.executable, "-m", "mypy", "--strict", str(PROGRAM)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout
