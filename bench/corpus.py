"""Real transcripts, where they can be had: `MINUTEBOOK_CORPUS`, or `../shared/corpus` beside the repository."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def folder() -> Path | None:
    """Where the transcripts are, or None."""
    named = os.environ.get("MINUTEBOOK_CORPUS")
    place = Path(named) if named else ROOT.parent / "shared" / "corpus"
    return place if place.is_dir() else None


def conversations(name: str) -> Iterator[dict[str, Any]]:
    """The conversations of one file of the corpus."""
    place = folder()
    if place is None:
        return
    with gzip.open(place / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
