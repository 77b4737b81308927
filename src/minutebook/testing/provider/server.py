"""A server on loopback with the APIs of OpenAI and Anthropic, for tests with the official clients.

    with LoopbackProvider(ScriptedModel("Hello.")) as provider:
        client = openai.OpenAI(base_url=provider.base_url, api_key="any")
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        provider.requests[0].messages

The server plays a script and is as strict as the providers: it rejects invalid requests with status 400, counts tokens,
enforces a context window, reports prompt-cache hits, limits request rates and closes connections when the script says so.

This module has the HTTP server; `answers` checks requests and builds replies.
"""

import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self

from minutebook.errors import InvalidSetting
from minutebook.testing.provider.answers import ModelFor, Reply, RequestHandler
from minutebook.testing.provider.anthropic import ThinkingHistory
from minutebook.testing.provider.rate_limit import RateLimit, RateLimiter
from minutebook.testing.provider.usage import CacheRules, PromptMeter
from minutebook.testing.script import ReceivedRequest, ScriptedModel
from minutebook.tokens import TokenCounter, counter_for

POLL_SECONDS = 0.02
"""Poll interval of the accepting thread; `close` waits at most this long for it."""

CLOSE_SECONDS = 5.0
"""Maximum time that `close` waits for the thread of each connection, which may be calling `wait`."""


class Connection(BaseHTTPRequestHandler):
    """One client connection, with any number of requests."""

    protocol_version = "HTTP/1.1"
    server_version = "minutebook-loopback"
    disable_nagle_algorithm = True
    server: "LoopbackServer"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class calls them by these names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Print nothing; `LoopbackProvider.requests` has the requests."""

    def _serve(self) -> None:
        try:
            raw = self._body()
        except ValueError:
            # Without a length, the start of the next request is unknown.
            self.close_connection = True
            self.send_error(400)
            return
        self._send(self.server.request_handler.reply(self.command, self.path, dict(self.headers.items()), raw))

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(self.headers.get("content-length", "0"))
            if length < 0:
                raise ValueError(length)
            return self.rfile.read(length)
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers are ignored
        return b"".join(chunks)

    def _send(self, reply: Reply) -> None:
        self.server.wait(reply.before_seconds)
        if reply.cut_after == 0:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.streamed:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(sum(map(len, reply.chunks))))
        self.end_headers()
        if reply.streamed:
            self._stream(reply)
        elif reply.cut_after is not None:
            self.close_connection = True
            self.wfile.write(reply.chunks[0][: len(reply.chunks[0]) // 2])
        else:
            self.wfile.write(b"".join(reply.chunks))

    def _stream(self, reply: Reply) -> None:
        for index, chunk in enumerate(reply.chunks):
            if index == reply.cut_after:
                break
            if index:
                self.server.wait(reply.between_seconds)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if reply.cut_after is None:
            self.wfile.write(b"0\r\n\r\n")
        else:
            # Without the final chunk, the client can tell that the stream was cut.
            self.close_connection = True


class LoopbackServer(ThreadingMixIn, TCPServer):
    """Accepts connections on a free loopback port, each in a separate thread."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, request_handler: RequestHandler, wait: Callable[[float], None]) -> None:
        self.request_handler = request_handler
        self._wait = wait
        self._lock = Lock()
        self._connections: dict[Any, Thread] = {}
        super().__init__(("127.0.0.1", 0), Connection)
        self._accept_thread = Thread(target=self.serve_forever, args=(POLL_SECONDS,), name="loopback", daemon=True)
        self._accept_thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def wait(self, seconds: float) -> None:
        if seconds:
            self._wait(seconds)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._connections[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, unless the client disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop accepting, close all connections and wait for their threads."""
        self.shutdown()
        self._accept_thread.join()
        self.server_close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections.values():
            thread.join(CLOSE_SECONDS)


def no_wait(seconds: float) -> None:
    """The default `wait`. It returns immediately, so that tests whose scripts use `slow` are fast."""


class LoopbackProvider:
    """Serves a scripted model over HTTP until it is closed.

    A `ScriptedModel` answers all conversations, in the order in which requests arrive. A function from a request to a
    model gives each conversation its own script; it must return the same object for the same conversation, and may raise
    `LookupError` for an unknown model. `models` are the names that `GET /v1/models` lists. `remember` is the maximum number of
    requests in `requests`. With `preserved_thinking`, a thinking block is rejected if the prompt before it has changed.

    Raises:
        InvalidSetting: an option is invalid.
    """

    def __init__(
        self,
        model: ScriptedModel | ModelFor,
        *,
        max_context_tokens: int | None = None,
        strict: bool = True,
        counter: TokenCounter | None = None,
        rate_limit: RateLimit | int | None = None,
        api_key: str | None = None,
        cache: CacheRules | None = None,
        preserved_thinking: bool = False,
        models: tuple[str, ...] = ("scripted",),
        remember: int | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = no_wait,
    ) -> None:
        if max_context_tokens is not None and max_context_tokens < 1:
            raise InvalidSetting("max_context_tokens", max_context_tokens, "a number above 0, or None for no limit")
        if not isinstance(model, ScriptedModel) and not callable(model):
            raise InvalidSetting("model", model, "a ScriptedModel, or a function from a request to one")
        limit = RateLimit(rate_limit) if isinstance(rate_limit, int) else rate_limit
        self._handler = RequestHandler(
            (lambda _: model) if isinstance(model, ScriptedModel) else model,
            meter=PromptMeter(counter or counter_for("gpt-4o"), cache or CacheRules()),
            rate_limiter=RateLimiter(limit, clock),
            thinking=ThinkingHistory(preserved_thinking=preserved_thinking),
            clock=clock,
            strict=strict,
            max_context_tokens=max_context_tokens,
            api_key=api_key,
            model_names=models,
            max_received=remember,
        )
        self._lock = Lock()
        self._closed = False
        self._server = LoopbackServer(self._handler, wait)
        self.anthropic_url = f"http://127.0.0.1:{self._server.port}"
        """The `base_url` of Anthropic's client, which adds `/v1` itself."""
        self.base_url = f"{self.anthropic_url}/v1"
        """The `base_url` of OpenAI's client."""

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The POST requests in the order of arrival, at most the last `remember`, each with its outcome."""
        return self._handler.received

    @property
    def problems(self) -> list[str]:
        """Why requests were rejected or could not be answered. Most tests expect an empty list."""
        return [request.problem for request in self.requests if request.problem is not None]

    def close(self) -> None:
        """Close all connections and free the port. Calling it again has no effect."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {len(self.requests)} requests)"
