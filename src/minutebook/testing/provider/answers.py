"""How the loopback provider handles a request: check it, play the script, build the reply. No sockets here.

`RequestHandler` checks in the order in which providers do: path, API key, JSON, rate limit, rules, context window, model.
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
from minutebook.testing.provider.anthropic import (
    ThinkingHistory,
    event,
    events,
    message,
    messages_problem,
    thinking_signature,
)
from minutebook.testing.provider.errors import error_body, error_headers, error_text
from minutebook.testing.provider.gemini import gemini_problem, generated_content, model_of
from minutebook.testing.provider.openai import chat_problem, chunks, completion, model_page, sse_event
from minutebook.testing.provider.rate_limit import RateLimiter
from minutebook.testing.provider.responses import ResponseStream, response, responses_problem
from minutebook.testing.provider.usage import PromptMeasure, PromptMeter, answer_usage
from minutebook.testing.script import (
    CallPart,
    ReceivedRequest,
    ScriptedAnswer,
    ScriptedFailure,
    ScriptedModel,
    Step,
    public_headers,
    say,
)


class Playback:
    """Plays one script: each request gets its next answer. Thread-safe."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self._lock = Lock()
        self._next_step = 0
        self._call_numbers = count(1)

    def next(self, request: ReceivedRequest) -> ScriptedAnswer | ScriptedFailure:
        """The answer to this request. If the script has ended or raises, an error that says so."""
        with self._lock:
            index, self._next_step = self._next_step, self._next_step + 1
        steps = self.model.steps
        step = steps[index] if index < len(steps) else self.model.otherwise
        if step is None:
            problem = (
                f"the script has {len(steps)} steps and this is request {index + 1}; add a step, or set `otherwise`"
            )
            return ScriptedFailure(500, problem, code="script_exhausted", retryable=False)
        try:
            return self._with_call_ids(_step_answer(step, request))
        except Exception as error:  # noqa: BLE001 - a function of the test; the client must see its error
            problem = f"step {index} of the script raised {type(error).__name__}: {error}"
            return ScriptedFailure(500, problem, code="script_failed", retryable=False)

    def _with_call_ids(self, answer: ScriptedAnswer | ScriptedFailure) -> ScriptedAnswer | ScriptedFailure:
        if isinstance(answer, ScriptedFailure):
            return answer
        with self._lock:
            parts = tuple(
                replace(part, call_id=f"call_{next(self._call_numbers)}") if isinstance(part, CallPart) else part
                for part in answer.parts
            )
        return replace(answer, parts=parts)


def _step_answer(step: Step, request: ReceivedRequest) -> ScriptedAnswer | ScriptedFailure:
    while callable(step):
        step = step(request)
    if not isinstance(step, ScriptedAnswer | ScriptedFailure | str):
        raise InvalidSetting("answer", step, "a text, say(…), call(…) or fail(…)")
    return say(step) if isinstance(step, str) else step


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response: status, headers and body chunks."""

    status: int
    headers: Mapping[str, str]
    chunks: tuple[bytes, ...]
    streamed: bool = False
    cut_after: int | None = None
    """Close the connection after this many chunks; 0 sends nothing. A body that is not streamed is cut in the middle."""
    before_seconds: float = 0.0
    between_seconds: float = 0.0


def json_reply(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Reply(status, {"content-type": "application/json", **headers}, (content,))


STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def answer_reply(
    answer: ScriptedAnswer,
    request: ReceivedRequest,
    measure: PromptMeasure,
    meter: PromptMeter,
    now: int,
    id_headers: Mapping[str, str],
) -> Reply:
    """The reply in the provider's format, streamed if the request says `stream`."""
    usage, body, number = answer_usage(answer, measure, meter), request.body, request.number
    sign_thinking = partial(thinking_signature, prompt_digest=measure.digests[-1])
    if not body.get("stream"):
        if request.provider == "gemini":
            answer_body = generated_content(answer, usage, request.model, number)
        elif request.path == RESPONSES:
            answer_body = response(answer, usage, body, number, now)
        elif request.provider == "openai":
            answer_body = completion(answer, usage, body, number, now)
        else:
            answer_body = message(answer, usage, body, number, sign_thinking)
        full_reply = json_reply(200, answer_body, id_headers)
        return Reply(200, full_reply.headers, full_reply.chunks, False, answer.cut_after, answer.before_seconds)
    response_stream = ResponseStream()
    if request.path == RESPONSES:
        stream = list(response_stream.events(answer, usage, body, number, now))
    elif request.provider == "openai":
        stream = list(chunks(answer, usage, body, number, now))
    else:
        stream = list(events(answer, usage, body, number, sign_thinking))
    if answer.failure is not None:
        error = error_body(answer.failure, request.provider, id_headers["request-id"])
        if request.path == RESPONSES:
            error_fields = {key: error["error"][key] for key in ("code", "message", "param")}
            stream.append(response_stream.event("error", **error_fields))
        else:
            stream.append(sse_event(error) if request.provider == "openai" else event("error", error=error["error"]))
    return Reply(
        200,
        {**STREAM_HEADERS, **id_headers},
        tuple(part.encode(errors="replace") for part in stream),
        True,
        answer.cut_after,
        answer.before_seconds,
        answer.between_seconds,
    )


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT, MODELS = "/v1/messages/count_tokens", "/v1/models"

