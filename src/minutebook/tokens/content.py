"""What the parts of a message cost: text, media, tool calls, and values nobody expected there."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minutebook.tokens.media import MediaPrices, is_blob, media_tokens

PER_CALL = 8
"""What a provider spends on wrapping one tool call."""

TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The types of part that hold text, and the key they hold it under."""

Count = Callable[[str], int]


def content_tokens(content: Any, count: Count, prices: MediaPrices) -> int:
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return sum(_part_tokens(part, count, prices) for part in content)
    return _part_tokens(content, count, prices)


def call_tokens(call: Any, count: Count) -> int:
    """8 + name + arguments; arguments that were already parsed count as their compact JSON."""
    function = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return PER_CALL + _count_any(call, count)
    arguments = function.get("arguments", function.get("input"))
    return PER_CALL + _count_any(function.get("name"), count) + _count_any(arguments, count)


def _part_tokens(part: Any, count: Count, prices: MediaPrices) -> int:
    if not isinstance(part, Mapping):
        return _count_any(part, count)
    kind = part.get("type")
    if isinstance(kind, str) and (key := TEXT_KEYS.get(kind)):
        return _count_any(part.get(key), count)
    source = part.get("source")
    if kind == "document" and isinstance(source, Mapping) and source.get("type") in {"text", "content"}:
        # Anthropic's plain-text documents: what they hold is sent, and counted, as ordinary content.
        return content_tokens(source.get("data", source.get("content", "")), count, prices)
    priced = media_tokens(part, prices)
    if priced is not None:
        return priced
    rest, blobs = _without_blobs(part)
    return _count_any(rest, count) + blobs * prices.image(None, "auto")


def _without_blobs(value: Any, depth: int = 0) -> tuple[Any, int]:
    """The value with its encoded media taken out, and how many there were."""
    if isinstance(value, str):
        return ("", 1) if is_blob(value) else (value, 0)
    if depth > 32:  # nobody nests media that deep, and we must not run out of stack
        return value, 0
    if isinstance(value, Mapping):
        pairs = {key: _without_blobs(inner, depth + 1) for key, inner in value.items()}
        return {key: inner for key, (inner, _) in pairs.items()}, sum(blobs for _, blobs in pairs.values())
    if isinstance(value, list | tuple):
        items = [_without_blobs(inner, depth + 1) for inner in value]
        return [inner for inner, _ in items], sum(blobs for _, blobs in items)
    return value, 0


def _count_any(value: Any, count: Count) -> int:
    if value is None:
        return 0
    return count(value if isinstance(value, str) else compact_json(value))


def compact_json(value: Any) -> str:
    """The JSON of a value, or a short description of one that has none (a cycle, a key that is no string)."""
    import json  # most conversations never need it, and it is a third of this package's start-up

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
