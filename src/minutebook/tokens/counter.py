"""Counters of the tokens of texts and messages.

Each counter has its own `count` for texts. All share the rule for messages in `MessageCounter.message`, so they count the
same parts of a message and differ only in how exactly they count a text. The functions at the top count the parts of a
message: text, media, tool calls and unexpected values.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from typing import Any, Protocol

from minutebook.errors import InvalidSetting, UnknownName
from minutebook.tokens.media import MEDIA, OPENAI, MediaPrices, is_blob, media_tokens
from minutebook.tokens.vocabulary import VOCABULARIES, cached_vocabulary

TOKENS_PER_CALL = 8
"""Tokens of the delimiters of one tool call."""

TEXT_KEYS = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "reasoning_text"), "text"),
    "refusal": "refusal",
}
"""Type of a content part with text → the key of its text."""

CountText = Callable[[str], int]


def content_tokens(content: Any, count: CountText, prices: MediaPrices) -> int:
    """Tokens of a text, of one content part or of a list of parts."""
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return sum(_part_tokens(part, count, prices) for part in content)
    return _part_tokens(content, count, prices)


def call_tokens(call: Any, count: CountText) -> int:
    """Tokens of a tool call: 8 + name + arguments. Arguments that are not a string count as compact JSON."""
    function = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return TOKENS_PER_CALL + _count_any(call, count)
    arguments = function.get("arguments", function.get("input"))
    return TOKENS_PER_CALL + _count_any(function.get("name"), count) + _count_any(arguments, count)


def _part_tokens(part: Any, count: CountText, prices: MediaPrices) -> int:
    if not isinstance(part, Mapping):
        return _count_any(part, count)
    part_type = part.get("type")
    if isinstance(part_type, str) and (text_key := TEXT_KEYS.get(part_type)):
        return _count_any(part.get(text_key), count)
    if part_type in _CALL_PARTS:
        return call_tokens({"function": part}, count)
    if part_type in _RESULT_PARTS:
        return content_tokens(part.get("content", part.get("output", "")), count, prices)
    if part_type in _REASONING_PARTS:
        return _reasoning_tokens(part, count, prices)
    source = part.get("source")
    if part_type == "document" and isinstance(source, Mapping) and source.get("type") in {"text", "content"}:
        # Anthropic's plain-text documents are sent, and counted, as ordinary content.
        return content_tokens(source.get("data", source.get("content", "")), count, prices)
    tokens = media_tokens(part, prices)
    if tokens is not None:
        return tokens
    part_without_blobs, blob_count = _without_blobs(part)
    return _count_any(part_without_blobs, count) + blob_count * prices.image(None, "auto")


_CALL_PARTS = frozenset({"tool_use", "function_call", "custom_tool_call"})
_RESULT_PARTS = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
ENCRYPTED_CHARACTERS_PER_TOKEN = 16 / 3
"""An assumption: base64 has 4 characters for 3 bytes, and a token of text has 4 bytes."""


def _reasoning_tokens(part: Mapping[str, Any], count: CountText, prices: MediaPrices) -> int:
    """Tokens of reasoning that is sent back to the provider: those of its text or of its encrypted form, if that is more.

    The text may be only a summary. The encrypted form (a signature, `data` or `encrypted_content`) grows with the
    complete reasoning.
    """
    texts = (part.get("thinking"), part.get("summary"), part.get("content"))
    text_tokens = sum(content_tokens(text, count, prices) for text in texts if text)
    encrypted = (part.get("signature"), part.get("data"), part.get("encrypted_content"))
    encrypted_characters = sum(len(text) for text in encrypted if isinstance(text, str))
    return max(text_tokens, ceil(encrypted_characters / ENCRYPTED_CHARACTERS_PER_TOKEN))


def _stored_part_tokens(message: Mapping[str, Any], count: CountText, prices: MediaPrices) -> int:
    """Tokens of the stored blocks and items of other APIs that the message's content and calls do not express."""
    blocks, items = message.get(BLOCKS_KEY), message.get(ITEMS_KEY)
    blocks = blocks if isinstance(blocks, (list, tuple)) else ()
    parts = [block for block in blocks if isinstance(block, Mapping) and str(block.get("type")) not in _CHAT_BLOCKS]
    marks = items.get("marks") if isinstance(items, Mapping) else ()
    marks = [mark for mark in marks or () if isinstance(mark, Mapping)]
    parts += [mark["item"] for mark in marks if "item" in mark]
    parts += _media_in_patch([message.get(PATCH_KEY), *(mark.get("patch") for mark in marks)])
    return content_tokens(parts, count, prices)