ModelFor = Callable[[ReceivedRequest], ScriptedModel]


class RequestHandler:
    """Checks and answers requests of any number of conversations. Thread-safe."""

    def __init__(
        self,
        model_for: ModelFor,
        *,
        meter: PromptMeter,
        rate_limiter: RateLimiter,
        thinking: ThinkingHistory,
        clock: Callable[[], float],
        strict: bool,
        max_context_tokens: int | None,
        api_key: str | None,
        model_names: tuple[str, ...],
        max_received: int | None = None,
    ) -> None:
        self._model_for, self._meter, self._rate_limiter, self._thinking = model_for, meter, rate_limiter, thinking
        self._clock, self._strict, self._model_names = clock, strict, model_names
        self._max_context_tokens, self._api_key = max_context_tokens, api_key
        self._lock = Lock()
        self._numbers = count(1)
        self._received: deque[ReceivedRequest] = deque(maxlen=max_received)
        self._playbacks: dict[int, Playback] = {}

    @property
    def received(self) -> list[ReceivedRequest]:
        with self._lock:
            return list(self._received)

    def reply(self, method: str, target: str, headers: Mapping[str, str], raw: bytes) -> Reply:
        """The answer to one HTTP request."""
        path = target.partition("?")[0].rstrip("/")
        is_anthropic = path.startswith(MESSAGES) or "anthropic-version" in {name.lower() for name in headers}
        body = _json_body(raw)
        provider: Provider = "anthropic" if is_anthropic else "openai"
        if (model := model_of(path)) is not None:
            provider = "gemini"
            body = body if isinstance(body, ScriptedFailure) else {**body, "model": model}
        request = self._add_received(provider, path, headers, body, method)
        problem = self._access_problem(method, path, headers)
        if problem is not None:
            return self._rejection(request, problem)
        if method == "GET":
            page = model_page(path.removeprefix(MODELS), self._model_names, int(self._clock()), request.provider)
            return (
                self._rejection(request, page)
                if isinstance(page, ScriptedFailure)
                else self._json_reply(request, 200, page)
            )
        body_problem = body if isinstance(body, ScriptedFailure) else None
        problem = body_problem or self._rate_limiter.check() or self._rule_problem(request)
        return self._rejection(request, problem) if problem else self._answer(request)

    def _add_received(
        self,
        provider: Provider,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | ScriptedFailure,
        method: str,
    ) -> ReceivedRequest:
        parsed_body = {} if isinstance(body, ScriptedFailure) else body
        with self._lock:
            request = ReceivedRequest(next(self._numbers), provider, path, public_headers(headers), parsed_body)
            if method == "POST":
                self._received.append(request)
        return request

    def _access_problem(self, method: str, path: str, headers: Mapping[str, str]) -> ScriptedFailure | None:
        expected_method = "GET" if path == MODELS or path.startswith(f"{MODELS}/") else "POST"
        if expected_method == "POST" and path not in {CHAT, RESPONSES, MESSAGES, COUNT} and model_of(path) is None:
            return ScriptedFailure(404, f"unknown path: {method} {path}")
        if method != expected_method:
            return ScriptedFailure(405, f"{path} takes {expected_method}, not {method}")
        if self._api_key is not None:
            lower_headers = {name.lower(): value for name, value in headers.items()}
            key = (
                lower_headers.get("x-api-key")
                or lower_headers.get("x-goog-api-key")
                or lower_headers.get("authorization", "").removeprefix("Bearer ")
            )
            if not hmac.compare_digest(key.encode(), self._api_key.encode()):
                return ScriptedFailure(401)
        return None

    def _rule_problem(self, request: ReceivedRequest) -> ScriptedFailure | None:
        if not self._strict and _is_readable(request.body):
            return None
        if request.path == RESPONSES:
            return responses_problem(request.body)
        if request.provider == "gemini":
            return gemini_problem(request.body)
        if request.provider == "openai":
            return chat_problem(request.body)
        if "anthropic-version" not in request.headers:
            return ScriptedFailure(400, "anthropic-version: header is required")
        return messages_problem(request.body, max_tokens_needed=request.path == MESSAGES)

    def _answer(self, request: ReceivedRequest) -> Reply:
        cache_key = json.dumps([request.provider, request.model, request.body.get("prompt_cache_key")])
        try:
            measure = self._meter.measure(
                request.body, cache_key=cache_key, uses_cache_marks=request.provider == "anthropic"
            )
        except RecursionError:
            return self._rejection(request, ScriptedFailure(400, "the body of the request is nested too deeply"))
        if problem := self._prompt_problem(request, measure):
            return self._rejection(request, problem)
        if request.path == COUNT:
            return self._json_reply(request, 200, {"input_tokens": measure.tokens})
        try:
            model = self._model_for(request)
        except LookupError:
            unknown_model = f"the model '{request.model}' does not exist"
            return self._rejection(request, ScriptedFailure(404, unknown_model, code="model_not_found", param="model"))
        with self._lock:
            # By identity: two conversations may have equal scripts, each at a different step.
            playback = self._playbacks.setdefault(id(model), Playback(model))
        answer = playback.next(request)
        if isinstance(answer, ScriptedFailure):
            return self._rejection(request, answer)
        self._meter.add_to_cache(measure, cache_key=cache_key)
        self._thinking.add(answer)
        if answer.failure is not None and not request.body.get("stream"):
            return self._rejection(request, answer.failure)
        request.status = 200
        return answer_reply(answer, request, measure, self._meter, int(self._clock()), self._id_headers(request))

    def _prompt_problem(self, request: ReceivedRequest, measure: PromptMeasure) -> ScriptedFailure | None:
        if self._strict and request.provider == "anthropic":
            problem = self._thinking.problem(request.body, measure.digests)
            if problem is not None:
                return problem
        if self._max_context_tokens is not None and measure.tokens > self._max_context_tokens and request.path != COUNT:
            return ScriptedFailure(400, overflow=(measure.tokens, self._max_context_tokens))
        return None

    def _rejection(self, request: ReceivedRequest, failure: ScriptedFailure) -> Reply:
        request.problem = error_text(failure, request.provider)
        body = error_body(failure, request.provider, f"req_{request.number}")
        return self._json_reply(request, failure.status, body, error_headers(failure))

    def _json_reply(
        self, request: ReceivedRequest, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        request.status = status
        return json_reply(status, body, {**self._id_headers(request), **(headers or {})})

    @staticmethod
    def _id_headers(request: ReceivedRequest) -> Mapping[str, str]:
        return {"x-request-id": f"req_{request.number}", "request-id": f"req_{request.number}"}


def _is_readable(body: Mapping[str, Any]) -> bool:
    """Whether the body has a model and a list of message objects or items."""
    messages = body.get("messages", body.get("input", body.get("contents")))
    if isinstance(messages, str):
        messages = []
    readable = isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    return readable and isinstance(body.get("model"), str)


def _json_body(raw: bytes) -> Mapping[str, Any] | ScriptedFailure:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return ScriptedFailure(400, "the body of the request is not valid JSON")
    return body if isinstance(body, dict) else ScriptedFailure(400, "the body of the request is not a JSON object")
