"""What happens around every request, whoever handles it: its id, the size of its body, its errors, its traces.

It is plain ASGI and hands every piece of an answer on as it comes, so a stream stays a stream.

What FastAPI and Starlette refuse by themselves, told in the one shape that all errors of the service have.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minutebook.errors import MinutebookError, RequestRefused
from minutebook.service.http.errors import Failure, failure_of
from minutebook.service.http.responses import Json
from minutebook.service.observability.logs import REQUEST_ID, is_clean
from minutebook.service.observability.telemetry import Metrics, ServiceTelemetry

_LOG: Final = logging.getLogger("minutebook.access")
_SANE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
GONE: Final = 499
"""What is logged where the client went away before there was an answer."""


class Guard:
    """Around an app: `app.add_middleware(Guard, max_body_bytes=…, metrics=…, telemetry=…)`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int | Callable[[], int],
        metrics: Metrics,
        telemetry: ServiceTelemetry,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._metrics, self._telemetry, self._clock = metrics, telemetry, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        most = self._max_body_bytes if isinstance(self._max_body_bytes, int) else self._max_body_bytes()
        exchange = _Exchange(scope, receive, send, request_id_of(headers), most)
        scope.setdefault("state", {})["request_id"] = exchange.request_id
        begun = self._clock()
        known = REQUEST_ID.set(exchange.request_id)
        try:
            with self._telemetry.request(scope["method"], headers) as span:
                try:
                    await self._answered(exchange, headers)
                finally:
                    span.responded(scope["method"], route_of(scope), exchange.status)
        finally:
            self._tell(exchange, self._clock() - begun)
            REQUEST_ID.reset(known)

    async def _answered(self, exchange: "_Exchange", headers: Headers) -> None:
        if _announced(headers) > exchange.max_body_bytes:
            await exchange.fail(failure_of(too_large(exchange.max_body_bytes)))
            return
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            exchange.status = GONE
        # The boundary: nothing behind it may show a traceback, or a message that quotes what came in.
        except Exception as error:
            if exchange.started:
                raise  # half an answer is out; the server cuts the line, so that nobody takes it for whole
            await exchange.fail(failure_of(error))

    def _tell(self, exchange: "_Exchange", seconds: float) -> None:
        scope = exchange.scope
        route = route_of(scope)
        caller = scope["state"].get("caller")
        self._metrics.request(scope["method"], route, exchange.status, seconds)
        facts = {
            "method": scope["method"],
            "route": route,
            "status": exchange.status,
            "seconds": round(seconds, 6),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "tenant": None if caller is None else caller.tenant,
            "key_id": None if caller is None else caller.key_id,
        }
        _LOG.info("request", extra=facts)


@dataclass(eq=False, slots=True)
class _Exchange:
    """One request and its answer, as they pass by."""

    scope: Scope
    _receive: Receive
    _send: Send
    request_id: str
    max_body_bytes: int
    status: int = 500
    started: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    _refused: bool = field(default=False)

    async def receive(self) -> Message:
        """The next piece of the body, as long as it is not too large."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
            if self.bytes_in > self.max_body_bytes and not self.started:
                self._refused = True
                raise too_large(self.max_body_bytes)
        return message

    async def send(self, message: Message) -> None:
        """Hand a piece of the answer on. Whatever the app makes of a body that is too large, the client is told that."""
        if self._refused and not self.started:
            await self.fail(failure_of(too_large(self.max_body_bytes)))
            return
        if self._refused:
            return
        await self._pass(message)

    async def fail(self, failure: Failure) -> None:
        """Answer with a failure."""
        await answer_of(failure)(self.scope, self._receive, self._pass)

    async def _pass(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            MutableHeaders(scope=_writable(message))["x-request-id"] = self.request_id
        elif message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)


def answer_of(failure: Failure) -> Json:
    """A failure as an HTTP answer."""
    return Json(failure.body(), status_code=failure.status, headers=dict(failure.headers))


def too_large(limit: int) -> RequestRefused:
    """What is answered to a body that is larger than allowed."""
    said = f"The body is larger than {limit} bytes, the most that is taken."
    return RequestRefused(413, said, "body_too_large", None, (("connection", "close"),))


def request_id_of(headers: Mapping[str, str]) -> str:
    """The id that the client gave the request, if it is one; else a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE.fullmatch(given) and is_clean(given) else f"req_{uuid4().hex}"


def route_of(scope: Mapping[str, Any]) -> str | None:
    """The template of the path, such as `/threads/{thread_id}`; None if there is no such route."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None


def _announced(headers: Mapping[str, str]) -> float:
    """How large the body says it is; 0 if it does not say."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 0
    return int(length) if len(length) < 20 else float("inf")


def _writable(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    message["headers"] = list(message.get("headers", []))
    return message


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PROBLEMS: Final = (
    ("missing", "is missing"),
    ("extra_forbidden", "has a field that means nothing here"),
    ("json_invalid", "is not JSON"),
    ("string_too", "has the wrong length"),
    ("string_pattern", "is not written as it must be"),
    ("string", "must be text"),
    ("int", "must be a whole number"),
    ("bool", "must be true or false"),
    ("float", "must be a number"),
    ("list", "must be a list"),
    ("dict", "must be an object"),
    ("model", "must be an object"),
    ("literal_error", "is none of the values that it may have"),
    ("enum", "is none of the values that it may have"),
    ("greater_than", "is too small"),
    ("less_than", "is too large"),
    ("too_long", "is too long"),
    ("too_short", "is too short"),
)
"""What the names of pydantic's errors begin with → what we say. Its own messages may quote what came in."""
_SAID: Final = {
    404: ("There is nothing at this address.", "not_found"),
    405: ("This address does not take this method.", "method_not_allowed"),
    406: ("This address has no answer of that kind.", "not_acceptable"),
    415: ("Send JSON, with 'Content-Type: application/json'.", "unsupported_media_type"),
}


def install_handlers(app: FastAPI) -> None:
    """Have every error of an app answered in the shape that OpenAI's clients read."""
    app.add_exception_handler(MinutebookError, _ours)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _ours(_request: Request, error: Exception) -> Response:
    return answer_of(failure_of(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said, code = _SAID.get(error.status_code, ("The request was refused.", "refused"))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return answer_of(Failure(error.status_code, said, code, headers=headers))


def _methods(request: Request) -> list[str]:
    """The methods that an address takes, whichever of its routes takes them; one that is written out is not a template's."""
    path, paths = request.url.path, request.app.openapi()["paths"]
    named = [path] if path in paths else [each for each in paths if compile_path(each)[0].match(path)]
    return sorted({method.upper() for each in named for method in paths[each]})


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return answer_of(invalid(error.errors()))


def invalid(problems: Sequence[Any]) -> Failure:
    """What a client is told of a request that does not fit its endpoint: where, and what is wrong, not what it sent."""
    first: dict[str, Any] = problems[0] if problems else {"loc": (), "type": ""}
    place, kind = list(first["loc"]), str(first["type"])
    if kind == "extra_forbidden":
        place = place[:-1]  # the last part is a name that came in
    parts = [_shown(part) for part in place[1:]]
    param = ".".join(parts) or (str(place[0]) if place else None)
    problem = next((said for start, said in _PROBLEMS if kind.startswith(start)), "is not what it must be")
    return Failure(400, f"{param or 'The request'} {problem}.", "invalid_request", param)


def _shown(part: object) -> str:
    text = str(part)
    return text if isinstance(part, int) or (_NAME.fullmatch(text) and is_clean(text)) else "…"
