"""A ledger of the facts in a stretch of conversation, made without a model.

A summary is prose, and prose drops what the next step needs to the letter: a path, an order number, the command that
worked. The ledger keeps those beside it, found by their form, within a bound: what was named often, lately and by those
who talk, and costs little, comes first. What the view still says elsewhere needs no place in it.
It is made from the text alone, so it is the same every time, and an earlier ledger in that text is carried on by it.
What is folded of a record only grows, so what was counted for one ledger is not counted again for the next.
"""

import heapq
import json
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, pairwise
from math import log2
from typing import Any, Final, NamedTuple, TypeAlias

from minutebook.compaction.strategy import outside
from minutebook.record.message import Message, is_result, is_user, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter, counter_for

FactKey: TypeAlias = tuple[str, str]
"""The kind of a fact, and its text."""

REQUEST: Final = 100
"""Characters of a user's request that are kept."""
_SURE: Final = 2
"""So many facts of each kind come before all others."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What is worth more, beside what is named often and costs little. All kinds of facts are weighed alike."""

    own_words: int = 4
    """What is named in a request, an answer or a call counts as so many uses: it comes again far more often than what
    only stands in a result."""
    half_life: float = 300
    """Messages after which a fact is half as likely to come again."""


WEIGHTS: Final = Weights()


class Tally:
    """The facts of some messages, as they are counted."""

    def __init__(self, counter: TokenCounter, weights: Weights = WEIGHTS) -> None:
        self.weights = weights
        self.counter = counter
        self.count: Callable[[str], int] = cache(counter.count)
        """The tokens of a short text, which is asked for again and again."""
        self.uses: dict[FactKey, int] = {}
        self.last: dict[FactKey, int] = {}
        """The message in which a fact was named last."""
        self._new: set[FactKey] = set()
        self._worths: dict[FactKey, float] = {}
        """What the facts are worth, negative, so that the best is the first."""
        self._ranked: dict[str, list[tuple[float, str]]] = {}
        """Of each kind what its facts are worth and their texts, in order."""

    def add(self, place: int, message: Message, facts_in: Iterable[FactKey]) -> None:
        """Count what a message names. One that stands before others may come after them."""
        weight = 1 if is_result(message) else self.weights.own_words
        for key in facts_in:
            self.uses[key] = self.uses.get(key, 0) + weight
            self.last[key] = max(place, self.last.get(key, place))
            self._new.add(key)

    def best(self, known: Container[FactKey], said: str = "") -> Iterator[FactKey]:
        """The facts that are neither known nor said, those first that are most likely needed again for what they cost.

        Of every kind the best come before all. A path of which a longer form came already is left out: who reads the
        one has the other.
        """
        self._rank()
        first = sorted(entry for kind in self._ranked for entry in islice(self._unknown(kind, known, said), _SURE))
        rest = heapq.merge(*(islice(self._unknown(kind, known, said), _SURE, None) for kind in self._ranked))
        told: set[FactKey] = set()
        for _, text, kind in chain(first, rest):  # many paths must not leave a request or the one order number no room
            if (kind, text) not in told:
                told.update(forms(kind, text))
                yield kind, text

    def _unknown(self, kind: str, known: Container[FactKey], said: str) -> Iterator[tuple[float, str, str]]:
        for worth, text in self._ranked[kind]:
            if (kind, text) not in known and text not in said:
                yield worth, text, kind

    def _rank(self) -> None:
        """Put what was counted since the last time in its place."""
        for key in self._new:
            kind, text = key
            ranked = self._ranked.setdefault(kind, [])
            if (before := self._worths.get(key)) is not None:
                del ranked[bisect_left(ranked, (before, text))]
            self._worths[key] = -self._worth(key)
            insort(ranked, (self._worths[key], text))
        self._new.clear()

    def _worth(self, key: FactKey) -> float:
        """How likely a fact is needed again, for each token that it costs in the ledger; as a logarithm.

        As such it need not be reckoned anew when time goes by: that takes as much from all of them.
        """
        kind, text = key
        folder, name = split(kind, text)
        # Its folder is shared with others, about. A short request is not a better one.
        cost = REQUEST / 5 if kind == "requests" else self.count(name) + 1 + self.count(folder) / 2
        return log2(self.uses[key] / cost) + self.last[key] / self.weights.half_life


