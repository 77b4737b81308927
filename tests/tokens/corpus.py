"""The real conversations, where they are: `MINUTEBOOK_CORPUS`, or `../shared/corpus` beside the checkout."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def conversations(name: str) -> Iterator[dict[str, Any]]:
    """Every conversation of one file of the corpus; the test is skipped where there is no corpus."""
    named = os.environ.get("MINUTEBOOK_CORPUS")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip(f"no corpus in {folder}; say where it is with MINUTEBOOK_CORPUS")
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
