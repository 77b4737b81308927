"""How many tokens a text and a message cost, whoever does the counting.

Every counter answers two questions. `count` is its own; `message` is one rule for all of them, in `MessageCounter`,
so that two counters never differ in what they count, only in how exactly.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from minutebook.tokens.content import call_tokens, content_tokens
from minutebook.tokens.media import OPENAI, MediaPrices

PER_MESSAGE = 4
"""What a provider spends on a message's role and its delimiters."""


class TokenCounter(Protocol):
    """Counts the tokens of texts and of messages."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...

    def message(self, message: Mapping[str, Any]) -> int: ...


class MessageCounter:
    """A counter that knows the rule for messages; a subclass adds `count` and the facts it is made of.

    Counters are values: two made of the same facts are equal, and none of them ever changes.
    """

    __slots__ = ()

    media: MediaPrices = OPENAI

    @property
    def name(self) -> str:
        raise NotImplementedError

    def count(self, text: str) -> int:
        raise NotImplementedError

    def message(self, message: Mapping[str, Any]) -> int:
        """4 + content + for each tool call (8 + name + arguments).

        Content is its text, or the sum of its parts: text as text, media by the published price of `media`, never as
        text. A refusal counts as content, and the older `function_call` as one tool call. The rule counts nothing
        else: `name` and `tool_call_id` are inside the 4, and `reasoning_content` is free, because providers drop it
        when it is sent again. Nothing in a message makes this raise: a value that has no business where it stands
        counts as its JSON.
        """
        tokens = PER_MESSAGE
        content = message.get("content")
        if type(content) is str:
            tokens += self.count(content)
        elif content is not None:
            tokens += content_tokens(content, self.count, self.media)
        if (refusal := message.get("refusal")) is not None:
            tokens += content_tokens(refusal, self.count, self.media)
        if (calls := message.get("tool_calls")) is not None:
            several = isinstance(calls, list | tuple)
            tokens += sum(call_tokens(call, self.count) for call in (calls if several else (calls,)))
        if (call := message.get("function_call")) is not None:
            tokens += call_tokens({"function": call}, self.count)
        return tokens

    def _facts(self) -> tuple[Any, ...]:
        """What the counter was made of, in the order its constructor takes it."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageCounter) and type(self) is type(other) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((type(self), self._facts()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._facts()))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._facts()

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{type(self).__name__}.{name} is set once; make another counter instead")
        super().__setattr__(name, value)


def total(counter: TokenCounter, messages: Iterable[Mapping[str, Any]]) -> int:
    """The tokens of all these messages."""
    return sum(map(counter.message, messages))
