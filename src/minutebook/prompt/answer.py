"""The JSON that a model's answer holds, whatever stands around it: prose, a code fence, an apology.

One thing that is wrong with a JSON value, and where.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

_FENCED: Final = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
_OPENING: Final = re.compile(r'\{(?=\s*["}])')
_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[{}]')  # without its end, a string reaches to the end of the line


def decoded(text: str) -> Any:
    """The JSON value that the whole text is.

    Raises:
        ValueError: it is none. NaN and Infinity, which Python would take, are none.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def values(text: str) -> Iterator[Any]:
    """The JSON value that the text is, or else every object in it; in place of one that is broken, the ValueError.

    What stands between a brace and its partner is looked at as a whole: the inside of a broken object is never taken
    for the answer.
    """
    fence = _FENCED.fullmatch(text)
    try:
        yield decoded(fence[1] if fence else text)
    except ValueError:
        for stretch in _stretches(text):
            try:
                yield decoded(stretch)
            except ValueError as error:
                yield error


def _stretches(text: str) -> Iterator[str]:
    """From each brace that may open a JSON object to its partner, or to the end where it has none."""
    position = 0
    while opening := _OPENING.search(text, position):
        depth, position = 0, opening.start()
        while token := _TOKEN.search(text, position):
            position = token.end()
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if not depth:
                break
        position = len(text) if depth else position
        yield text[opening.start() : position]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


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
