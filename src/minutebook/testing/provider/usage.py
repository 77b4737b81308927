"""Token usage of requests and answers, with a simulated prompt cache.

A prompt is a list of items: the tools, the system prompt, then each message. The digest of an item covers all items before
it, so two requests have a common prefix exactly as far as their digests are equal, and the cache is a set of digests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

from minutebook.lab.prompt_cache import ANTHROPIC_CACHE, OPENAI_CACHE, CacheRules
from minutebook.testing.script import ScriptedAnswer, ScriptedUsage, TextPart, ThinkingPart
from minutebook.tokens import TokenCounter
from minutebook.tokens.counter import TOKENS_PER_CALL

__all__ = ["ANTHROPIC_CACHE", "OPENAI_CACHE", "CacheRules"]  # these are imported from here, too

CACHE_MARK = "cache_control"
"""The key of a cache mark. It is not part of the prompt: clients move it from request to request."""


@dataclass(frozen=True, slots=True)
class PromptMeasure:
    """Tokens and cache state of a request."""

    tokens: int
    cached: int
    """Tokens read from the cache."""
    written: int
    """Tokens written to the cache."""
    digests: tuple[str, ...]
    """Prefix digests: after the tools, after the system prompt, after each message."""
    cacheable_count: int
    """The number of digests that may be cached."""


class PromptMeter:
    """Counts the tokens of prompts and caches their prefixes, separately per model and cache key."""

    def __init__(self, counter: TokenCounter, rules: CacheRules) -> None:
        self._counter = counter
        self._rules = rules
        self._lock = Lock()
        self._counts: dict[str, int] = {}
        self._cached_digests: dict[str, set[str]] = {}

    def measure(self, body: Mapping[str, Any], *, cache_key: str, uses_cache_marks: bool) -> PromptMeasure:
        """Measure a request. With `uses_cache_marks`, only the part up to the last cache mark is cached, if the rules say so."""
        items = prompt_items(body)
        texts = [canonical(item) for item in items]
        counts = [self._count(index, item, text) for index, (item, text) in enumerate(zip(items, texts, strict=True))]
        digests = prefix_digests(texts)
        cacheable_count = _marked_item_count(body) if uses_cache_marks and self._rules.marks_needed else len(items)
        with self._lock:
            cached_digests = self._cached_digests.get(cache_key, set())
            shared = next(
                (index for index in range(cacheable_count) if digests[index] not in cached_digests), cacheable_count
            )
        total, cached, cacheable_tokens = (
            sum(counts),
            self._cached_tokens(sum(counts[:shared])),
            sum(counts[:cacheable_count]),
        )
        written = max(0, cacheable_tokens - cached) if cacheable_tokens >= self._rules.minimum_tokens else 0
        return PromptMeasure(total, cached, written, digests, cacheable_count)

    def add_to_cache(self, measure: PromptMeasure, *, cache_key: str) -> None:
        """Add a processed request to the cache."""
        with self._lock:
            self._cached_digests.setdefault(cache_key, set()).update(measure.digests[: measure.cacheable_count])

    def count(self, text: str) -> int:
        return self._counter.count(text)

    def _count(self, index: int, item: Any, text: str) -> int:
        if index < 2 and not item:
            return 0
        # Every request repeats the earlier messages, and counting is slow.
        tokens = self._counts.get(text)
        if tokens is None:
            if index == 0:  # the tools
                tokens = self._counter.count(text)
            elif (
                index > 1 and item.get("type", "message") != "message"
            ):  # an item of the Responses API that is not a message
                tokens = self._counter.message({"content": [item]})
            else:
                tokens = self._counter.message({"role": "system", "content": item} if index == 1 else item)
            self._counts[text] = tokens
        return tokens

    def _cached_tokens(self, tokens: int) -> int:
        return (
            tokens // self._rules.step_tokens * self._rules.step_tokens if tokens >= self._rules.minimum_tokens else 0
        )


def prompt_items(body: Mapping[str, Any]) -> list[Any]:
    """The items of a prompt, in the order in which providers combine them."""
    if "contents" in body:
        return [body.get("tools"), body.get("systemInstruction"), *body["contents"]]
    if "messages" in body:
        return [body.get("tools"), body.get("system"), *body["messages"]]
    input_value = body["input"]
    items = [{"role": "user", "content": input_value}] if isinstance(input_value, str) else input_value
    return [body.get("tools"), body.get("instructions"), *items]


def canonical(item: Any) -> str:
    """The canonical JSON of an item: keys sorted, cache marks removed, text content as a list of parts."""
    return json.dumps(_normalized(item), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def prefix_digests(texts: Sequence[str]) -> tuple[str, ...]:
    digests, last = [], ""
    for text in texts:
        last = sha256(f"{last}\n{text}".encode(errors="surrogatepass")).hexdigest()
        digests.append(last)
    return tuple(digests)


def _normalized(value: Any) -> Any:
    if isinstance(value, Mapping):
        normalized = {key: _normalized(inner) for key, inner in value.items() if key != CACHE_MARK}
        if isinstance(content := normalized.get("content"), str):
            normalized["content"] = [{"type": "text", "text": content}]
        return normalized
    return [_normalized(inner) for inner in value] if isinstance(value, list) else value


def _marked_item_count(body: Mapping[str, Any]) -> int:
    """The number of items up to the last cache mark. A mark on the request itself covers all."""
    items = prompt_items(body)
    if body.get(CACHE_MARK):
        return len(items)
    return next((index + 1 for index in reversed(range(len(items))) if _has_mark(items[index])), 0)


def _has_mark(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value.get(CACHE_MARK)) or any(map(_has_mark, value.values()))
    return isinstance(value, list) and any(map(_has_mark, value))


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """Token usage of a request and its answer, independent of the provider's field names."""

    prompt: int
    """Including the cached tokens."""
    cached: int
    written: int
    completion: int
    """Including the reasoning tokens."""
    reasoning: int


def answer_usage(answer: ScriptedAnswer, measure: PromptMeasure, meter: PromptMeter) -> AnswerUsage:
    """The counted tokens, unless the script sets them."""
    text_tokens = reasoning = 0
    for part in answer.parts:
        if isinstance(part, TextPart):
            text_tokens += meter.count(part.text)
        elif isinstance(part, ThinkingPart):
            reasoning += meter.count(part.text)
        else:
            text_tokens += TOKENS_PER_CALL + meter.count(part.tool) + meter.count(part.arguments)
    text_tokens += meter.count(answer.refusal or "")
    scripted = answer.usage or ScriptedUsage()
    prompt = measure.tokens if scripted.prompt is None else scripted.prompt
    cached = min(prompt, measure.cached if scripted.cached is None else scripted.cached)
    written = min(prompt - cached, measure.written)
    return AnswerUsage(
        prompt,
        cached,
        written,
        text_tokens + reasoning if scripted.completion is None else scripted.completion,
        reasoning,
    )
