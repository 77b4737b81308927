"""The ledger of the facts in a range of a conversation, made without a model.

A summary is prose, and prose loses details that later steps need exactly: a path, an order number, the command that
worked. The ledger is a list of such facts that follows the summary. Facts are found by patterns (paths, ids, URLs,
numbers, errors) and in the arguments of tool calls. A fact ranks higher the more often and the more recently it was used,
and the fewer tokens it has. A use outside of tool results counts more. The best facts are listed up to a maximum number of
tokens, without those that the view shows anyway.

The same messages always give the same ledger. If a message contains an earlier ledger, its facts are included. Folded
ranges usually only grow, so each message is counted once for all ledgers of a record.
"""

import heapq
import json
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from math import log2
from typing import Any, Final, NamedTuple, TypeAlias

from minutebook.compaction.strategy import indexes_outside
from minutebook.compaction.summarizer import is_summary, summary_text
from minutebook.record.message import Message, is_result, is_user, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter, counter_for

FactKey: TypeAlias = tuple[str, str]
"""The kind of a fact, and its text."""
FactKeys: TypeAlias = tuple[FactKey, ...]

HEADING: Final = "Facts named in it, word for word:"

_MAX_REQUEST_CHARACTERS: Final = 100
_MAX_FACT_CHARACTERS: Final = 120
_GUARANTEED_PER_KIND: Final = 2
"""Number of facts of each kind that are listed first, so that many paths do not displace the only order number."""
_PACKING_ROUNDS: Final = 3
"""How often facts are added. Together they have fewer tokens than the sum of their maxima, so tokens are left."""
_KIND_ORDER: Final = ("requests", "commands", "ids", "numbers", "paths", "URLs", "errors")
"""Order of the kinds in a ledger. Requests are the beginnings of user messages."""
_KINDS_WITHOUT_SPACES: Final = frozenset({"URLs", "paths", "ids"})
"""Kinds whose facts have no spaces. They are searched in the distinct words of a message, which is faster."""
_COMMAND_KEYS: Final = frozenset({"command", "cmd", "script", "bash"})
_PATH_KEYS: Final = frozenset({"path", "file", "file_path", "filename", "filepath", "files", "paths"})
_BRACE_CHARACTERS: Final = frozenset("{},")
_BRACES: Final = re.compile(r"(?<![^\s{}])([^\s{}]*/)\{([^{}\s]+)\}")

