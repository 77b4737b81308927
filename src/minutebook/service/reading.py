"""A request's body, read strictly: what two readers could understand differently is refused.

Duplicate keys, NaN, numbers that are infinite, bytes that are not UTF-8 and nests that are too deep never get further
than here, so nothing behind has to think of them.
"""

import json
import math
import re
from typing import Any, Final, NoReturn

from minutebook.errors import RequestRefused

_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")


def parsed(body: bytes, *, max_depth: int) -> Any:
    """The JSON of a body.

    Raises:
        RequestRefused: it is none, or is not plain.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(400, f"The body is not UTF-8 at byte {error.start}.", "invalid_json") from None
    if _depth(body) > max_depth:
        raise RequestRefused(400, f"The body is nested more than {max_depth} deep.", "too_deep")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
    except RequestRefused:
        raise
    except json.JSONDecodeError as error:
        said = f"The body is not JSON: see line {error.lineno}, column {error.colno}."
        raise RequestRefused(400, said, "invalid_json") from None
    except (ValueError, RecursionError):  # such as a number of more than 4,300 digits
        raise RequestRefused(400, "The body is not JSON that can be read.", "invalid_json") from None


def _depth(body: bytes) -> int:
    deepest = depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise RequestRefused(400, "A key stands twice in one object. Keep one of them.", "duplicate_key")
    return made


def _constant(_name: str) -> NoReturn:
    raise RequestRefused(400, "NaN and Infinity are not JSON.", "invalid_json")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestRefused(400, "A number is too large.", "invalid_json")
    return value