def _media_in_patch(patch: Any) -> Iterator[Mapping[str, Any]]:
    """The media parts that a patch of `wire.json_patch` sets.

    `{"in": {key: patch}}` changes the keys of an object, and `{"=": value}` sets a value.

    An image that is a file id, for example, is only in the patch, because chat messages have no such part.
    """
    if isinstance(patch, Mapping):
        changes = patch.get("in")
        changes = changes if isinstance(changes, Mapping) else {}
        type_change = changes.get("type")
        if isinstance(type_change, Mapping) and str(type_change.get("=")) in MEDIA:
            yield {key: change.get("=") for key, change in changes.items() if isinstance(change, Mapping)}
            return
        patch = list(patch.values())
    for inner in patch if isinstance(patch, list) else ():
        yield from _media_in_patch(inner)


BLOCKS_KEY = "anthropic_blocks"
"""Message key for the original Anthropic blocks of an assistant message."""
PATCH_KEY = "anthropic_patch"
"""Message key for the difference between the original Anthropic blocks and those built from the message."""
ITEMS_KEY = "~items"
"""Message key for what restores the original Responses items, as `wire.responses` describes it.

The value is `{"marks": [{"item": …} or {"of": …, "patch": …}, …]}`.
"""
_STORED_PART_KEYS = frozenset({BLOCKS_KEY, PATCH_KEY, ITEMS_KEY})
_CHAT_BLOCKS = frozenset({"text", "tool_use"})
"""Types of blocks that are also in the message's content and calls."""


def _without_blobs(value: Any, depth: int = 0) -> tuple[Any, int]:
    """The value with encoded media replaced by empty strings, and the number of replaced strings."""
    if isinstance(value, str):
        return ("", 1) if is_blob(value) else (value, 0)
    if depth > 32:  # media is not nested this deep, and the stack is limited
        return value, 0
    if isinstance(value, Mapping):
        pairs = {key: _without_blobs(inner, depth + 1) for key, inner in value.items()}
        return {key: inner for key, (inner, _) in pairs.items()}, sum(blobs for _, blobs in pairs.values())
    if isinstance(value, list | tuple):
        items = [_without_blobs(inner, depth + 1) for inner in value]
        return [inner for inner, _ in items], sum(blobs for _, blobs in items)
    return value, 0


def _count_any(value: Any, count: CountText) -> int:
    """Tokens of a text; of any other value as compact JSON. None has no tokens."""
    if value is None:
        return 0
    return count(value if isinstance(value, str) else compact_json(value))


def compact_json(value: Any) -> str:
    """The JSON of a value, or a shortened `repr` if it has none: a cycle, a tuple as a key, or nesting that is too deep."""
    import json  # rarely needed, and a third of this package's import time

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_dict_or_str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)


