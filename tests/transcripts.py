"""Real transcripts for tests, where they can be had."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench import corpus

NAMES = (
    "broken_asfound",
    "claude_code",
    "codex_responses",
    "coding_agents",
    "customer_service",
    "gemini",
    "long_chat",
    "multilingual",
    "provider_recordings",
    "terminal",
)
FILES = [name if name == "terminal" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
"""The same as parameters of a test: `make test` reads the smallest file, `make test-all` every file."""

needs_corpus = pytest.mark.skipif(
    corpus.folder() is None, reason="no real transcripts: set MINUTEBOOK_CORPUS to the folder that has them"
)


def real(name: str) -> Iterator[dict[str, Any]]:
    """The conversations of one file, each {id, model, messages, meta}."""
    return corpus.conversations(name)
