"""A list of the names in messages that a view leaves out.

Later answers mostly refer to earlier messages by name: a path, an identifier, an order number. A short list of them keeps
these references possible after a cut, at a few percent of the budget.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from math import log, log1p
from textwrap import shorten
from typing import Any, Final

from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

NAME: Final = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:py|ts|js|go|rs|json|md|yaml|yml|toml|sql|sh|txt)\b|\b[A-Z0-9]{6,}\b"
    r"|\b[0-9a-f]{8,}\b|\b\d{4,}\b|[\w.+-]+@[\w-]+\.\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b"
)
"""Paths, file names, ids, hashes, numbers, mail addresses and identifiers."""
_LESS_SPECIFIC_NAME: Final = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b[A-Z][a-z]+[A-Z]\w*|\d{4}-\d\d-\d\d"
    r"|\b_*[a-zA-Z]+(?:_+[a-zA-Z0-9]+)+|[a-zA-Z]+(?:-[a-zA-Z0-9]+)+"
)
"""Dotted names, class names, dates, constants and hyphenated words. They are listed too, after those of `NAME`."""
_RUN: Final = re.compile(r"[\w.+@/:$-]{3,}")
"""A run of characters that can be part of a name. Every name is within one run."""
LIST_TEXT: Final = "[Names from earlier messages that are left out: {}]"
_MAX_NAME: Final = 120
"""Longer matches, such as encoded data, are not names."""
_AGE_UNIT: Final = 20
"""Number of messages that count as one step of age in the rank of a name."""
_MIN_TOKENS: Final = 40
"""A shorter list is not worth a message."""
_LOGARITHMS: Final = [log(max(count, 1)) for count in range(257)]


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


class MessageNames:
    """The names in the messages of a transcript, each message searched once."""

    def __init__(self, source: Transcript) -> None:
        self.source = source
        self._names: list[frozenset[str]] = []
        """The names of each message."""
        self._names_of_run: dict[str, tuple[str, ...]] = {}
        self._words: set[str] = set()
        """Runs without a name."""

    def of(self, index: int) -> frozenset[str]:
        """The names in the message at this index."""
        self.read(index + 1)
        return self._names[index]

    def read(self, end: int, max_messages: int | None = None) -> None:
        """Search the messages before `end` that were not searched yet, at most this many."""
        start = len(self._names)
        for unread in range(start, end if max_messages is None else min(end, start + max_messages)):
            self._names.append(self.within(self.source[unread]))

    def within(self, message: Message) -> frozenset[str]:
        """The names in any message."""
        runs = set(_RUN.findall(full_text(message))) - self._words
        for run in runs - self._names_of_run.keys():
            if names := _names_of_run(run):
                self._names_of_run[run] = names
            else:
                self._words.add(run)
        return frozenset(chain.from_iterable(map(self._names_of_run.__getitem__, runs - self._words)))


class NameRanking:
    """The names in the messages of one view so far, and how useful each is.

    The rank of a name is the logarithm of its expected use per token: names that the user or the model wrote, that occur
    often or that are recent come first, short ones before long ones.
    """

    def __init__(self, message_names: MessageNames) -> None:
        self.message_names = message_names
        self._end = 0
        self._last_index: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        """Number of messages of the user or the model that have the name."""
        self._form_values: dict[str, float] = {}
        """The part of the rank that depends on the text of the name alone."""
        self._tokens: dict[str, int] = {}

    def _extend(self, end: int) -> None:
        for index in range(self._end, end):
            names = self.message_names.of(index)
            self._last_index.update(dict.fromkeys(names, index))
            self._counts.update(names)
            if not is_result(self.message_names.source[index]):
                self._written.update(names)
        self._end = max(self._end, end)

    def list_message(self, shown: set[str], end: int, max_tokens: int, counter: TokenCounter) -> Message | None:
        """The message with the best names of the messages before `end` that are not `shown`; None if it is too short."""
        if max_tokens < _MIN_TOKENS:
            return None
        self._extend(end)
        listed: list[str] = []
        tokens_left, compound_names = max_tokens - counter.message(_list_of(())), ""
        for name in self._ranked(self._last_index.keys() - shown, end):
            if tokens_left < 2:
                break
            tokens = self._tokens.get(name) or self._tokens.setdefault(name, counter.count(f" {name}"))
            if tokens <= tokens_left and name not in compound_names:
                listed.append(name)
                tokens_left -= tokens
                compound_names += f"{name} " if "/" in name or "." in name else ""
        while listed and counter.message(_list_of(listed)) > max_tokens:  # tokens of a text are not quite additive
            del listed[-max(1, len(listed) // 50) :]
        return _list_of(listed) if listed else None

    def _ranked(self, names: set[str], end: int) -> list[str]:
        ages = [log1p((end - index) / _AGE_UNIT) for index in range(end)]
        last_index, counts, written, values = self._last_index, self._counts, self._written, self._form_values
        for name in names:
            if name not in values:
                values[name] = _form_value(name)

        def rank(name: str) -> tuple[float, str]:
            value = values[name] + _LOGARITHMS[min(counts[name], 256)] - ages[last_index[name]]
            if times_written := written.get(name):
                value += 2 + _LOGARITHMS[min(times_written + 1, 256)]
            return -value, name

        return sorted(names, key=rank)


def frequent_names(text: str, max_length: int) -> str:
    """The most frequent names in a text, in at most this many characters."""
    names = (name for name, _ in Counter(NAME.findall(text)).most_common() if len(name) <= _MAX_NAME)
    return shorten(" ".join(islice(names, max_length // 5)), max_length, placeholder="")


def _form_value(name: str) -> float:
    is_specific = NAME.fullmatch(name) is not None
    return ("/" in name) - log(len(name) / 3 + 1.5) - (0.0 if is_specific else 1.5)


def _names_of_run(run: str) -> tuple[str, ...]:
    if run.isalpha() and (run.islower() or run[1:].islower()):  # a word
        return ()
    names = {run} if NAME.fullmatch(run) else {*NAME.findall(run), *_LESS_SPECIFIC_NAME.findall(run)}
    names |= {name.rpartition("/")[2] for name in names if "/" in name}
    return tuple(name for name in names if 2 < len(name) <= _MAX_NAME)


def _list_of(names: Sequence[str]) -> Message:
    return {"role": "user", "content": LIST_TEXT.format(" ".join(names))}
