"""Real transcripts, from the folder `MINUTEBOOK_CORPUS` or `../shared/corpus`, if it exists."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def folder() -> Path | None:
    """The folder of the transcripts, or None if there is none."""
    setting = os.environ.get("MINUTEBOOK_CORPUS")
    path = Path(setting) if setting else ROOT.parent / "shared" / "corpus"
    return path if path.is_dir() else None


def conversations(name: str) -> Iterator[dict[str, Any]]:
    """The conversations of one file of the corpus."""
    path = folder()
    if path is None:
        return
    with gzip.open(path / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
