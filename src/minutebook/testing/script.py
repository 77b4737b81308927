"""What a scripted model says, request by request.

A step is one answer, built by adding up what is in it:

    ScriptedModel(
        think("Two files matter.") + call("read_file", path="a.py") + call("read_file", path="b.py"),
        fail(429, retry_after=2),
        lambda request: say(f"You said: {request.last_text}"),
        say("It is mended.") + cut(after_chunks=2),
    )

A script is a value and knows nothing of who plays it; `Playback` does.

A request as the loopback provider received it.
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
    """What a client sent, and what became of it.

    The provider fills in `status` and `problem` before the first byte of the answer leaves, so a client that has an
    answer sees them.
    """

    number: int
    """Requests count from 1, in the order in which they arrived."""
    provider: Provider
    path: str
    headers: Mapping[str, str]
    """Names in lower case, without the ones that hold keys."""
    body: Mapping[str, Any]
    """Empty where the body was no JSON object."""
    status: int | None = None
    problem: str | None = None
    """Why it was refused, or why the script could not answer it."""

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        messages = self.body.get("messages")
        return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        """The text of the last message, which is what most scripts that react look at."""
        return text_of(self.messages[-1]) if self.messages else ""


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in SECRET_HEADERS}


FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter")


@dataclass(frozen=True, slots=True)
class Text:
    """Words for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning: `reasoning_content` on chat completions, a signed block on messages."""

    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """A tool call. Its arguments are text, because models do not always write JSON."""

    tool: str
    arguments: str
    call_id: str = ""
    """Given by the playback: `call_1`, `call_2`, …"""

    @property
    def input(self) -> dict[str, Any]:
        """The arguments as an object; text that is none is wrapped, as Anthropic advises its users to do."""
        try:
            value = json.loads(self.arguments or "{}")
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {"INVALID_JSON": self.arguments}


Part: TypeAlias = Text | Thinking | Use


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens an answer reports; None stands for what the provider counts itself."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error, in the shape of whichever provider was asked."""

    status: int
    message: str = ""
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    retryable: bool = True
    """False tells official clients, which retry 429 and 5xx by themselves, not to."""
    overflow: tuple[int, int] | None = None
    """Tokens asked for and tokens there are, when the prompt is longer than the context window."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model; `+` puts two together."""

    parts: tuple[Part, ...] = ()
    refusal: str | None = None
    finish: str | None = None
    """None ends as models do: `tool_calls` after a call, otherwise `stop`."""
    usage: Usage | None = None
    cut_after: int | None = None
    before_seconds: float = 0.0
    between_seconds: float = 0.0
    failure: Failure | None = None
    """Sent in the stream after the parts, in place of the ending."""

    def __add__(self, other: "Answer | Failure | str") -> "Answer":
        if isinstance(other, Failure):
            return replace(self, failure=other)
        if isinstance(other, str):
            other = say(other)
        return Answer(
            self.parts + other.parts,
            _later(self.refusal, other.refusal),
            _later(self.finish, other.finish),
            _later(self.usage, other.usage),
            _later(self.cut_after, other.cut_after),
            self.before_seconds + other.before_seconds,
            self.between_seconds + other.between_seconds,
            _later(self.failure, other.failure),
        )


Step: TypeAlias = Answer | Failure | str | Callable[[ReceivedRequest], "Answer | Failure | str"]


class ScriptedModel:
    """A model that says what it was told to say: one step for each request, in order.

    `otherwise` answers every request after the last step; without it such a request is an error that says so.
    """

    __slots__ = ("otherwise", "steps")

    def __init__(self, *steps: Step, otherwise: Step | None = None) -> None:
        for place, step in enumerate((*steps, *([otherwise] if otherwise is not None else []))):
            if not isinstance(step, Answer | Failure | str) and not callable(step):
                raise InvalidSetting(
                    f"step {place}", step, "a text, say(…), call(…), fail(…) or a function of the request"
                )
        self.steps = steps
        self.otherwise = otherwise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.steps))})"


def say(text: str) -> Answer:
    """The model says this."""
    return Answer((Text(text),))


def think(text: str) -> Answer:
    """The model reasons before what follows."""
    return Answer((Thinking(text),))


def call(tool: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> Answer:
    """The model calls a tool; add several to call them in parallel. Text as arguments is sent as it is, JSON or not."""
    if isinstance(arguments, str):
        return Answer((Use(tool, arguments),))
    return Answer((Use(tool, json.dumps({**(arguments or {}), **named}, ensure_ascii=False)),))


def refuse(text: str) -> Answer:
    """The model declines, in the way each provider reports that."""
    return Answer(refusal=text)


def ends(reason: str) -> Answer:
    """Why the model stopped, in the words of chat completions; `length` is an answer that ran out of tokens.

    Raises:
        InvalidSetting: there is no such reason.
    """
    if reason not in FINISH_REASONS:
        raise InvalidSetting("reason", reason, f"one of {', '.join(FINISH_REASONS)}")
    return Answer(finish=reason)


def uses(*, prompt: int | None = None, completion: int | None = None, cached: int | None = None) -> Answer:
    """Report these tokens instead of the ones that were counted."""
    return Answer(usage=Usage(prompt, completion, cached))


def cut(*, after_chunks: int = 0) -> Answer:
    """Close the connection after that many events of a stream, or in the middle of a body that is not streamed.

    With 0 there is no answer at all, not even a status.
    """
    return Answer(cut_after=after_chunks)


def slow(before_seconds: float = 0.0, *, between_seconds: float = 0.0) -> Answer:
    """Hand these to the provider's `wait` before the answer and between its chunks; by default nobody waits."""
    return Answer(before_seconds=before_seconds, between_seconds=between_seconds)


def fail(
    status: int,
    message: str = "",
    *,
    code: str | None = None,
    param: str | None = None,
    retry_after: float | None = None,
    retryable: bool = True,
) -> Failure:
    """The provider answers with an error. Added to an answer, it breaks off its stream."""
    return Failure(status, message, code, param, retry_after, retryable)


def overflow(tokens: int, maximum: int) -> Failure:
    """The provider finds the prompt longer than the context window."""
    return Failure(400, overflow=(tokens, maximum))


def _later(one: Any, other: Any) -> Any:
    return one if other is None else other
