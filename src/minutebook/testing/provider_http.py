"""The HTTP side of the loopback provider: real sockets, kept alive, streamed into, and cut when the script says so."""

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import Any

from minutebook.testing.provider_desk import Desk
from minutebook.testing.provider_reply import Reply

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