def _dict_or_str(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


TOKENS_PER_MESSAGE = 4
"""Tokens of a message's role and delimiters."""


class TokenCounter(Protocol):
    """Counts the tokens of texts and of messages."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...

    def message(self, message: Mapping[str, Any]) -> int: ...


class MessageCounter:
    """Base class of counters, with the rule for messages. A subclass adds `count` and its constructor arguments.

    Counters are immutable values: two counters with equal arguments are equal.
    """

    __slots__ = ()

    media: MediaPrices = OPENAI

    @property
    def name(self) -> str:
        raise NotImplementedError

    def count(self, text: str) -> int:
        raise NotImplementedError

    def message(self, message: Mapping[str, Any]) -> int:
        """Tokens of a message: 4 + content + for each tool call (8 + name + arguments).

        Content is a text or the sum of its parts. Media parts count by the price list `media`, never as text. A refusal
        counts as content, and the deprecated `function_call` as one tool call. Thinking blocks and other parts of
        Anthropic's and the Responses API that are stored in the message count by their text or size. Nothing else is
        counted: `name` and `tool_call_id` are included in the 4, and `reasoning_content` is not counted, because providers
        drop it when it is sent again. An unexpected value counts as its JSON, so no message raises an error.
        """
        tokens = TOKENS_PER_MESSAGE
        content = message.get("content")
        if type(content) is str:
            tokens += self.count(content)
        elif content is not None:
            tokens += content_tokens(content, self.count, self.media)
        if (refusal := message.get("refusal")) is not None:
            tokens += content_tokens(refusal, self.count, self.media)
        if (calls := message.get("tool_calls")) is not None:
            is_list = isinstance(calls, list | tuple)
            tokens += sum(call_tokens(call, self.count) for call in (calls if is_list else (calls,)))
        if (function_call := message.get("function_call")) is not None:
            tokens += call_tokens({"function": function_call}, self.count)
        if not _STORED_PART_KEYS.isdisjoint(message):
            tokens += _stored_part_tokens(message, self.count, self.media)
        return tokens

    def _arguments(self) -> tuple[Any, ...]:
        """The arguments of the constructor."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, MessageCounter) and type(self) is type(other) and self._arguments() == other._arguments()
        )

    def __hash__(self) -> int:
        return hash((type(self), self._arguments()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._arguments()))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments()

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{type(self).__name__}.{name} is read-only; create a new counter instead")
        super().__setattr__(name, value)


def total(counter: TokenCounter, messages: Iterable[Mapping[str, Any]]) -> int:
    """Tokens of all messages together."""
    return sum(map(counter.message, messages))


class ExactCounter(MessageCounter):
    """Counts with a model's own vocabulary.

    The vocabulary is loaded at the first count. Text that looks like a special token (`<|endoftext|>`) is counted as
    text.

    Raises:
        UnknownName: there is no vocabulary of that name.
    """

    __slots__ = ("media", "vocabulary")

    def __init__(self, vocabulary: str = "o200k_base", media: MediaPrices = OPENAI) -> None:
        if vocabulary not in VOCABULARIES:
            raise UnknownName("vocabulary", vocabulary, VOCABULARIES)
        self.vocabulary = vocabulary
        self.media = media

    @property
    def name(self) -> str:
        return self.vocabulary

    def count(self, text: str) -> int:
        return cached_vocabulary(self.vocabulary).count(text)

    def _arguments(self) -> tuple[str, MediaPrices]:
        return self.vocabulary, self.media


def rounded_up(tokens: float) -> int:
    """The number rounded up. The tolerance is for rounding errors of a float product, such as 10 * 1.1."""
    return ceil(tokens - 1e-9)


class ScaledCounter(MessageCounter):
    """The text counts of another counter times a factor, rounded up, for models without a public vocabulary.

    Only text is scaled. The 4 of a message and the 8 of a call are delimiters in every vocabulary, and media has its own
    price list.
    """

    __slots__ = ("factor", "inner", "media")

    def __init__(self, inner: TokenCounter, factor: float, media: MediaPrices = OPENAI) -> None:
        if not (isfinite(factor) and factor > 0):
            raise InvalidSetting("factor", factor, "a positive number, such as 1.2")
        self.inner = inner
        self.factor = factor
        self.media = media

    @property
    def name(self) -> str:
        return f"{self.inner.name} x {self.factor:g}"

    def count(self, text: str) -> int:
        return rounded_up(self.inner.count(text) * self.factor)

    def _arguments(self) -> tuple[TokenCounter, float, MediaPrices]:
        return self.inner, self.factor, self.media
