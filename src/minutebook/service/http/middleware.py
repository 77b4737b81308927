"""ASGI middleware for every request: request id, body size limit, error responses, access log, metrics and traces.

It does not buffer, so a streamed response stays a stream. Errors that FastAPI and Starlette raise themselves are
converted to the error format of the service, too.
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
from minutebook.service.http.requests import path_for_routing
from minutebook.service.http.responses import JsonResponse
from minutebook.service.observability.logs import REQUEST_ID, needs_redaction
from minutebook.service.observability.telemetry import Metrics, ServiceTelemetry

_LOG: Final = logging.getLogger("minutebook.access")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
CLIENT_CLOSED_REQUEST: Final = 499
"""Status that is logged if the client disconnects before the response starts."""


class RequestMiddleware:
    """The middleware: `app.add_middleware(RequestMiddleware, max_body_bytes=…, metrics=…, telemetry=…)`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int | Callable[[], int],
        max_header_bytes: Callable[[], int] = lambda: 64 * 1024,
        metrics: Metrics,
        telemetry: ServiceTelemetry,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._max_body_bytes, self._max_header_bytes = max_body_bytes, max_header_bytes
        self._metrics, self._telemetry, self._clock = metrics, telemetry, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = path_for_routing(scope.get("raw_path", b""), scope["path"])
        headers = Headers(scope=scope)
        limit = self._max_body_bytes if isinstance(self._max_body_bytes, int) else self._max_body_bytes()
        exchange = _HttpExchange(scope, receive, send, request_id_of(headers), limit, self._max_header_bytes())
        scope.setdefault("state", {})["request_id"] = exchange.request_id
        started = self._clock()
        context_token = REQUEST_ID.set(exchange.request_id)
        try:
            with self._telemetry.request(scope["method"], headers) as span:
                try:
                    await self._handle(exchange, headers)
                finally:
                    span.set_response(scope["method"], route_of(scope), exchange.status)
        finally:
            self._log(exchange, self._clock() - started)
            REQUEST_ID.reset(context_token)

    async def _handle(self, exchange: "_HttpExchange", headers: Headers) -> None:
        if _content_length(headers) > exchange.max_body_bytes:
            await exchange.fail(failure_of(body_too_large(exchange.max_body_bytes)))
            return
        if sum(len(name) + len(value) for name, value in headers.raw) > exchange.max_header_bytes:
            await exchange.fail(failure_of(headers_too_large(exchange.max_header_bytes)))
            return
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            exchange.status = CLIENT_CLOSED_REQUEST
        # The stream boundary: no traceback and no message that quotes the request may reach the client.
        except Exception as error:
            if exchange.response_started:
                raise  # the response is incomplete: the server closes the connection, so the client notices
            await exchange.fail(failure_of(error))

    def _log(self, exchange: "_HttpExchange", seconds: float) -> None:
        scope = exchange.scope
        route = route_of(scope)
        caller = scope["state"].get("caller")
        self._metrics.observe_request(scope["method"], route, exchange.status, seconds)
        fields = {
            "method": scope["method"],
            "route": route,
            "status": exchange.status,
            "seconds": round(seconds, 6),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "tenant": None if caller is None else caller.tenant,
            "key_id": None if caller is None else caller.key_id,
        }
        _LOG.info("request", extra=fields)


@dataclass(eq=False, slots=True)
class _HttpExchange:
    """One request and its response; wraps ASGI's `receive` and `send`."""

    scope: Scope
    _receive: Receive
    _send: Send
    request_id: str
    max_body_bytes: int
    max_header_bytes: int
    status: int = 500
    response_started: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    _body_too_large: bool = field(default=False)

    async def receive(self) -> Message:
        """Receive the next chunk of the body; raise if the body gets too large."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
            if self.bytes_in > self.max_body_bytes and not self.response_started:
                self._body_too_large = True
                raise body_too_large(self.max_body_bytes)
        return message

    async def send(self, message: Message) -> None:
        """Send a chunk of the response. If the body was too large, status 413 replaces the app's response."""
        if self._body_too_large and not self.response_started:
            await self.fail(failure_of(body_too_large(self.max_body_bytes)))
            return
        if self._body_too_large:
            return
        await self._count_and_send(message)

    async def fail(self, failure: Failure) -> None:
        """Respond with a failure."""
        await response_of(failure)(self.scope, self._receive, self._count_and_send)

    async def _count_and_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.response_started, self.status = True, message["status"]
            MutableHeaders(scope=_with_header_list(message))["x-request-id"] = self.request_id
        elif message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)


def response_of(failure: Failure) -> JsonResponse:
    return JsonResponse(failure.body(), status_code=failure.status, headers=dict(failure.headers))


def body_too_large(limit: int) -> RequestRefused:
    problem = f"The body exceeds the maximum of {limit} bytes."
    return RequestRefused(413, problem, "body_too_large", None, (("connection", "close"),))


