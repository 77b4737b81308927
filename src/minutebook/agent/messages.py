"""Values passed between the runner and a provider adapter, the same for every provider: request, reply, usage, response."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar
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
    """Token counts of one model call; `+` adds those of several."""

    input_tokens: int = 0
    """All input tokens, cached or not."""
    output_tokens: int = 0
    """All output tokens, including reasoning."""
    cached_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache, which costs extra."""
    reasoning_tokens: int = 0
    """Output tokens of the model's hidden reasoning."""

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


_MAX_LINE_CHARACTERS: Final = 160


def one_line(text: str) -> str:
    """The text on one line, shortened to 160 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE_CHARACTERS else line[: _MAX_LINE_CHARACTERS - 1] + "…"


_MAX_COUNT: Final = 1 << 53
"""Larger numbers are not counts of tokens, and databases cannot add them."""


def usage_from(reported: Mapping[str, Any] | None) -> Usage:
    """Convert a `usage` object of chat completions, Responses, Anthropic or Gemini. Counts that it does not have are 0.

    Anthropic's `input_tokens` exclude tokens that were read from or written to the cache; `Usage.input_tokens` include them.
    """
    reported = reported or {}
    if "promptTokenCount" in reported:
        thoughts = _count(reported, "thoughtsTokenCount")
        return Usage(
            input_tokens=_count(reported, "promptTokenCount"),
            output_tokens=_count(reported, "candidatesTokenCount") + thoughts,
            cached_tokens=_count(reported, "cachedContentTokenCount"),
            reasoning_tokens=thoughts,
        )
    input_details = reported.get("prompt_tokens_details") or reported.get("input_tokens_details")
    output_details = reported.get("completion_tokens_details") or reported.get("output_tokens_details")
    cache_read = _count(reported, "cache_read_input_tokens")
    cache_write = _count(reported, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(reported, "prompt_tokens", "input_tokens") + cache_read + cache_write,
        output_tokens=_count(reported, "completion_tokens", "output_tokens"),
        cached_tokens=cache_read or _count(input_details, "cached_tokens"),
        cache_write_tokens=cache_write or _count(input_details, "cache_write_tokens"),
        reasoning_tokens=_count(output_details, "reasoning_tokens"),
    )


def _count(reported: Any, *names: str) -> int:
    """The first of these counts that is not 0. A value that cannot be a count is 0: an answer is kept without its usage."""
    values = [reported.get(name) for name in names] if isinstance(reported, Mapping) else []
    return next((value for value in values if type(value) is int and 0 < value <= _MAX_COUNT), 0)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON schema of the answer, for providers that enforce one."""

    name: str
    schema: Mapping[str, Any]
    strict: bool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to the model. It is immutable, so a retry sends the same request."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    """In the format of OpenAI chat completions."""
    tool_choice: str | Mapping[str, Any] | None = None
    """In the format of OpenAI chat completions; None if there are no tools."""
    output: OutputSchema | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer of the model."""

    message: dict[str, Any]
    """The assistant message, in the format of OpenAI chat completions."""
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    """The finish reason: stop, tool_calls, length or content_filter."""
    model: str | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of a streamed answer."""

    text: str

    def __str__(self) -> str:
        return f"text: {self.text!r}"


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of the model's streamed reasoning, if the provider sends it."""

    text: str

    def __str__(self) -> str:
        return f"thinking: {self.text!r}"


Delta: TypeAlias = TextDelta | ThinkingDelta
OnDelta: TypeAlias = Callable[[Delta], None]


class ToolsAndSchema:
    """The tools and the output schema of a rendered prompt, in the format of OpenAI chat completions."""

    def __init__(self, rendered: RenderedPrompt[Any], *, strict_tools: bool) -> None:
        self.tools: Sequence[Mapping[str, Any]] = tuple(
            _tool_spec(tool, strict=strict_tools) for tool in rendered.tools
        )
        output_type = rendered.output_type if rendered.native_output else None
        self.output = None if output_type is None else _output_schema(output_type)

    def tokens(self, counter: TokenCounter) -> int:
        """The estimated tokens of the tools in a request; each provider writes them into the prompt differently."""
        return counter.count(json.dumps(self.tools)) if self.tools else 0


def _tool_spec(tool: AnyTool, *, strict: bool) -> dict[str, Any]:
    try:
        return tool.spec(strict=strict)
    except UnsupportedType:  # the type has a schema, but not one that strict mode accepts
        return tool.spec()


def _output_schema(output_type: type) -> OutputSchema:
    try:
        return OutputSchema(output_type.__name__, json_schema(output_type, strict=True), strict=True)
    except UnsupportedType:
        return OutputSchema(output_type.__name__, json_schema(output_type), strict=False)


Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[Out]):
    """The result of an evaluation: the answer, the usage and the conversation."""

    prompt_name: str
    text: str
    """The text of the final answer."""
    output: Out
    """The answer parsed as the prompt's output type; the text itself if the prompt has none."""
    evaluation_id: UUID
    """The id of this evaluation in every entry it recorded."""
    usage: Usage
    """The sum over all model calls."""
    calls: int
    """The number of model calls."""
    finish: str
    """The finish reason of the last call: stop, length or content_filter."""
    refusal: str | None
    """The refusal text, if the provider marked the answer as a refusal."""
    conversation: Transcript
    """The whole conversation; pass it to the next evaluation to continue it."""
    view: View
    """The view that was sent in the last model call."""
