"""Scripts for a model: one answer per request.

A step is one answer, built by adding its parts:

    ScriptedModel(
        think("Two files matter.") + call("read_file", path="a.py") + call("read_file", path="b.py"),
        fail(429, retry_after=2),
        lambda request: say(f"You said: {request.last_text}"),
        say("It is fixed.") + cut(after_chunks=2),
    )

A script is a value. `provider.answers.Playback` runs it. `ReceivedRequest` is what a client sent to the provider.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from minutebook.errors import InvalidSetting
from minutebook.record.message import Provider, text_of

SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key", "proxy-authorization", "cookie"})


@dataclass(slots=True)
class ReceivedRequest:
    """A request as the provider received it, with its outcome.

    `status` and `problem` are set before the first byte of the response is sent, so a test that has the response can
    read them.
    """

    number: int
    """Counts from 1, in the order of arrival."""
    provider: Provider
    path: str
    headers: Mapping[str, str]
    """Names in lower case, without headers that hold secrets."""
    body: Mapping[str, Any]
    """Empty if the body is not a JSON object."""
    status: int | None = None
    problem: str | None = None
    """Why the request was rejected, or why the script had no answer."""

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages, the items of a request to the Responses API, or the contents of one to Gemini's."""
        messages = self.body.get("messages", self.body.get("input", self.body.get("contents")))
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        """The text of the last message."""
        return text_of(self.messages[-1]) if self.messages else ""


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in SECRET_HEADERS}


FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter")


@dataclass(frozen=True, slots=True)
class TextPart:
    """Visible text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning: `reasoning_content` in chat completions, a signed block in Anthropic messages."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A tool call. The arguments are text, because models do not always produce valid JSON."""

    tool: str
    arguments: str
    call_id: str = ""
    """The provider sets it when it answers: `call_1`, `call_2`, …"""

    @property
    def input(self) -> dict[str, Any]:
        """The arguments as an object. Invalid JSON is wrapped in an object, as Anthropic recommends."""
        try:
            value = json.loads(self.arguments or "{}")
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {"INVALID_JSON": self.arguments}


Part: TypeAlias = TextPart | ThinkingPart | CallPart


@dataclass(frozen=True, slots=True)
class ScriptedUsage:
    """The token usage that an answer reports. The provider counts the numbers that are None."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """An error response, sent in the format of the provider that received the request."""

    status: int
    message: str = ""
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    retryable: bool = True
    """If False, a header tells the official clients not to retry (they retry 429 and 5xx by default)."""
    overflow: tuple[int, int] | None = None
    """For a context overflow: the prompt's tokens and the size of the context window."""


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the model; `+` combines two."""

    parts: tuple[Part, ...] = ()
    refusal: str | None = None
    finish: str | None = None
    """The finish reason; None means `tool_calls` if there is a call, otherwise `stop`."""
    usage: ScriptedUsage | None = None
    cut_after: int | None = None
    """Number of events after which the connection is closed; None keeps it open."""
    before_seconds: float = 0.0
    """The wait before the answer."""
    between_seconds: float = 0.0
    """The wait between two chunks of the answer."""
    failure: ScriptedFailure | None = None
    """Sent in the stream after the parts, instead of the final event."""

    def __add__(self, other: "ScriptedAnswer | ScriptedFailure | str") -> "ScriptedAnswer":
        if isinstance(other, ScriptedFailure):
            return replace(self, failure=other)
        if isinstance(other, str):
            other = say(other)
        return ScriptedAnswer(
            self.parts + other.parts,
            _override(self.refusal, other.refusal),
            _override(self.finish, other.finish),
            _override(self.usage, other.usage),
            _override(self.cut_after, other.cut_after),
            self.before_seconds + other.before_seconds,
            self.between_seconds + other.between_seconds,
            _override(self.failure, other.failure),
        )


Step: TypeAlias = (
    ScriptedAnswer | ScriptedFailure | str | Callable[[ReceivedRequest], "ScriptedAnswer | ScriptedFailure | str"]
)


class ScriptedModel:
    """A model that answers from a script: one step per request, in order.

    `otherwise` answers every request after the last step. Without it, such a request gets an error.
    """

    __slots__ = ("otherwise", "steps")

    def __init__(self, *steps: Step, otherwise: Step | None = None) -> None:
        for number, step in enumerate((*steps, *([otherwise] if otherwise is not None else []))):
            if not isinstance(step, ScriptedAnswer | ScriptedFailure | str) and not callable(step):
                raise InvalidSetting(
                    f"step {number}", step, "a text, say(…), call(…), fail(…) or a function of the request"
                )
        self.steps = steps
        self.otherwise = otherwise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.steps))})"


def say(text: str) -> ScriptedAnswer:
    """The model answers with this text."""
    return ScriptedAnswer((TextPart(text),))


def think(text: str) -> ScriptedAnswer:
    """The model emits this reasoning."""
    return ScriptedAnswer((ThinkingPart(text),))


def call(tool: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ScriptedAnswer:
    """The model calls a tool. Add several calls to one answer for parallel calls.

    Arguments given as text are sent unchanged, valid JSON or not.
    """
    if isinstance(arguments, str):
        return ScriptedAnswer((CallPart(tool, arguments),))
    return ScriptedAnswer((CallPart(tool, json.dumps({**(arguments or {}), **named}, ensure_ascii=False)),))


def refuse(text: str) -> ScriptedAnswer:
    """The model refuses, in the format of each provider."""
    return ScriptedAnswer(refusal=text)


def ends(reason: str) -> ScriptedAnswer:
    """Set the finish reason, one of `FINISH_REASONS`; `length` means that the answer was truncated.

    Raises:
        InvalidSetting: the reason is unknown.
    """
    if reason not in FINISH_REASONS:
        raise InvalidSetting("reason", reason, f"one of {', '.join(FINISH_REASONS)}")
    return ScriptedAnswer(finish=reason)


def uses(*, prompt: int | None = None, completion: int | None = None, cached: int | None = None) -> ScriptedAnswer:
    """Report this token usage instead of the counted one."""
    return ScriptedAnswer(usage=ScriptedUsage(prompt, completion, cached))


def cut(*, after_chunks: int = 0) -> ScriptedAnswer:
    """Close the connection after this many events of a stream, or in the middle of a body that is not streamed.

    With 0 nothing is sent, not even a status.
    """
    return ScriptedAnswer(cut_after=after_chunks)


def slow(before_seconds: float = 0.0, *, between_seconds: float = 0.0) -> ScriptedAnswer:
    """Call the provider's `wait` with these seconds, before the answer and between its chunks.

    The default `wait` returns immediately.
    """
    return ScriptedAnswer(before_seconds=before_seconds, between_seconds=between_seconds)


def fail(
    status: int,
    message: str = "",
    *,
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
    retryable: bool = True,
) -> ScriptedFailure:
    """The provider returns an error. Added to an answer, it ends the stream with the error."""
    return ScriptedFailure(status, message, code, param, retry_after, retryable)


def overflow(tokens: int, maximum: int) -> ScriptedFailure:
    """The provider reports a context overflow."""
    return ScriptedFailure(400, overflow=(tokens, maximum))


def _override(value: Any, new_value: Any) -> Any:
    return value if new_value is None else new_value
