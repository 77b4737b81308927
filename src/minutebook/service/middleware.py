"""What happens around every request, whoever handles it: its id, the size of its body, its errors, its traces.

It is plain ASGI and hands every piece of an answer on as it comes, so a stream stays a stream.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minutebook.errors import RequestRefused
from minutebook.service.failures import Failure, failure_of
from minutebook.service.logs import REQUEST_ID
from minutebook.service.metrics import Metrics
from minutebook.service.redact import is_clean
from minutebook.service.telemetry import Telemetry
from minutebook.service.wire import Json

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
        telemetry: Telemetry,
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
                    span.answered(scope["method"], route_of(scope), exchange.status)
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
