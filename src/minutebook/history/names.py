"""A list of the names in messages that a view leaves out.

Later answers mostly refer to earlier messages by name: a path, an identifier, an order number. A short list of them keeps
these references possible after a cut, at a few percent of the budget.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

NAME: Final = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:py|ts|js|go|rs|json|md|yaml|yml|toml|sql|sh|txt)\b|\b[A-Z0-9]{6,}\b"
    r"|\b[0-9a-f]{8,}\b|\b\d{4,}\b|[\w.+-]+@[\w-]+\.\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b"
)
"""Paths, file names, ids, hashes, numbers, mail addresses and identifiers."""
LIST_TEXT: Final = "[Names from earlier messages that are left out: {}]"
_MAX_NAME: Final = 120
"""Longer matches, such as encoded data, are not names."""
_HALF_LIFE: Final = 80
"""Number of messages after which the recency of a name counts half."""
_MIN_TOKENS: Final = 40
"""A shorter list is not worth a message."""


def full_text(message: Message) -> str:
    """All text of a message: its content and the texts in the arguments of its calls, without JSON escapes."""
    parts = [text_of(message)]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        arguments = function.get("arguments", function.get("input")) or ""
        try:
            parts.extend(_strings(json.loads(arguments)))
        except (ValueError, TypeError, RecursionError):
            parts.append(str(arguments))
    return "\n".join(parts)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


class NameIndex:
    """The names of a transcript's messages, each message searched once."""

    def __init__(self, source: Transcript) -> None:
        self._source = source
        self._names: list[frozenset[str]] = []
        """The names of each message."""
        self._last_index: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._written: set[str] = set()
        """Names that the user or the model wrote."""
        self._tokens: dict[str, int] = {}

    def names_of(self, index: int) -> frozenset[str]:
        self._extend(index + 1)
        return self._names[index]

    def _extend(self, end: int) -> None:
        for index in range(len(self._names), end):
            message = self._source[index]
            names = names_in(message)
            self._names.append(names)
            self._last_index.update(dict.fromkeys(names, index))
            self._counts.update(names)
            if not is_result(message):
                self._written |= names

    def list_message(self, shown: set[str], end: int, max_tokens: int, counter: TokenCounter) -> Message | None:
        """The message with the most useful names of the messages before `end` that are not `shown`; None if it is too short.

        Names that the user or the model wrote, that occur often or that are recent come first, short ones before long ones.
        """
        if max_tokens < _MIN_TOKENS:
            return None
        if end < len(self._names):  # another view has read more of the transcript
            earlier = NameIndex(self._source)
            earlier._extend(end)
            return earlier.list_message(shown, end, max_tokens, counter)
        self._extend(end)

        def rank(name: str) -> tuple[float, str]:
            recency = 3.0 * 2 ** ((self._last_index[name] - end) / _HALF_LIFE)
            value = 2.0 * (name in self._written) + 0.5 * min(self._counts[name], 4) + recency
            return -value / (len(name) / 3 + 2) ** 0.5, name

        # A name and its comma have at least two tokens.
        best = nsmallest(max_tokens // 2, self._last_index.keys() - shown, key=rank)
        listed, left = [], max_tokens - counter.message(_list_of(()))
        for name in best:
            tokens = self._tokens.get(name) or self._tokens.setdefault(name, counter.count(f", {name}"))
            if tokens <= left:
                listed.append(name)
                left -= tokens
        while listed and counter.message(_list_of(listed)) > max_tokens:  # tokens of a text are not quite additive
            del listed[-max(1, len(listed) // 50) :]
        return _list_of(listed) if listed else None


def names_in(message: Message) -> frozenset[str]:
    return frozenset(name for name in NAME.findall(full_text(message)) if len(name) <= _MAX_NAME)


def _list_of(names: Sequence[str]) -> Message:
    return {"role": "user", "content": LIST_TEXT.format(", ".join(names))}
