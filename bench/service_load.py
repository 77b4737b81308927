"""A minimal HTTP client on a socket, so that the measurement is dominated by the server."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

CHAT_PATH = "/v1/chat/completions"


@dataclass
class LoadResult:
    """The measurements of all clients of one run."""

    seconds: float = 0.0
    answers: int = 0
    first: list[float] = field(default_factory=list)
    """Time from the request to the first token, for each answer."""

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds

    @property
    def first_token(self) -> float:
        return median(self.first)


def load(
    port: int,
    *,
    clients: int,
    seconds: float,
    stream: bool,
    model: str = "bench",
    key: str = "none",
    headers: Mapping[str, str] | None = None,
    named: bool = False,
    body: bytes | None = None,
) -> LoadResult:
    """Send requests from concurrent clients, each as soon as it has its answer. `named` gives each request a conversation.

    `body` is the body of every request; by default a chat of two messages.
    """
    body = body or small_body(stream=stream, model=model)
    return asyncio.run(_load(port, clients, seconds, body, key, dict(headers or {}), named))


async def _load(
    port: int, clients: int, seconds: float, body: bytes, key: str, headers: dict[str, str], named: bool
) -> LoadResult:
    result = LoadResult()
    started = time.perf_counter()
    tasks = [_client(port, number, started + seconds, body, key, headers, named, result) for number in range(clients)]
    await asyncio.gather(*tasks)
    result.seconds = time.perf_counter() - started
    return result


async def _client(
    port: int,
    number: int,
    until: float,
    body: bytes,
    key: str,
    headers: dict[str, str],
    named: bool,
    result: LoadResult,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = 0
    try:
        while time.perf_counter() < until:
            turn += 1
            request_headers = (
                {**headers, "x-conversation-id": f"bench-{number}-{turn}-{time.time_ns()}"} if named else headers
            )
            sent = time.perf_counter()
            writer.write(post(port, CHAT_PATH, body, key=key, headers=request_headers))
            await writer.drain()
            first = await read_answer(reader)
            result.first.append(first - sent)
            result.answers += 1
    finally:
        writer.close()


def small_body(*, stream: bool, model: str) -> bytes:
    """The body of a request for a completion of two messages."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Say twenty words, please, about anything that you like."},
    ]
    return json.dumps({"model": model, "messages": messages, "stream": stream}).encode()


def post(port: int, path: str, body: bytes, *, key: str, headers: Mapping[str, str]) -> bytes:
    """A POST request, as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def read_answer(reader: asyncio.StreamReader) -> float:
    """Read a whole answer; return when its first token arrived."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    lowered = head.lower()
    first = 0.0
    if b"\r\ntransfer-encoding: chunked" in lowered:
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            piece = await reader.readexactly(size + 2)
            if not first and b'"content":"word' in piece.replace(b": ", b":"):
                first = time.perf_counter()
            if not size:
                break
    else:
        length = int(lowered.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        piece = await reader.readexactly(length)
        first = time.perf_counter()
    if status != 200:
        raise RuntimeError(f"{status}: {piece[:300]!r}")
    return first or time.perf_counter()


async def open_idle_streams(
    port: int, streams: int, *, key: str, named: bool, headers: Mapping[str, str], model: str = "idle"
) -> list[asyncio.StreamWriter]:
    """Open streams that send one token and then nothing. The caller closes them."""
    writers = []
    for number in range(streams):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        conversation = {"x-conversation-id": f"idle-{number}-{time.time_ns()}"} if named else {}
        body = small_body(stream=True, model=model)
        writer.write(post(port, CHAT_PATH, body, key=key, headers={**headers, **conversation}))
        await reader.readuntil(b"word0")
        writers.append(writer)
    return writers
