"""A list of the names in messages that a view leaves out.

Later answers mostly refer to earlier messages by name: a path, an identifier, an order number. A short list of them keeps
these references possible after a cut, at a few percent of the budget.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import log, log1p
from textwrap import shorten
from typing import Any, Final

from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

_NAME_WITHOUT_SLASH: Final = re.compile(
    r"\b[\w-]+\.(?:py|ts|js|go|rs|json|md|yaml|yml|toml|sql|sh|txt)\b|\b[A-Z0-9]{6,}\b|\b[0-9a-f]{8,}\b|\b\d{4,}\b"
    r"|[\w.+-]+@[\w-]+\.\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b"
)
"""File names, ids, hashes, numbers, mail addresses and identifiers. Without slashes it is searched faster than `NAME`."""
NAME: Final = re.compile(rf"(?:[\w.-]+/)+[\w.-]+|{_NAME_WITHOUT_SLASH.pattern}")
"""Paths, and names without a slash."""
_LESS_SPECIFIC_NAME: Final = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b[A-Z][a-z]+[A-Z]\w*|\d{4}-\d\d-\d\d"
    r"|\b_*[a-zA-Z]+(?:_+[a-zA-Z0-9]+)+|[a-zA-Z]+(?:-[a-zA-Z0-9]+)+"
)
"""Dotted names, class names, dates, constants and hyphenated words. They are listed too, after those of `NAME`."""
_RUN: Final = re.compile(r"[\w.+@/-]{3,}")
"""A run of characters that can be part of a name. Every name is within one run."""
_NAMELESS: Final = re.compile(r"[^\w]*(?:[^\W\d_][^\W\d_A-Z]*|\d{1,3})?[^\w]*")
"""A word without a name: letters or a short number, with punctuation."""
LIST_TEXT: Final = "[Names from earlier messages that are left out: {}]"
_MAX_NAME: Final = 120
"""Longer matches, such as encoded data, are not names."""
_MAX_RUN: Final = 2 * _MAX_NAME
"""Longer runs are not searched: they are encoded data, and the time of a search grows with the square of the length."""
_AGE_UNIT: Final = 20
"""Number of messages that count as one step of age in the rank of a name."""
_MAX_SEARCHED: Final = 50_000
"""Maximum characters of a message that are searched for names: half of them at its start, half at its end."""
_RANKED_PER_TOKEN: Final = 1
"""Number of names that are kept for the next list, per token of the list. Without a limit, a list would take time in
proportion to the record. With 2, a list has 0.03 percentage points more of the names that are used later."""
_BATCH: Final = 40
"""Number of names of a list whose tokens are counted at once."""
_MIN_TOKENS: Final = 40
"""With fewer tokens, no list is made."""


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
        self._names: list[tuple[str, ...]] = []
        """The names of each message, in the order of the text."""
        self._names_of_run: dict[str, tuple[str, ...]] = {}
        """Run → its names. Most runs repeat: they are looked up, not searched again."""
        self._nameless: set[str] = set()
        """Runs without a name."""

    def of(self, index: int) -> tuple[str, ...]:
        """The names in the message at this index."""
        self.read(index + 1)
        return self._names[index]

    def read(self, end: int, max_length: int | None = None) -> None:
        """Search the messages before `end` that were not searched yet, until this many characters were searched."""
        length = 0
        for unread in range(len(self._names), end):
            if max_length is not None and length > max_length:
                break
            text = full_text(self.source[unread])
            length += len(text)
            self._names.append(self._within(text))

    def within(self, message: Message) -> tuple[str, ...]:
        """The names in any message."""
        return self._within(full_text(message))

    def _within(self, text: str) -> tuple[str, ...]:
        names_of_run, nameless = self._names_of_run, self._nameless
        found: list[tuple[str, ...]] = []
        for run in dict.fromkeys(_RUN.findall(_searched_part(text))):
            if run in nameless:
                continue
            names = names_of_run.get(run)
            if names is None:
                names = _names_of_run(run)
                if not names:
                    nameless.add(run)
                    continue
                names_of_run[run] = names
            found.append(names)
        return tuple(dict.fromkeys(chain.from_iterable(found)))


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
        self._values: dict[str, float] = {}
        """The part of the rank that does not depend on the age, in the order of the previous list."""

    def __copy__(self) -> "NameRanking":
        ranking = NameRanking(self.message_names)
        ranking._end = self._end
        for name in ("_last_index", "_counts", "_written", "_form_values", "_values"):
            setattr(ranking, name, getattr(self, name).copy())
        return ranking

    def _extend(self, end: int) -> None:
        changed: dict[str, None] = {}  # in the order of the text, which decides between names of the same rank
        for index in range(self._end, end):
            names = self.message_names.of(index)
            changed |= dict.fromkeys(names)
            self._last_index.update(dict.fromkeys(names, index))
            self._counts.update(names)
            if not is_result(self.message_names.source[index]):
                self._written.update(names)
        self._end = max(self._end, end)
        form_values, written = self._form_values, self._written
        for name in changed:
            if name not in form_values:
                form_values[name] = _form_value(name)
            value = form_values[name] + log(self._counts[name])
            self._values[name] = value + 2 + log(written[name] + 1) if name in written else value

    def list_message(self, shown: set[str], end: int, max_tokens: int, counter: TokenCounter) -> Message | None:
        """The message with the best names of the messages before `end` that are not `shown`.

        None if no name is left, or if `max_tokens` is too low for a useful list.

        The names that are ranked last are forgotten.
        """
        if max_tokens < _MIN_TOKENS:
            return None
        self._extend(end)
        ranked = self._names_by_rank(end)
        self._keep(ranked, _RANKED_PER_TOKEN * max_tokens)
        listed: list[str] = []
        tokens_left = max_tokens - counter.message(_list_of(()))
        names = _without_parts(name for name in ranked if name not in shown)
        while tokens_left > 0 and (batch := list(islice(names, _BATCH))):
            tokens = counter.count(f" {' '.join(batch)}")
            listed += batch[: len(batch) * tokens_left // tokens]
            tokens_left -= tokens
        while listed and counter.message(_list_of(listed)) > max_tokens:  # tokens of a text are not quite additive
            del listed[-max(1, len(listed) // 50) :]
        return _list_of(listed) if listed else None

    def _names_by_rank(self, end: int) -> list[str]:
        """The names, the one with the best rank first."""
        last_index = self._last_index
        ages = {index: log1p((end - index) / _AGE_UNIT) for index in set(last_index.values())}
        ranks = {name: ages[last_index[name]] - value for name, value in self._values.items()}
        return sorted(ranks, key=ranks.__getitem__)

    def _keep(self, ranked: Sequence[str], count: int) -> None:
        """Forget all but the first names of this order."""
        for name in ranked[count:]:
            for values in (self._last_index, self._counts, self._written, self._form_values):
                values.pop(name, None)
        self._values = {name: self._values[name] for name in ranked[:count]}


def _without_parts(names: Iterable[str]) -> Iterator[str]:
    """The names that are not part of an earlier path or dotted name."""
    parts: set[str] = set()
    for name in names:
        if name not in parts:
            for separator in "/.":
                if separator in name:
                    pieces = name.split(separator)
                    parts.update(pieces, (separator.join(pieces[at:]) for at in range(1, len(pieces))))
            yield name


def frequent_names(text: str, max_length: int) -> str:
    """The most frequent names in a text, in at most this many characters."""
    runs = (run for run, _ in Counter(_RUN.findall(_searched_part(text))).most_common() if len(run) <= _MAX_RUN)
    names = (
        name for run in runs if not _NAMELESS.fullmatch(run) for name in NAME.findall(run) if len(name) <= _MAX_NAME
    )
    return shorten(" ".join(dict.fromkeys(islice(names, max_length // 5))), max_length, placeholder="")


def _searched_part(text: str) -> str:
    if len(text) <= _MAX_SEARCHED:
        return text
    return f"{text[: _MAX_SEARCHED // 2]}\n{text[-_MAX_SEARCHED // 2 :]}"


def _form_value(name: str) -> float:
    is_specific = NAME.fullmatch(name) is not None
    return ("/" in name) - log(len(name) / 3 + 1.5) - (0.0 if is_specific else 1.5)


def _names_of_run(found: str) -> tuple[str, ...]:
    if len(found) > _MAX_RUN or (found.isalpha() and found[1:].islower()):  # most runs are plain words
        return ()
    run = found.rstrip(".-+/@").lstrip("/+@-")
    pattern = NAME if "/" in run else _NAME_WITHOUT_SLASH
    if pattern.fullmatch(run):
        names = [run]
    elif run.isidentifier():  # searching it for parts would find nothing else
        names = [run] if _LESS_SPECIFIC_NAME.fullmatch(run) else []
    else:
        names = [] if _NAMELESS.fullmatch(run) else [*pattern.findall(run), *_LESS_SPECIFIC_NAME.findall(run)]
    names += [name.rpartition("/")[2] for name in names if "/" in name]
    return tuple(name for name in dict.fromkeys(names) if 2 < len(name) <= _MAX_NAME)


def _list_of(names: Sequence[str]) -> Message:
    return {"role": "user", "content": LIST_TEXT.format(" ".join(names))}
