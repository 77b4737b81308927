"""A real server on this machine that speaks as OpenAI and Anthropic do, for tests with the official clients.

    with LoopbackProvider(ScriptedModel("Hello.")) as provider:
        client = openai.OpenAI(base_url=provider.base_url, api_key="any")
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        provider.requests[0].messages

It plays a script, and is as strict as the providers: it answers 400 to what they answer 400 to, counts tokens, enforces a
context window, knows which beginning of a prompt it has seen before, limits rates and cuts connections.

The HTTP side of the loopback provider: real sockets, kept alive, streamed into, and cut when the script says so.
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
from minutebook.testing.provider.answers import Desk, ModelFor, Reply
from minutebook.testing.provider.anthropic import Thoughts
from minutebook.testing.provider.rate_limit import RateLimit, Turnstile
from minutebook.testing.provider.usage import CacheRules, Meter
from minutebook.testing.script import ReceivedRequest, ScriptedModel
from minutebook.tokens import TokenCounter, counter_for

POLL_SECONDS = 0.02
"""How long closing may have to wait for the thread that accepts connections."""

GOODBYE_SECONDS = 5.0
"""How long closing waits for a connection whose script is still in its `wait`."""


class Connection(BaseHTTPRequestHandler):
    """One client's connection, with as many requests as it likes to send."""

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
        """Nothing is printed; `LoopbackProvider.requests` has it all."""

    def _serve(self) -> None:
        try:
            raw = self._body()
        except ValueError:
            # Without a length we cannot tell where the next request begins.
            self.close_connection = True
            self.send_error(400)
            return
        self._send(self.server.desk.reply(self.command, self.path, dict(self.headers.items()), raw))

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
            pass  # trailers, which say nothing we want to know
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
        for number, chunk in enumerate(reply.chunks):
            if number == reply.cut_after:
                break
            if number:
                self.server.wait(reply.between_seconds)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if reply.cut_after is None:
            self.wfile.write(b"0\r\n\r\n")
        else:
            # The closing chunk is missing, so the client can tell a cut from an end.
            self.close_connection = True


class LoopbackServer(ThreadingMixIn, TCPServer):
    """Accepts connections on a free port of this machine, each in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, desk: Desk, wait: Callable[[float], None]) -> None:
        self.desk = desk
        self._wait = wait
        self._lock = Lock()
        self._open: dict[Any, Thread] = {}
        super().__init__(("127.0.0.1", 0), Connection)
        self._accepting = Thread(target=self.serve_forever, args=(POLL_SECONDS,), name="loopback", daemon=True)
        self._accepting.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def wait(self, seconds: float) -> None:
        if seconds:
            self._wait(seconds)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; anything else is a bug and is printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop accepting, hang up on everybody, and wait until the threads are gone."""
        self.shutdown()
        self._accepting.join()
        self.server_close()
        with self._lock:
            connections = dict(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections.values():
            thread.join(GOODBYE_SECONDS)


def nobody_waits(seconds: float) -> None:
    """What `slow` steps do unless the provider is given a `wait`."""


class LoopbackProvider:
    """Serves a scripted model over HTTP from the moment it is made until it is closed.

    One script is played to all conversations in the order in which their requests arrive; a function of the request
    gives each conversation its own, and must return the same script for the same conversation. A `LookupError` from it
    is a model that does not exist. One that runs for long should `remember` only so many requests.

    Raises:
        InvalidSetting: an option cannot be meant.
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
        wait: Callable[[float], None] = nobody_waits,
    ) -> None:
        if max_context_tokens is not None and max_context_tokens < 1:
            raise InvalidSetting("max_context_tokens", max_context_tokens, "a number above 0, or None for no limit")
        if not isinstance(model, ScriptedModel) and not callable(model):
            raise InvalidSetting("model", model, "a ScriptedModel, or a function from a request to one")
        limit = RateLimit(rate_limit) if isinstance(rate_limit, int) else rate_limit
        self._desk = Desk(
            (lambda _: model) if isinstance(model, ScriptedModel) else model,
            meter=Meter(counter or counter_for("gpt-4o"), cache or CacheRules()),
            turnstile=Turnstile(limit, clock),
            thoughts=Thoughts(bound_to_prompt=preserved_thinking),
            clock=clock,
            strict=strict,
            max_context_tokens=max_context_tokens,
            api_key=api_key,
            models=models,
            remember=remember,
        )
        self._lock = Lock()
        self._closed = False
        self._server = LoopbackServer(self._desk, wait)
        self.anthropic_url = f"http://127.0.0.1:{self._server.port}"
        """The `base_url` of Anthropic's client, which adds `/v1` itself."""
        self.base_url = f"{self.anthropic_url}/v1"
        """The `base_url` of OpenAI's client."""

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request that had a body, in the order of arrival, with what became of it; the last `remember` of them."""
        return self._desk.received

    @property
    def problems(self) -> list[str]:
        """Why requests were refused or could not be answered; an empty list is what most tests want to see."""
        return [request.problem for request in self.requests if request.problem is not None]

    def close(self) -> None:
        """Hang up on all clients and free the port. Closing twice is closing once."""
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
