"""What makes a summary, what it is given, and what its answer must be before it is used.

Any object with one method will do. What it is given is all of what the summary will stand for; what it returns is
looked at before anything changes, because a summary that is empty, a tool call or longer than the original is worse
than none.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from minutebook.errors import InvalidSetting, SummaryRejected
from minutebook.record.message import Message
from minutebook.tokens import TokenCounter, counter_for

_TOOL_SYNTAX: Final = re.compile(
    r"^\W*(<\|?\s*/?\s*(antml:)?(tool_?calls?|tool_use|function_?calls?|invoke|function=)"
    r"|\[TOOL_CALLS\]|\[\w+\(.*\)\]$|(functions|tool_code|tool_calls?)\s*[.:=]\s*[\w\[{])",
    re.IGNORECASE | re.MULTILINE,
)
"""How models write calls when they mean to call a tool: at the beginning of a line, by this or that name."""
_FENCE: Final = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What is to be summed up.

    Raises:
        InvalidSetting: there is no room for a summary.
    """

    messages: Sequence[Message]
    """All the messages that the summary will stand for, in order, tool calls and results too."""
    previous: str | None = None
    """The summary of what came before them, which the new one replaces."""
    max_tokens: int = 1_000
    """The most the summary may have."""
    counter: TokenCounter = field(default_factory=lambda: counter_for(None))
    """By whose count."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "1 or more")


@runtime_checkable
class Summarizer(Protocol):
    """Sums up a part of a conversation."""

    async def summarize(self, request: SummaryRequest) -> str:
        """One text in place of the previous summary and all the messages. Whatever it raises, nothing is changed."""
        ...


def accepted(summary: object, request: SummaryRequest) -> str:
    """The summary, if it is one.

    Raises:
        SummaryRejected: it is empty, not prose, or longer than it may be.
    """
    if not isinstance(summary, str):
        raise SummaryRejected(f"is a {type(summary).__name__} and not a text")
    text = summary.strip()
    if not text:
        raise SummaryRejected("is empty")
    tokens = request.counter.count(text)
    if tokens > request.max_tokens:
        raise SummaryRejected(f"has {tokens:,} tokens and may have {request.max_tokens:,}")
    if _TOOL_SYNTAX.search(text) or _is_data(text):
        raise SummaryRejected("is a tool call or data, not prose")
    return text


def _is_data(text: str) -> bool:
    """Whether it is nothing but JSON, in a code fence or not."""
    fenced = _FENCE.match(text)
    try:
        return isinstance(json.loads(fenced[1] if fenced else text), (dict, list))
    except (ValueError, RecursionError):
        return False