def forms(kind: str, text: str) -> Iterator[FactKey]:
    """A fact, and what else is named by it: `src/app/main.py` names `app/main.py` and `main.py` too."""
    yield kind, text
    while kind == "paths" and "/" in text:
        text = text.partition("/")[2]
        yield kind, text


def split(kind: str, text: str) -> FactKey:
    """The folder of a path and the name in it; no folder for what is no path, or cannot be written with others."""
    if kind != "paths":
        return "", text
    folder, slash, name = text.rpartition("/")
    return (f"{folder}/", name) if slash and name and _MARKS.isdisjoint(text) else ("", text)


_MARKS: Final = frozenset("{},")
HEAD: Final = "Facts named in it, word for word:"

_ENDINGS: Final = (
    "py|pyi|ts|tsx|js|jsx|mjs|json|jsonl|md|rst|txt|yaml|yml|toml|cfg|ini|lock|go|rs|java|kt|rb|php|c|h|cc|cpp|hpp|cs|"
    "swift|sh|sql|html|css|scss|vue|xml|csv|log|ipynb|proto|tf|gradle|mod|sum|env|diff|patch"
)
_UNITS: Final = (
    "%|ms|s|sec|secs|seconds?|min|mins|minutes?|h|hours?|days?|weeks?|months?|years?|[kKMGT]i?B|bytes?|tokens?|lines?|"
    "tests?|files?|px|km|m|kg|g|EUR|USD|GBP|euros?|dollars?|Hz|MHz|GHz|rows?|items?|points?|miles?"
)
KINDS: Final[tuple[tuple[str, "re.Pattern[str]"], ...]] = (
    ("URLs", re.compile(r"https?://[^\s\"'<>)\]}`]+[^\s\"'<>)\]}`.,;:!?]")),
    (
        "paths",
        re.compile(
            r"(?<![\w./-])(?:~|@[\w-]+)/(?:[\w.@+-]+/)*[\w.@+-]*\w"
            r"|(?<![\w./@-])/?(?:\w[\w.@+-]*/|\.\w[\w.-]*/){2,}[\w.@+-]*\w"
            rf"|(?<![\w./@-])\.?\w[\w.@+-]*/[\w.@+-]*\.(?:{_ENDINGS})(?![\w/])"
            rf"|(?<![\w./-])[\w-][\w.-]*\.(?:{_ENDINGS})(?![\w/])"
            r"|(?<![\w./-])/[\w.@+-]+(?:/[\w.@+-]*\w)*"
        ),
    ),
    (
        "ids",
        re.compile(
            r"(?<![\w-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w-])"
            r"|(?<![\w])#?[A-Z]{1,6}-?\d{3,}(?!\w)|(?<!\w)#\w*\d\w*|(?<!\w)(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,40}(?!\w)"
            r"|(?<![\w.])\d{6,}(?![\w.])|(?<!\w)[a-z]+_[a-z]+_\d{2,}(?!\w)|(?<!\w)(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{6}(?!\w)"
        ),
    ),
    (
        "numbers",
        re.compile(rf"[$€£]\s?\d[\d,.]*\d?|(?<![\w.])\d[\d,.]*\s?(?:{_UNITS})(?!\w)|(?<!\w)v?\d+\.\d+(?:\.\d+)+(?!\w)"),
    ),
    ("errors", re.compile(r"^.{0,40}?\b\w*(?:Error|Exception|FAILED|Traceback|fatal|panic)\b.{0,160}$", re.MULTILINE)),
)
"""What a fact of each kind looks like."""

_OF_WORDS: Final = frozenset({"URLs", "paths", "ids"})
"""Kinds without a blank in them: a word that comes a hundred times need be looked at once."""
_BRACES: Final = re.compile(r"(?<![^\s{}])([^\s{}]*/)\{([^{}\s]+)\}")
_COMMAND_KEYS: Final = frozenset({"command", "cmd", "script", "bash"})
_PATH_KEYS: Final = frozenset({"path", "file", "file_path", "filename", "filepath", "files", "paths"})
_LINE: Final = 120
_ORDER: Final = ("requests", "commands", "ids", "numbers", "paths", "URLs", "errors")
"""How the lines of a ledger follow each other."""
_ROUNDS: Final = 3
"""Facts cost less together than one by one, so there is room for more than a first reckoning says."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something named in a conversation."""

    kind: str
    text: str
    uses: int
    last: int
    """The message in which it was named last."""


