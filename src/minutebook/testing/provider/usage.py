"""How many tokens a request has, and how many of them a prompt cache would already hold.

A prompt is a row of items: the tools, the system prompt, then each message. Every item's digest covers all items before
it, so two requests share a beginning exactly as far as they share digests, and one set of digests remembers every
beginning ever sent.

The tokens that an answer reports.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

from minutebook.testing.script import Answer, Text, Thinking, Usage
from minutebook.tokens import TokenCounter
from minutebook.tokens.counter import PER_CALL

NOT_CONTENT = "cache_control"
"""Where a cache mark stands says nothing about the prompt, and clients move it forward from request to request."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """What a provider's prompt cache reports. The defaults show every hit, so that small tests see them."""

    minimum_tokens: int = 0
    """A shorter beginning is not cached."""
    step_tokens: int = 1
    """Hits are rounded down to a multiple of this."""
    marks_needed: bool = True
    """Whether Anthropic's cache reaches only as far as the last `cache_control` of a request, as it does."""


OPENAI_CACHE = CacheRules(minimum_tokens=1024, step_tokens=128)
ANTHROPIC_CACHE = CacheRules(minimum_tokens=1024)


@dataclass(frozen=True, slots=True)
class Measure:
    """What a request weighs."""

    tokens: int
    cached: int
    """Of these, how many were read from the cache."""
    written: int
    """Of the others, how many are in the cache from now on."""
    digests: tuple[str, ...]
    """After the tools, after the system prompt, after each message."""
    reach: int
    """How many of them the cache may keep."""


class Meter:
    """Counts prompts and remembers their beginnings, for each model and cache key apart."""

    def __init__(self, counter: TokenCounter, rules: CacheRules) -> None:
        self._counter = counter
        self._rules = rules
        self._lock = Lock()
        self._counts: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}

    def measure(self, body: Mapping[str, Any], *, place: str, marks: bool) -> Measure:
        """Weigh a request; `marks` says that this provider caches only what is marked."""
        items = prompt_items(body)
        texts = [canonical(item) for item in items]
        counts = [self._count(number, item, text) for number, (item, text) in enumerate(zip(items, texts, strict=True))]
        digests = chain(texts)
        reach = _marked(body) if marks and self._rules.marks_needed else len(items)
        with self._lock:
            known = self._known.get(place, set())
            shared = next((number for number in range(reach) if digests[number] not in known), reach)
        total, cached, marked = sum(counts), self._rounded(sum(counts[:shared])), sum(counts[:reach])
        written = max(0, marked - cached) if marked >= self._rules.minimum_tokens else 0
        return Measure(total, cached, written, digests, reach)

    def remember(self, measure: Measure, *, place: str) -> None:
        """The request was processed, so the cache holds it."""
        with self._lock:
            self._known.setdefault(place, set()).update(measure.digests[: measure.reach])

    def count(self, text: str) -> int:
        return self._counter.count(text)

    def _count(self, number: int, item: Any, text: str) -> int:
        if number < 2 and not item:
            return 0
        # The same messages come again with every request, and counting is the slow part.
        known = self._counts.get(text)
        if known is None:
            if number == 0:
                known = self._counter.count(text)
            else:
                known = self._counter.message({"role": "system", "content": item} if number == 1 else item)
            self._counts[text] = known
        return known

    def _rounded(self, tokens: int) -> int:
        return (
            tokens // self._rules.step_tokens * self._rules.step_tokens if tokens >= self._rules.minimum_tokens else 0
        )


def prompt_items(body: Mapping[str, Any]) -> list[Any]:
    """The parts of a prompt in the order in which providers put them together."""
    return [body.get("tools"), body.get("system"), *body["messages"]]


def canonical(item: Any) -> str:
    """One spelling for everything that is the same prompt: keys sorted, marks left out, text as a list of parts."""
    return json.dumps(_plain(item), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def chain(texts: Sequence[str]) -> tuple[str, ...]:
    digests, last = [], ""
    for text in texts:
        last = sha256(f"{last}\n{text}".encode(errors="surrogatepass")).hexdigest()
        digests.append(last)
    return tuple(digests)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {key: _plain(inner) for key, inner in value.items() if key != NOT_CONTENT}
        if isinstance(content := plain.get("content"), str):
            plain["content"] = [{"type": "text", "text": content}]
        return plain
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _marked(body: Mapping[str, Any]) -> int:
    """How many items lie up to the last mark; a mark on the request itself means all."""
    items = prompt_items(body)
    if body.get(NOT_CONTENT):
        return len(items)
    return next((number + 1 for number in reversed(range(len(items))) if _has_mark(items[number])), 0)


def _has_mark(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value.get(NOT_CONTENT)) or any(map(_has_mark, value.values()))
    return isinstance(value, list) and any(map(_has_mark, value))


@dataclass(frozen=True, slots=True)
class Tally:
    """Tokens in and out, before each provider names them its own way."""

    prompt: int
    """All of them, the cached ones too."""
    cached: int
    written: int
    completion: int
    """All of them, the reasoning too."""
    reasoning: int


def tally(answer: Answer, measure: Measure, meter: Meter) -> Tally:
    """What was counted, unless the script says otherwise."""
    said = reasoning = 0
    for part in answer.parts:
        if isinstance(part, Text):
            said += meter.count(part.text)
        elif isinstance(part, Thinking):
            reasoning += meter.count(part.text)
        else:
            said += PER_CALL + meter.count(part.tool) + meter.count(part.arguments)
    said += meter.count(answer.refusal or "")
    given = answer.usage or Usage()
    prompt = measure.tokens if given.prompt is None else given.prompt
    cached = min(prompt, measure.cached if given.cached is None else given.cached)
    written = min(prompt - cached, measure.written)
    return Tally(prompt, cached, written, said + reasoning if given.completion is None else given.completion, reasoning)