def headers_too_large(limit: int) -> RequestRefused:
    return RequestRefused(431, f"The headers exceed the maximum of {limit} bytes.", "headers_too_large")


def request_id_of(headers: Mapping[str, str]) -> str:
    """The client's `x-request-id` if it is valid, else a new id."""
    client_id = headers.get("x-request-id", "")
    return client_id if _REQUEST_ID.fullmatch(client_id) and not needs_redaction(client_id) else f"req_{uuid4().hex}"


def route_of(scope: Mapping[str, Any]) -> str | None:
    """The template of the path, such as `/threads/{thread_id}`; None if there is no such route."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None


def _content_length(headers: Mapping[str, str]) -> float:
    """The content length; 0 if the header is absent or invalid."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 0
    return int(length) if len(length) < 20 else float("inf")


def _with_header_list(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The message with its headers as a list, which `MutableHeaders` can change."""
    message["headers"] = list(message.get("headers", []))
    return message


_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_VALIDATION_PROBLEMS: Final = (
    ("missing", "is missing"),
    ("extra_forbidden", "is an unknown field"),
    ("json_invalid", "is not valid JSON"),
    ("string_too", "has an invalid length"),
    ("string_pattern", "has an invalid format"),
    ("string", "must be a string"),
    ("int", "must be an integer"),
    ("bool", "must be true or false"),
    ("float", "must be a number"),
    ("list", "must be a list"),
    ("dict", "must be an object"),
    ("model", "must be an object"),
    ("literal_error", "is not one of the allowed values"),
    ("enum", "is not one of the allowed values"),
    ("greater_than", "is too small"),
    ("less_than", "is too large"),
    ("too_long", "is too long"),
    ("too_short", "is too short"),
)
"""Prefix of a pydantic error type → our text. Pydantic's own messages may quote the request."""
_HTTP_PROBLEMS: Final = {
    404: ("There is no such endpoint.", "not_found"),
    405: ("This endpoint does not support this method.", "method_not_allowed"),
    406: ("This endpoint cannot respond with an accepted media type.", "not_acceptable"),
    415: ("Send JSON, with 'Content-Type: application/json'.", "unsupported_media_type"),
}
"""Status of a Starlette error → message and code."""


def install_error_handlers(app: FastAPI) -> None:
    """Make the app respond to every error in the format of OpenAI's API."""
    app.add_exception_handler(MinutebookError, _on_minutebook_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)


async def _on_minutebook_error(_request: Request, error: Exception) -> Response:
    return response_of(failure_of(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message, code = _HTTP_PROBLEMS.get(error.status_code, ("The request was rejected.", "refused"))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    return response_of(Failure(error.status_code, message, code, headers=headers))


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes with the request's path. A literal path takes precedence over path templates."""
    path, paths = request.url.path, request.app.openapi()["paths"]
    matches = [path] if path in paths else [template for template in paths if compile_path(template)[0].match(path)]
    return sorted({method.upper() for match in matches for method in paths[match]})


async def _on_validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response_of(validation_failure(error.errors(), error.body))


def validation_failure(problems: Sequence[Any], body: Any = None) -> Failure:
    """The response to an invalid request: which field is wrong and why, without its value.

    If a field allows several types, pydantic reports a problem for each. The one deepest in the body is of the type that
    the client meant.
    """
    first_error: dict[str, Any] = problems[0] if problems else {"loc": (), "type": ""}
    location, fields = list(first_error["loc"]), list(first_error["loc"][1:])
    if location[:1] == ["body"] and isinstance(body, dict):
        of_same_field = [problem for problem in problems if problem["loc"][:2] == first_error["loc"][:2]]
        first_error = max(of_same_field, key=lambda problem: len(_fields_in(body, problem)))
        fields = _fields_in(body, first_error)
    error_type = str(first_error["type"])
    parts = [_printable(part) for part in fields]
    param = ".".join(parts) or (str(location[0]) if location else None)
    problem = next((text for prefix, text in _VALIDATION_PROBLEMS if error_type.startswith(prefix)), "is invalid")
    return Failure(400, f"{param or 'The request'} {problem}.", "invalid_request", param)


def _fields_in(body: Any, problem: Mapping[str, Any]) -> list[Any]:
    """The location of a problem in the body, without the names of types that pydantic adds to it."""
    fields, value = [], body
    for part in problem["loc"][1:]:
        is_key = isinstance(value, dict) and part in value
        if is_key or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            fields.append(part)
            value = value[part]
        elif problem["type"] == "missing" and part == problem["loc"][-1]:
            fields.append(part)
    return fields


def _printable(part: object) -> str:
    """A part of a location, or "…" if it could be text of the client."""
    text = str(part)
    return text if isinstance(part, int) or (_FIELD_NAME.fullmatch(text) and not needs_redaction(text)) else "…"