FactKeys: TypeAlias = tuple[FactKey, ...]
"""What one message names."""


def facts_in(message: Message) -> FactKeys:
    """What a message names, found by its form."""
    return tuple(_named(message))


class Reading:
    """`facts_in`, for whoever asks again and again: a message that was read is remembered, and not read a second time."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Message, FactKeys]] = {}

    def __call__(self, message: Message) -> FactKeys:
        known = self._read.get(id(message))
        if known is None:  # the message is kept too, so that no other ever has its id
            known = self._read[id(message)] = (message, facts_in(message))
        return known[1]


def facts(messages: Sequence[Message]) -> list[Fact]:
    """The facts in these messages, most used first, and newest first among those used as often."""
    tally = _counted(messages, counter_for(None))
    found = [Fact(kind, text, uses, tally.last[kind, text]) for (kind, text), uses in tally.uses.items()]
    return sorted(found, key=lambda fact: (-fact.uses, -fact.last, fact.text))


def ledger(
    messages: Sequence[Message],
    *,
    counter: TokenCounter,
    max_tokens: int,
    said: str = "",
    kept: Iterable[Message] = (),
) -> str:
    """The facts of these messages as a few lines, as many as fit.

    What `said` says, or a message in `kept` names, is left out: whoever reads the ledger reads those too. Files of one
    folder share its name, as in a shell: `src/app/{main.py,view.py}`. An empty text if there are no facts.
    """
    known = {form for message in kept for key in facts_in(message) for form in forms(*key)}
    return written(_counted(messages, counter), max_tokens=max_tokens, said=said, known=known)


def _counted(messages: Sequence[Message], counter: TokenCounter) -> Tally:
    tally = Tally(counter)
    for place, message in enumerate(messages):
        tally.add(place, message, facts_in(message))
    return tally


def written(tally: Tally, *, max_tokens: int, said: str, known: Container[FactKey]) -> str:
    """The facts that were counted as a few lines, as many as fit, without those that are said or known elsewhere."""
    best = islice(tally.best(known, said), max_tokens)  # one costs two tokens at the least, so no more would fit
    left = [_priced(kind, text, tally.count) for kind, text in best]
    chosen: list[_Line] = []
    lines = ""
    for _ in range(_ROUNDS):
        left = _chosen(left, chosen, max_tokens - tally.counter.count(lines or HEAD))
        lines = _rendered(chosen)
    while chosen and tally.counter.count(lines) > max_tokens:  # some cost more beside each other than alone
        chosen.pop()
        lines = _rendered(chosen)
    return lines


class _Line(NamedTuple):
    """A fact as a ledger writes it, and the tokens that takes at most."""

    kind: str
    folder: str
    name: str
    kind_cost: int
    folder_cost: int
    name_cost: int


def _priced(kind: str, text: str, count: Callable[[str], int]) -> _Line:
    folder, name = split(kind, text)
    return _Line(kind, folder, name, count(kind) + 3, count(folder) + 1, count(name) + 1)


def _chosen(found: Sequence[_Line], chosen: list[_Line], room: int) -> list[_Line]:
    """Put as many facts with the chosen ones as there is room for, by what they cost at most; the others are returned."""
    kinds = {line.kind for line in chosen}
    groups = {line[:2] for line in chosen}
    left: list[_Line] = []
    for line in found:
        cost = line.name_cost
        if cost <= room:
            cost += 0 if line.kind in kinds else line.kind_cost
            cost += 0 if line[:2] in groups else line.folder_cost
        if cost > room:
            left.append(line)
            continue
        room -= cost
        kinds.add(line.kind)
        groups.add(line[:2])
        chosen.append(line)
    return left


def _rendered(chosen: Iterable[_Line]) -> str:
    kinds: dict[str, dict[str, list[str]]] = {}
    for line in chosen:
        kinds.setdefault(line.kind, {}).setdefault(line.folder, []).append(line.name)
    order = sorted(kinds, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind))
    lines = [f"- {kind}: {_between(kind).join(_written(kind, kinds[kind]))}" for kind in order]
    return "\n".join([HEAD, *lines]) if lines else ""


def spelled_out(text: str) -> str:
    """The text with every `folder/{a,b}` as `folder/a folder/b`."""
    return _BRACES.sub(lambda found: " ".join(found[1] + name for name in found[2].split(",")), text)


def _written(kind: str, groups: Mapping[str, list[str]]) -> Iterator[str]:
    for folder, names in groups.items():
        if not folder or kind != "paths":
            yield from names
        else:
            yield folder + (names[0] if len(names) == 1 else f"{{{','.join(names)}}}")


def without_ledger(text: str) -> str:
    """A summary without the ledger that stands after it."""
    return text.partition(HEAD)[0].rstrip()


def files_of(message: Message) -> list[str]:
    """The files that an assistant message's calls name in their arguments, as tools for files do."""
    return [path for _, arguments in _arguments(message) for path in _paths(arguments)]


