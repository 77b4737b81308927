"""One thing that is wrong with a JSON value, and where."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """Says `steps[2].title: is missing`."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.problem}"


def at_key(path: str, key: str) -> str:
    """The path of what an object holds under a key."""
    if not key.isidentifier():
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def at_index(path: str, index: int) -> str:
    """The path of an item of a list."""
    return f"{path}[{index}]"


def said(data: Any) -> str:
    """A value as a message names it: scalars as JSON, cut short; the rest by what they are."""
    if isinstance(data, Mapping):
        return "an object"
    if isinstance(data, list | tuple):
        return f"a list of {len(data)}"
    text = json.dumps(data, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= 60 else f"{text[:59]}…"
