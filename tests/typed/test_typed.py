"""Type checkers accept what users write."""

import subprocess
import sys
from pathlib import Path

PROGRAMS = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))
ROOT = PROGRAMS[0].parents[2]


def test_mypy_strict_accepts_the_programs_of_users():
    command = [sys.executable, "-m", "mypy", "--strict", *map(str, PROGRAMS)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout
