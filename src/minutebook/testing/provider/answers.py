"""What the loopback provider does with a request: check it, play the script, build the answer.

Where a script stands: which step is next, and which ids its calls get.

What goes back over the wire, before anybody touches a socket.

An answer of the script, put into the words of the provider that was asked.

Where a request is judged and answered, without a socket in sight.

In this order, as providers do: the address, the key, the JSON, the rate limit, the rules, the context window, the model.
"""

import hmac
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from minutebook.errors import InvalidSetting
from minutebook.record.message import Provider
from minutebook.testing.provider.anthropic import Thoughts, event, events, message, messages_problem, sign
from minutebook.testing.provider.errors import error_body, error_headers, error_text
from minutebook.testing.provider.openai import chat_problem, chunks, completion, data, model_page
from minutebook.testing.provider.rate_limit import Turnstile
from minutebook.testing.provider.usage import Measure, Meter, tally
from minutebook.testing.script import Answer, Failure, ReceivedRequest, ScriptedModel, Step, Use, public_headers, say


class Playback:
    """Plays one script to whoever asks next, from any thread."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self._lock = Lock()
        self._asked = 0
        self._ids = count(1)

    def next(self, request: ReceivedRequest) -> Answer | Failure:
        """The answer to this request. A script that is at its end, or that raises, is an error that says so."""
        with self._lock:
            place, self._asked = self._asked, self._asked + 1
        steps = self.model.steps
        step = steps[place] if place < len(steps) else self.model.otherwise
        if step is None:
            said = f"the script has {len(steps)} steps and this is request {place + 1}; add a step, or say `otherwise`"
            return Failure(500, said, code="script_exhausted", retryable=False)
        try:
            return self._numbered(_resolved(step, request))
        except Exception as error:  # noqa: BLE001 - a test's own function; the client must see what it raised
            said = f"step {place} of the script raised {type(error).__name__}: {error}"
            return Failure(500, said, code="script_failed", retryable=False)

    def _numbered(self, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(answer, Failure):
            return answer
        with self._lock:
            parts = tuple(
                replace(part, call_id=f"call_{next(self._ids)}") if isinstance(part, Use) else part
                for part in answer.parts
            )
        return replace(answer, parts=parts)


def _resolved(step: Step, request: ReceivedRequest) -> Answer | Failure:
    while callable(step):
        step = step(request)
    if not isinstance(step, Answer | Failure | str):
        raise InvalidSetting("its answer", step, "a text, say(…), call(…) or fail(…)")
    return say(step) if isinstance(step, str) else step


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, headers, and a body in chunks."""

    status: int
    headers: Mapping[str, str]
    chunks: tuple[bytes, ...]
    streamed: bool = False
    cut_after: int | None = None
    """Close the connection after so many chunks."""
    before_seconds: float = 0.0
    between_seconds: float = 0.0