def _named(message: Message) -> Iterator[tuple[str, str]]:
    text = text_of(message)
    if HEAD in text:
        text, _, earlier = text.partition(HEAD)
        yield from _read(earlier)
    if is_user(message) and (request := " ".join(text.split())[:REQUEST]):
        yield "requests", request
    for name, arguments in _arguments(message):
        for key, value in arguments.items():
            if key in _COMMAND_KEYS and isinstance(value, str) and value.strip():
                yield "commands", value.strip().splitlines()[0][:_LINE]
        yield from (("paths", path) for path in _paths(arguments))
        text += f"\n{name} {json.dumps(arguments, ensure_ascii=False)}"
    words = "\n".join(dict.fromkeys(text.split()))
    for kind, pattern in KINDS:
        seen = {found[0].strip() for found in pattern.finditer(words if kind in _OF_WORDS else text)}
        yield from ((kind, fact[:_LINE]) for fact in seen if len(fact) > 1)


def _read(earlier: str) -> Iterator[tuple[str, str]]:
    """The facts of a ledger that was written before."""
    for line in earlier.splitlines():
        kind, colon, rest = line.removeprefix("- ").partition(": ")
        if colon and line.startswith("- "):
            yield from ((kind, text) for text in spelled_out(rest).split(_between(kind)) if text)


def _between(kind: str) -> str:
    return " " if kind in {"paths", "ids", "URLs"} else " | "  # the others have spaces in them


def _arguments(message: Message) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        try:
            read = json.loads(function.get("arguments") or "{}")
        except (TypeError, ValueError, RecursionError):
            continue
        if isinstance(read, Mapping):
            yield str(function.get("name") or ""), read


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key in _PATH_KEYS:
            yield from (
                path for path in (value if isinstance(value, list) else [value]) if isinstance(path, str) and path
            )


class Notes:
    """The facts of what is folded of one record.

    A ledger is made from all that is folded and not from the last ledger: how often a fact was named is not in that.
    """

    def __init__(self, record: Transcript, weights: Weights) -> None:
        self._record = record
        self._weights = weights
        self._read = Reading()
        self._begin()

    @classmethod
    def of(cls, record: Transcript, weights: Weights = WEIGHTS) -> "Notes":
        """The notes of a record: those it has already, or new ones."""
        return record.remember(("facts",), lambda: cls(record, weights))

    def _begin(self) -> None:
        self._tally = Tally(self._record.counter, self._weights)
        self._counted: list[range] = []

    def ledger(self, stretches: Sequence[range], *, carried: Message | None, max_tokens: int, said: str) -> str:
        """The ledger of these stretches, given the summary that stood for some of them before."""
        self._count(stretches, carried)
        ends = [0, *chain.from_iterable((run.start, run.stop) for run in stretches), len(self._record)]
        kept = (self._record[place] for start, stop in list(pairwise(ends))[::2] for place in range(start, stop))
        known = {form for message in kept for key in self._read(message) for form in forms(*key)}
        return written(self._tally, max_tokens=max_tokens, said=said, known=known)

    def _count(self, stretches: Sequence[range], carried: Message | None) -> None:
        """Count what is new in these stretches."""
        new = [place for run in stretches for place in outside(run, self._counted)]
        if len(new) + sum(map(len, self._counted)) > sum(map(len, stretches)):
            # A fold was undone, or somebody else folds the same record.
            self._begin()
            new = [place for run in stretches for place in run]
        for place in new:
            message = self._record[place]
            self._tally.add(place, message, self._read(message))
        if carried is not None:
            # Of a record that is whole it names nothing new; of one that is not, what is gone.
            self._tally.add(0, carried, [key for key in self._read(carried) if key not in self._tally.uses])
        self._counted = list(stretches)
