"""The HTTP server's limits for connections: size and time of the request headers, number of connections, keep-alive."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from minutebook.service.config.schema import ServiceConfig

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TIMEOUT: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def server_options(config: ServiceConfig) -> dict[str, Any]:
    """The options of `uvicorn.Config` for a service."""

    class Protocol(LimitedProtocol):
        max_header_bytes = config.limits.header_bytes
        header_seconds = config.server.header_seconds

    return {
        "http": Protocol,
        "limit_concurrency": config.limits.connections + 1,  # uvicorn refuses at this number, not above it
        "timeout_keep_alive": config.server.keep_alive_seconds,
    }


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed if the headers of a request are too large or take too long."""

    max_header_bytes: int
    header_seconds: float
    _header_bytes = 0
    _is_in_headers = True
    _is_in_body = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_body:
            if self.cycle.response_complete and self._timer is None:
                # The request was answered early, such as without a valid key. Many clients read the answer only after
                # they have sent the whole body, so the rest of it is read and discarded.
                self._timer = self.loop.call_later(self.header_seconds, self.transport.close)
        elif not self._is_in_headers and self.cycle.response_complete:
            self._start_headers()
        super().data_received(data)
        if self._is_in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.max_header_bytes:
                self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._is_in_body = False, True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._stop_timer()
        super().on_message_complete()

    def _start_headers(self) -> None:
        self._is_in_headers, self._header_bytes = True, 0
        self._stop_timer()
        self._timer = self.loop.call_later(self.header_seconds, self._refuse, _TIMEOUT)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
