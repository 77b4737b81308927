"""What a runner asks of an adapter, and what it gets: the same for every provider."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from minutebook.agent.usage import Usage
from minutebook.record.message import Message


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON that the answer must be, for providers that hold a model to it."""

    name: str
    schema: Mapping[str, Any]
    strict: bool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of the model. It is a value: a retry sends the same."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """In the form of chat completions."""
    tool_choice: str | Mapping[str, Any] | None = None
    """In the form of chat completions; None where there are no tools."""
    output: OutputSchema | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What the model answered."""

    message: dict[str, Any]
    """The assistant message, in the form of chat completions."""
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    """Why it stopped: stop, tool_calls, length or content_filter."""
    model: str | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next words of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next words of the model's reasoning, where the provider shows it."""

    text: str


Delta: TypeAlias = TextDelta | ThinkingDelta
OnDelta: TypeAlias = Callable[[Delta], None]
