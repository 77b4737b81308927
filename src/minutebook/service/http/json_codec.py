"""Strict JSON parsing and fast JSON writing.

JSON with duplicate keys, NaN, infinite numbers, invalid UTF-8, too many values or too much nesting is rejected here, so
handlers need not check for it. Parsing takes linear time, and the number of values is limited before anything is built.
"""

import asyncio
import json
import math
from typing import Any, Final, NoReturn

import orjson

from minutebook.errors import RequestRefused
from minutebook.wire import chat

INLINE_BYTES: Final = 256 * 1024
"""Larger bodies are parsed in a thread: other requests are answered meanwhile."""


def json_bytes(value: Any) -> bytes:
    """A value as JSON. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        return chat.json_bytes(value)


async def parse_body(body: bytes, *, max_depth: int, max_values: int) -> Any:
    """Parse a request body as strict JSON, in a thread if it is large.

    Raises:
        RequestRefused: the body is not strict JSON, or exceeds a limit.
    """
    if len(body) <= INLINE_BYTES:
        return parse_json(body, max_depth=max_depth, max_values=max_values)
    return await asyncio.to_thread(parse_json, body, max_depth=max_depth, max_values=max_values)


def parse_json(body: bytes, *, max_depth: int, max_values: int) -> Any:
    """Parse a request body as strict JSON.

    Raises:
        RequestRefused: the body is not strict JSON, or exceeds a limit.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(400, f"The body is not UTF-8 at byte {error.start}.", "invalid_json") from None
    if _has_more_values(body, max_values):
        raise RequestRefused(400, f"The body has more than {max_values} JSON values.", "too_many_values")
    try:
        value = json.loads(
            text, object_pairs_hook=_parse_object, parse_constant=_reject_constant, parse_float=_parse_float
        )
    except RequestRefused:
        raise
    except json.JSONDecodeError as error:
        problem = f"The body is not valid JSON: error in line {error.lineno}, column {error.colno}."
        raise RequestRefused(400, problem, "invalid_json") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError:  # such as a number of more than 4,300 digits
        raise RequestRefused(400, "The body is JSON that this server cannot parse.", "invalid_json") from None
    if is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def is_deeper(value: Any, max_depth: int) -> bool:
    """Whether a JSON value has more than `max_depth` levels of lists and objects."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        if not level:
            return False
        level = [
            member
            for container in level
            for member in (container.values() if type(container) is dict else container)
            if type(member) is dict or type(member) is list
        ]
    return bool(level)


def _has_more_values(body: bytes, max_values: int) -> bool:
    """Whether JSON has more than `max_values` items and members. An empty list or object counts as one."""
    if _separators(body) <= max_values:  # at least the number of values: strings may have separators, too
        return False
    # Without escapes, every second piece between quotes is outside of the strings. A value has at most two strings.
    pieces = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', 4 * max_values + 4)
    return len(pieces) > 4 * max_values + 4 or _separators(b"".join(pieces[::2])) > max_values


def _separators(body: bytes) -> int:
    return len(body.translate(None, _NO_SEPARATORS))


_NO_SEPARATORS: Final = bytes(byte for byte in range(256) if byte not in b",[{")


def _too_deep(max_depth: int) -> RequestRefused:
    return RequestRefused(400, f"The body has more than {max_depth} levels of nesting.", "too_deep")


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise RequestRefused(400, "An object has a duplicate key.", "duplicate_key")
    return members


def _reject_constant(_name: str) -> NoReturn:
    raise RequestRefused(400, "NaN and Infinity are not valid JSON.", "invalid_json")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestRefused(400, "A number is too large.", "invalid_json")
    return value