def json_reply(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Reply(status, {"content-type": "application/json", **headers}, (content,))


STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def rendered(
    answer: Answer, request: ReceivedRequest, measure: Measure, meter: Meter, now: int, ids: Mapping[str, str]
) -> Reply:
    """The whole reply, streamed if the client asked for that."""
    counted, body, number = tally(answer, measure, meter), request.body, request.number
    signed = partial(sign, prompt=measure.digests[-1])
    if not body.get("stream"):
        if request.provider == "openai":
            whole = completion(answer, counted, body, number, now)
        else:
            whole = message(answer, counted, body, number, signed)
        plain = json_reply(200, whole, ids)
        return Reply(200, plain.headers, plain.chunks, False, answer.cut_after, answer.before_seconds)
    if request.provider == "openai":
        stream = list(chunks(answer, counted, body, number, now))
    else:
        stream = list(events(answer, counted, body, number, signed))
    if answer.failure is not None:
        error = error_body(answer.failure, request.provider, ids["request-id"])
        stream.append(data(error) if request.provider == "openai" else event("error", error=error["error"]))
    return Reply(
        200,
        {**STREAM_HEADERS, **ids},
        tuple(part.encode(errors="replace") for part in stream),
        True,
        answer.cut_after,
        answer.before_seconds,
        answer.between_seconds,
    )


CHAT, MESSAGES, COUNT, MODELS = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/models"

ModelFor = Callable[[ReceivedRequest], ScriptedModel]


class Desk:
    """Answers requests for any number of conversations at once."""

    def __init__(
        self,
        model_for: ModelFor,
        *,
        meter: Meter,
        turnstile: Turnstile,
        thoughts: Thoughts,
        clock: Callable[[], float],
        strict: bool,
        max_context_tokens: int | None,
        api_key: str | None,
        models: tuple[str, ...],
        remember: int | None = None,
    ) -> None:
        self._model_for, self._meter, self._turnstile, self._thoughts = model_for, meter, turnstile, thoughts
        self._clock, self._strict, self._max, self._key, self._models = (
            clock,
            strict,
            max_context_tokens,
            api_key,
            models,
        )
        self._lock = Lock()
        self._numbers = count(1)
        self._received: deque[ReceivedRequest] = deque(maxlen=remember)
        self._playing: dict[int, Playback] = {}

    @property
    def received(self) -> list[ReceivedRequest]:
        with self._lock:
            return list(self._received)

    def reply(self, method: str, target: str, headers: Mapping[str, str], raw: bytes) -> Reply:
        """The answer to one HTTP request."""
        path = target.partition("?")[0].rstrip("/")
        asks_anthropic = path.startswith(MESSAGES) or "anthropic-version" in {name.lower() for name in headers}
        body = _parsed(raw)
        request = self._received_now("anthropic" if asks_anthropic else "openai", path, headers, body, method)
        problem = self._door_problem(method, path, headers)
        if problem is not None:
            return self._refused(request, problem)
        if method == "GET":
            page = model_page(path.removeprefix(MODELS), self._models, int(self._clock()), request.provider)
            return self._refused(request, page) if isinstance(page, Failure) else self._sent(request, 200, page)
        unread = body if isinstance(body, Failure) else None
        problem = unread or self._turnstile.refusal() or self._rule_problem(request)
        return self._refused(request, problem) if problem else self._answered(request)

    def _received_now(
        self,
        provider: Provider,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | Failure,
        method: str,
    ) -> ReceivedRequest:
        read = {} if isinstance(body, Failure) else body
        with self._lock:
            request = ReceivedRequest(next(self._numbers), provider, path, public_headers(headers), read)
            if method == "POST":
                self._received.append(request)
        return request

    def _door_problem(self, method: str, path: str, headers: Mapping[str, str]) -> Failure | None:
        wanted = "GET" if path == MODELS or path.startswith(f"{MODELS}/") else "POST"
        if wanted == "POST" and path not in {CHAT, MESSAGES, COUNT}:
            return Failure(404, f"unknown address: {method} {path}")
        if method != wanted:
            return Failure(405, f"{path} takes {wanted}, not {method}")
        if self._key is not None:
            sent = {name.lower(): value for name, value in headers.items()}
            key = sent.get("x-api-key") or sent.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(key.encode(), self._key.encode()):
                return Failure(401)
        return None

    def _rule_problem(self, request: ReceivedRequest) -> Failure | None:
        if not self._strict and _is_readable(request.body):
            return None
        if request.provider == "openai":
            return chat_problem(request.body)
        if "anthropic-version" not in request.headers:
            return Failure(400, "anthropic-version: header is required")
        return messages_problem(request.body, max_tokens_needed=request.path == MESSAGES)

    def _answered(self, request: ReceivedRequest) -> Reply:
        place = json.dumps([request.provider, request.model, request.body.get("prompt_cache_key")])
        try:
            measure = self._meter.measure(request.body, place=place, marks=request.provider == "anthropic")
        except RecursionError:
            return self._refused(request, Failure(400, "the body of the request is nested too deeply"))
        if problem := self._prompt_problem(request, measure):
            return self._refused(request, problem)
        if request.path == COUNT:
            return self._sent(request, 200, {"input_tokens": measure.tokens})
        try:
            model = self._model_for(request)
        except LookupError:
            said = f"the model '{request.model}' does not exist"
            return self._refused(request, Failure(404, said, code="model_not_found", param="model"))
        with self._lock:
            # By identity: two conversations may well have equal scripts, and each is at its own step.
            playback = self._playing.setdefault(id(model), Playback(model))
        answer = playback.next(request)
        if isinstance(answer, Failure):
            return self._refused(request, answer)
        self._meter.remember(measure, place=place)
        self._thoughts.remember(answer)
        if answer.failure is not None and not request.body.get("stream"):
            return self._refused(request, answer.failure)
        request.status = 200
        return rendered(answer, request, measure, self._meter, int(self._clock()), self._ids(request))

    def _prompt_problem(self, request: ReceivedRequest, measure: Measure) -> Failure | None:
        if self._strict and request.provider == "anthropic":
            problem = self._thoughts.problem(request.body, measure.digests)
            if problem is not None:
                return problem
        if self._max is not None and measure.tokens > self._max and request.path != COUNT:
            return Failure(400, overflow=(measure.tokens, self._max))
        return None

    def _refused(self, request: ReceivedRequest, failure: Failure) -> Reply:
        request.problem = error_text(failure, request.provider)
        body = error_body(failure, request.provider, f"req_{request.number}")
        return self._sent(request, failure.status, body, error_headers(failure))

    def _sent(
        self, request: ReceivedRequest, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        request.status = status
        return json_reply(status, body, {**self._ids(request), **(headers or {})})

    @staticmethod
    def _ids(request: ReceivedRequest) -> Mapping[str, str]:
        return {"x-request-id": f"req_{request.number}", "request-id": f"req_{request.number}"}


def _is_readable(body: Mapping[str, Any]) -> bool:
    """Whether there is enough of a request to answer it at all."""
    messages = body.get("messages")
    readable = isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    return readable and isinstance(body.get("model"), str)


def _parsed(raw: bytes) -> Mapping[str, Any] | Failure:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return Failure(400, "the body of the request is not valid JSON")
    return body if isinstance(body, dict) else Failure(400, "the body of the request is not a JSON object")
