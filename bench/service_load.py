"""A client that costs next to nothing: HTTP by hand over a socket, so that it is the server that is measured."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass
class Heard:
    """What the clients of one run saw."""

    seconds: float = 0.0
    answers: int = 0
    first: list[float] = field(default_factory=list)
    """From the request to the first words of each answer."""

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
) -> Heard:
    """Ask from so many clients at once, each as soon as it has its answer. `named` gives each request a conversation."""
    return asyncio.run(_load(port, clients, seconds, stream, model, key, dict(headers or {}), named))


async def _load(
    port: int, clients: int, seconds: float, stream: bool, model: str, key: str, headers: dict[str, str], named: bool
) -> Heard:
    heard = Heard()
    began = time.perf_counter()
    tasks = [
        _client(port, number, began + seconds, stream, model, key, headers, named, heard) for number in range(clients)
    ]
    await asyncio.gather(*tasks)
    heard.seconds = time.perf_counter() - began
    return heard


async def _client(
    port: int,
    number: int,
    until: float,
    stream: bool,
    model: str,
    key: str,
    headers: dict[str, str],
    named: bool,
    heard: Heard,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = 0
    try:
        while time.perf_counter() < until:
            turn += 1
            own = {**headers, "x-conversation-id": f"bench-{number}-{turn}-{time.time_ns()}"} if named else headers
            asked = time.perf_counter()
            writer.write(request(port, stream=stream, model=model, key=key, headers=own))
            await writer.drain()
            first = await answered(reader)
            heard.first.append(first - asked)
            heard.answers += 1
    finally:
        writer.close()


def request(port: int, *, stream: bool, model: str, key: str, headers: Mapping[str, str]) -> bytes:
    """A request for a completion, as bytes."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Say twenty words, please, about anything that you like."},
    ]
    body = json.dumps({"model": model, "messages": messages, "stream": stream}).encode()
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def answered(reader: asyncio.StreamReader) -> float:
    """Read one answer to its end; when its first words came."""
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


async def hold(port: int, streams: int, *, key: str, named: bool, model: str = "idle") -> list[asyncio.StreamWriter]:
    """Open so many streams that have begun and say nothing more; whoever asked for them closes them."""
    writers = []
    for number in range(streams):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        headers = {"x-conversation-id": f"idle-{number}-{time.time_ns()}"} if named else {}
        writer.write(request(port, stream=True, model=model, key=key, headers=headers))
        await reader.readuntil(b"word0")
        writers.append(writer)
    return writers