_FILE_ENDINGS: Final = (
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
            rf"|(?<![\w./@-])\.?\w[\w.@+-]*/[\w.@+-]*\.(?:{_FILE_ENDINGS})(?![\w/])"
            rf"|(?<![\w./-])[\w-][\w.-]*\.(?:{_FILE_ENDINGS})(?![\w/])"
            r"|(?<![\w./<-])/[\w.@+-]+(?:/[\w.@+-]*\w)*"
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
"""The pattern of each kind of fact."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A detail in a conversation that must be kept exactly."""

    kind: str
    text: str
    uses: int
    """Number of uses. A use in a user message, an answer or a call counts several times."""
    last: int
    """Index of the last message that uses the fact."""


@dataclass(frozen=True, slots=True)
class FactWeights:
    """Weights of the ranking. They are the same for all kinds of facts."""

    outside_results: int = 4
    """Number of uses that a use in a user message, an answer or a call counts as. Such facts are used again far more
    often than those that occur only in tool results."""
    half_life: float = 300
    """Number of messages after which a fact is half as likely to be used again."""


DEFAULT_WEIGHTS: Final = FactWeights()


def facts(messages: Sequence[Message]) -> list[Fact]:
    """The facts in these messages, most used first; of equally used facts, the newest first."""
    tally = _tally_of(messages, counter_for(None))
    result = [Fact(kind, text, uses, tally.last[kind, text]) for (kind, text), uses in tally.uses.items()]
    return sorted(result, key=lambda fact: (-fact.uses, -fact.last, fact.text))


def ledger(
    messages: Sequence[Message],
    *,
    counter: TokenCounter,
    max_tokens: int,
    summary: str = "",
    visible: Iterable[Message] = (),
) -> str:
    """A list of the best facts in these messages, within `max_tokens`; empty if there are no facts.

    Facts that are in the `summary` or in a `visible` message are left out, because the model reads these too. Files of
    one folder are written together, as in a shell: `src/app/{main.py,view.py}`.
    """
    excluded = {form for message in visible for key in facts_in(message) for form in forms(*key)}
    return render_ledger(_tally_of(messages, counter), max_tokens=max_tokens, summary=summary, excluded=excluded)


def _tally_of(messages: Sequence[Message], counter: TokenCounter) -> "FactTally":
    tally = FactTally(counter)
    for index, message in enumerate(messages):
        tally.add(index, message, facts_in(message))
    return tally


def without_ledger(text: str) -> str:
    """A summary without the ledger that follows it."""
    return text.partition(HEADING)[0].rstrip()


def files_of(message: Message) -> list[str]:
    """The files in the arguments of an assistant message's calls, under the keys that file tools use."""
    return [path for _, arguments in _call_arguments(message) for path in _paths(arguments)]


def facts_in(message: Message) -> FactKeys:
    """The facts that a message uses."""
    return tuple(_find_facts(message))


def _find_facts(message: Message) -> Iterator[FactKey]:
    text = summary_text(message) if is_summary(message) else text_of(message)
    if HEADING in text:
        text, _, ledger_text = text.partition(HEADING)
        yield from _facts_of_ledger(ledger_text)
    if is_user(message) and (request := " ".join(text.split())[:_MAX_REQUEST_CHARACTERS]):
        yield "requests", request
    for name, arguments in _call_arguments(message):
        for key, value in arguments.items():
            if key in _COMMAND_KEYS and isinstance(value, str) and value.strip():
                yield "commands", value.strip().splitlines()[0][:_MAX_FACT_CHARACTERS]
        yield from (("paths", path) for path in _paths(arguments))
        text += f"\n{name} {json.dumps(arguments, ensure_ascii=False)}"
    words = "\n".join(dict.fromkeys(text.split()))
    for kind, pattern in KINDS:
        searched = words if kind in _KINDS_WITHOUT_SPACES else text
        matches = {match[0].strip() for match in pattern.finditer(searched)}
        yield from ((kind, fact[:_MAX_FACT_CHARACTERS]) for fact in matches if len(fact) > 1)


def _facts_of_ledger(text: str) -> Iterator[FactKey]:
    """The facts in the lines of a ledger, the inverse of `_render`."""
    for line in text.splitlines():
        kind, colon, listed = line.removeprefix("- ").partition(": ")
        if colon and line.startswith("- "):
            yield from ((kind, fact) for fact in with_braces_expanded(listed).split(_separator(kind)) if fact)


def _call_arguments(message: Message) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except (TypeError, ValueError, RecursionError):
            continue
        if isinstance(arguments, Mapping):
            yield str(function.get("name") or ""), arguments


def _paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key in _PATH_KEYS:
            paths = value if isinstance(value, list) else [value]
            yield from (path for path in paths if isinstance(path, str) and path)


def forms(kind: str, text: str) -> Iterator[FactKey]:
    """The fact and its shorter forms: for `src/app/main.py` also `app/main.py` and `main.py`."""
    yield kind, text
    while kind == "paths" and "/" in text:
        text = text.partition("/")[2]
        yield kind, text


def folder_and_name(kind: str, text: str) -> tuple[str, str]:
    """The folder of a path and the name in it. For other facts and for paths with braces or commas the folder is empty."""
    if kind != "paths":
        return "", text
    folder, slash, name = text.rpartition("/")
    return (f"{folder}/", name) if slash and name and _BRACE_CHARACTERS.isdisjoint(text) else ("", text)


class FactReader:
    """A cached `facts_in`: each message object is read once."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[Message, FactKeys]] = {}

    def __call__(self, message: Message) -> FactKeys:
        cached = self._cache.get(id(message))
        if cached is None:  # the message is stored too, so that its id is not used for another object
            cached = self._cache[id(message)] = (message, facts_in(message))
        return cached[1]


class FactTally:
    """Counts and ranks the facts of messages."""

    def __init__(self, counter: TokenCounter, weights: FactWeights = DEFAULT_WEIGHTS) -> None:
        self.weights = weights
        self.counter = counter
        self.count_tokens: Callable[[str], int] = cache(counter.count)
        """A cached `counter.count`, for short texts."""
        self.uses: dict[FactKey, int] = {}
        """Number of uses of each fact, weighted as in `Fact.uses`."""
        self.last: dict[FactKey, int] = {}
        """Index of the last message that uses each fact."""
        self._first_request: tuple[int, FactKey] | None = None
        """The index and the beginning of the first user message, often the goal."""
        self._unranked: set[FactKey] = set()
        """Facts counted since the last ranking."""
        self._sort_keys: dict[FactKey, float] = {}
        """The negative score of each fact, so that the best comes first."""
        self._ranked: dict[str, list[tuple[float, str]]] = {}
        """Kind → the sort keys and texts of its facts, best first."""

    def add(self, index: int, message: Message, keys: Iterable[FactKey]) -> None:
        """Count the facts of a message. Messages may be added in any order."""
        weight = 1 if is_result(message) else self.weights.outside_results
        for key in keys:
            self.uses[key] = self.uses.get(key, 0) + weight
            self.last[key] = max(index, self.last.get(key, index))
            if key[0] == "requests" and (self._first_request is None or index < self._first_request[0]):
                self._first_request = index, key
            self._unranked.add(key)

    def best(self, excluded: Container[FactKey], summary: str = "") -> Iterator[FactKey]:
        """The facts that are neither excluded nor in the summary, best first.

        The first request comes first, then the best facts of each kind. A path is left out if a longer form of it was
        yielded before.
        """
        self._rank()
        first = () if self._first_request is None else (self._first_request[1],)
        goal = [(0.0, text, kind) for kind, text in first if (kind, text) not in excluded and text not in summary]
        guaranteed = sorted(
            fact
            for kind in self._ranked
            for fact in islice(self._eligible(kind, excluded, summary), _GUARANTEED_PER_KIND)
        )
        others = heapq.merge(
            *(islice(self._eligible(kind, excluded, summary), _GUARANTEED_PER_KIND, None) for kind in self._ranked)
        )
        seen: set[FactKey] = set()
        for _, text, kind in chain(goal, guaranteed, others):
            if (kind, text) not in seen:
                seen.update(forms(kind, text))
                yield kind, text

    def _eligible(self, kind: str, excluded: Container[FactKey], summary: str) -> Iterator[tuple[float, str, str]]:
        """The sort key, text and kind of each fact of a kind that is neither excluded nor in the summary, best first."""
        for sort_key, text in self._ranked[kind]:
            if (kind, text) not in excluded and text not in summary:
                yield sort_key, text, kind

    def _rank(self) -> None:
        """Insert the facts counted since the last call into the ranking."""
        for key in self._unranked:
            kind, text = key
            ranked = self._ranked.setdefault(kind, [])
            if (old_sort_key := self._sort_keys.get(key)) is not None:
                del ranked[bisect_left(ranked, (old_sort_key, text))]
            self._sort_keys[key] = -self._score(key)
            insort(ranked, (self._sort_keys[key], text))
        self._unranked.clear()

    def _score(self, key: FactKey) -> float:
        """Logarithm of the likelihood, per token, that the fact is used again.

        The age of a fact is not subtracted: a new message would lower all scores by the same amount, and the order would
        stay.
        """
        kind, text = key
        folder, name = folder_and_name(kind, text)
        if kind == "requests":
            cost: float = _MAX_REQUEST_CHARACTERS / 5  # the same for all: a short request is not worth more
        else:  # other files are likely to be in the same folder, so half of its tokens are counted
            cost = self.count_tokens(name) + 1 + self.count_tokens(folder) / 2
        return log2(self.uses[key] / cost) + self.last[key] / self.weights.half_life


def render_ledger(tally: FactTally, *, max_tokens: int, summary: str, excluded: Container[FactKey]) -> str:
    """The text of the ledger: the best facts within `max_tokens` that are neither excluded nor in the summary."""
    best_facts = islice(tally.best(excluded, summary), max_tokens)  # a fact has at least a token, so more would not fit
    candidates = [_priced_fact(kind, text, tally.count_tokens) for kind, text in best_facts]
    packed: list[_PricedFact] = []
    text = ""
    for _ in range(_PACKING_ROUNDS):
        candidates = _pack(candidates, packed, max_tokens - tally.counter.count(text or HEADING))
        text = _render(packed)
    while packed and tally.counter.count(text) > max_tokens:  # some facts have more tokens together than alone
        packed.pop()
        text = _render(packed)
    return text


class _PricedFact(NamedTuple):
    """A fact in the form of a ledger, with the maximum tokens of its parts."""

    kind: str
    folder: str
    name: str
    kind_tokens: int
    folder_tokens: int
    name_tokens: int

    @property
    def group(self) -> tuple[str, str]:
        """Facts of one kind and folder are written together."""
        return self.kind, self.folder


def _priced_fact(kind: str, text: str, count_tokens: Callable[[str], int]) -> _PricedFact:
    folder, name = folder_and_name(kind, text)
    return _PricedFact(kind, folder, name, count_tokens(kind) + 3, count_tokens(folder) + 1, count_tokens(name) + 1)


def _pack(candidates: Sequence[_PricedFact], packed: list[_PricedFact], tokens_left: int) -> list[_PricedFact]:
    """Append to `packed` the candidates that fit by their maximum tokens; return the others."""
    kinds = {fact.kind for fact in packed}
    groups = {fact.group for fact in packed}
    too_large: list[_PricedFact] = []
    for fact in candidates:
        tokens = fact.name_tokens
        if tokens <= tokens_left:
            tokens += 0 if fact.kind in kinds else fact.kind_tokens
            tokens += 0 if fact.group in groups else fact.folder_tokens
        if tokens > tokens_left:
            too_large.append(fact)
            continue
        tokens_left -= tokens
        kinds.add(fact.kind)
        groups.add(fact.group)
        packed.append(fact)
    return too_large


def _render(packed: Iterable[_PricedFact]) -> str:
    kinds: dict[str, dict[str, list[str]]] = {}
    for fact in packed:
        kinds.setdefault(fact.kind, {}).setdefault(fact.folder, []).append(fact.name)
    order = sorted(kinds, key=lambda kind: (_KIND_ORDER.index(kind) if kind in _KIND_ORDER else len(_KIND_ORDER), kind))
    lines = [f"- {kind}: {_separator(kind).join(_render_kind(kind, kinds[kind]))}" for kind in order]
    return "\n".join([HEADING, *lines]) if lines else ""


def _render_kind(kind: str, names_of_folder: Mapping[str, list[str]]) -> Iterator[str]:
    for folder, names in names_of_folder.items():
        if not folder or kind != "paths":
            yield from names
        else:
            yield folder + (names[0] if len(names) == 1 else f"{{{','.join(names)}}}")


def with_braces_expanded(text: str) -> str:
    """The text with every `folder/{a,b}` written as `folder/a folder/b`."""
    return _BRACES.sub(lambda match: " ".join(match[1] + name for name in match[2].split(",")), text)


def _separator(kind: str) -> str:
    return " " if kind in _KINDS_WITHOUT_SPACES else " | "


class LedgerCache:
    """Makes the ledgers of one record, and counts every message only once.

    Each ledger is made from all folded messages. The previous ledger is not enough: it does not say how often a fact was
    used.
    """

    def __init__(self, record: Transcript, weights: FactWeights) -> None:
        self._record = record
        self._weights = weights
        self._facts_in = FactReader()
        self._reset()

    @classmethod
    def of(cls, record: Transcript, weights: FactWeights = DEFAULT_WEIGHTS) -> "LedgerCache":
        """The cache of this record, for ledgers with these weights."""
        return record.cached_value(("facts", weights), lambda: cls(record, weights))

    def _reset(self) -> None:
        self._tally = FactTally(self._record.counter, self._weights)
        self._counted: list[range] = []
        """Ranges whose messages are in the tally."""

    def ledger(
        self, folded: Sequence[range], *, previous_summary: Message | None, max_tokens: int, summary: str
    ) -> str:
        """The ledger of the folded ranges. `previous_summary` is the message that replaced some of them before."""
        self._count_folded(folded, previous_summary)
        visible = (self._record[index] for index in indexes_outside(range(len(self._record)), folded))
        excluded = {form for message in visible for key in self._facts_in(message) for form in forms(*key)}
        return render_ledger(self._tally, max_tokens=max_tokens, summary=summary, excluded=excluded)

    def _count_folded(self, folded: Sequence[range], previous_summary: Message | None) -> None:
        """Count the folded messages that were not counted yet."""
        new_indexes = [index for indexes in folded for index in indexes_outside(indexes, self._counted)]
        if len(new_indexes) + sum(map(len, self._counted)) > sum(map(len, folded)):
            # A counted message is no longer folded: a fold was undone, or two managers fold the same record.
            self._reset()
            new_indexes = [index for indexes in folded for index in indexes]
        for index in new_indexes:
            message = self._record[index]
            self._tally.add(index, message, self._facts_in(message))
        if previous_summary is not None:
            # The summary has facts that the record lacks only if messages were purged from the record.
            purged_facts = [key for key in self._facts_in(previous_summary) if key not in self._tally.uses]
            self._tally.add(-1, previous_summary, purged_facts)
        self._counted = list(folded)
