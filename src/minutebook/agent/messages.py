"""Values that pass between the runner and a provider adapter, the same for every provider: request, reply, usage, response."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from minutebook.errors import UnsupportedType
from minutebook.history.view import View
from minutebook.prompt.schema import json_schema
from minutebook.prompt.template import RenderedPrompt
from minutebook.prompt.tools import AnyTool
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or with `+` of several."""

    input_tokens: int = 0
    """All that was sent, cached or not."""
    output_tokens: int = 0
    """All that was answered, reasoning included."""
    cached_tokens: int = 0
    """How many of the input tokens the provider had in its cache."""
    cache_write_tokens: int = 0
    """How many of the input tokens it was paid to put there."""
    reasoning_tokens: int = 0
    """How many of the output tokens nobody sees."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


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


class Offer:
    """The tools and the answer's schema of a rendered prompt, in the form of chat completions."""

    def __init__(self, rendered: RenderedPrompt[Any], *, strict_tools: bool) -> None:
        self.tools: Sequence[Mapping[str, Any]] = tuple(_spec(tool, strict=strict_tools) for tool in rendered.tools)
        wanted = rendered.output_type if rendered.native_output else None
        self.output = None if wanted is None else _schema(wanted)

    def tokens(self, counter: TokenCounter) -> int:
        """What all this adds to a call, about: providers write it into the prompt in ways of their own."""
        return counter.count(json.dumps(self.tools)) if self.tools else 0


def _spec(tool: AnyTool, *, strict: bool) -> dict[str, Any]:
    try:
        return tool.spec(strict=strict)
    except UnsupportedType:  # it has a schema, but not one that providers can hold a model to
        return tool.spec()


def _schema(wanted: type) -> OutputSchema:
    try:
        return OutputSchema(wanted.__name__, json_schema(wanted, strict=True), strict=True)
    except UnsupportedType:
        return OutputSchema(wanted.__name__, json_schema(wanted), strict=False)


Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[Out]):
    """The answer, and what it took to get it."""

    prompt_name: str
    text: str
    """The final answer as the model wrote it."""
    output: Out
    """The answer as the prompt's output type: the dataclass it holds, or the text itself."""
    evaluation_id: UUID
    """Under which the session has recorded what was said."""
    usage: Usage
    """Of all calls of the model together."""
    calls: int
    """How often the model was called."""
    finish: str
    """Why the model stopped: stop, length or content_filter."""
    refusal: str | None
    """What it said instead of an answer, where the provider marks that."""
    conversation: Transcript
    """Everything said so far; give it to the next evaluation to go on."""
    view: View
    """What the model was sent the last time."""
