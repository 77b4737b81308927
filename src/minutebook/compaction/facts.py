"""A ledger of the facts in a stretch of conversation, made without a model.

A summary is prose, and prose drops what the next step needs to the letter: a path, an order number, the command that
worked. The ledger keeps those beside it: found by their form, most used first, newest first among equals, within a bound.
It is made from the text alone, so it is the same every time, and an earlier ledger in that text is carried on by it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.record.message import Message, is_result, is_user, text_of
from minutebook.tokens import TokenCounter

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

_BRACES: Final = re.compile(r"([^\s{}]*/)\{([^{}\s]+)\}")
_COMMAND_KEYS: Final = frozenset({"command", "cmd", "script", "bash"})
_PATH_KEYS: Final = frozenset({"path", "file", "file_path", "filename", "filepath", "files", "paths"})
_REQUEST: Final = 100
"""Characters of a user's request that are kept."""
_LINE: Final = 120
_OWN_WORDS: Final = 4
"""What is named in a request, an answer or a call counts as so many uses: it comes again far more often than what only
stands in a result."""
_ROUNDS: Final = 3
"""Facts cost less together than one by one, so there is room for more than a first reckoning says."""
_CARRIED: Final = 1
"""How many uses a fact is taken to have had that an earlier ledger names."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something named in a conversation."""

    kind: str
    text: str
    uses: int
    last: int
    """The message in which it was named last."""


def facts(messages: Sequence[Message]) -> list[Fact]:
    """The facts in these messages, most used first, and newest first among those used as often."""
    uses: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for place, message in enumerate(messages):
        weight = 1 if is_result(message) else _OWN_WORDS
        for key in _named(message):
            uses[key] = uses.get(key, 0) + weight
            last[key] = place
    found = [Fact(kind, text, uses[kind, text], last[kind, text]) for kind, text in uses]
    return sorted(found, key=lambda fact: (-fact.uses, -fact.last, fact.text))


def ledger(messages: Sequence[Message], *, counter: TokenCounter, max_tokens: int, said: str = "") -> str:
    """The facts of these messages as a few lines, as many as fit; those that `said` names already are left out.

    Files of one folder share its name, as in a shell: `src/app/{main.py,view.py}`. An empty text if there are no facts.
    """
    left = [fact for fact in _in_turn(facts(messages)) if fact.text not in said]
    chosen: dict[str, dict[str, list[str]]] = {}
    text = ""
    for _ in range(_ROUNDS):
        left = _chosen(left, chosen, counter, max_tokens - counter.count(text or HEAD))
        text = _rendered(chosen)
    return text


def _chosen(
    found: Sequence[Fact], chosen: dict[str, dict[str, list[str]]], counter: TokenCounter, room: int
) -> list[Fact]:
    """Put as many facts with the chosen ones as there is room for, by what they cost at most; the others are returned."""
    left: list[Fact] = []
    for fact in found:
        place, name = _split(fact)
        groups = chosen.get(fact.kind)
        cost = counter.count(name) + 1
        cost += 0 if groups is not None else counter.count(fact.kind) + 3
        cost += 0 if groups is not None and place in groups else counter.count(place) + 1
        if cost > room:
            left.append(fact)
            continue
        room -= cost
        chosen.setdefault(fact.kind, {}).setdefault(place, []).append(name)
    return left


def _rendered(chosen: Mapping[str, Mapping[str, list[str]]]) -> str:
    lines = [f"- {kind}: {_between(kind).join(_written(kind, groups))}" for kind, groups in chosen.items()]
    return "\n".join([HEAD, *lines]) if lines else ""


def spelled_out(text: str) -> str:
    """The text with every `folder/{a,b}` as `folder/a folder/b`."""
    return _BRACES.sub(lambda found: " ".join(found[1] + name for name in found[2].split(",")), text)


def _split(fact: Fact) -> tuple[str, str]:
    folder, slash, name = fact.text.rpartition("/")
    is_plain = fact.kind == "paths" and slash and name and not set(fact.text) & set("{},")
    return (f"{folder}/", name) if is_plain else ("", fact.text)


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


def _in_turn(found: list[Fact]) -> Iterator[Fact]:
    """The facts, kind by kind in turn: many paths must not leave a request or the one order number no room."""
    by_kind: dict[str, list[Fact]] = {}
    for fact in found:
        by_kind.setdefault(fact.kind, []).append(fact)
    # Paths are what agents come back to; each round takes several of them.
    share = {"paths": 12, "commands": 2, "ids": 2}
    while by_kind:
        for kind in list(by_kind):
            taken, by_kind[kind] = by_kind[kind][: share.get(kind, 1)], by_kind[kind][share.get(kind, 1) :]
            yield from taken
            if not by_kind[kind]:
                del by_kind[kind]


def _named(message: Message) -> Iterator[tuple[str, str]]:
    text = text_of(message)
    if HEAD in text:
        text, _, earlier = text.partition(HEAD)
        for _ in range(_CARRIED):
            yield from _read(earlier)
    if is_user(message) and (request := " ".join(text.split())[:_REQUEST]):
        yield "requests", request
    for name, arguments in _arguments(message):
        for key, value in arguments.items():
            if key in _COMMAND_KEYS and isinstance(value, str) and value.strip():
                yield "commands", value.strip().splitlines()[0][:_LINE]
        yield from (("paths", path) for path in _paths(arguments))
        text += f"\n{name} {json.dumps(arguments, ensure_ascii=False)}"
    for kind, pattern in KINDS:
        seen = {found[0].strip() for found in pattern.finditer(text)}
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
