"""A provider that takes no time: it answers chat completions as fast as a Python server can.

    uvicorn bench.service_provider:app

A request for a model whose name ends with `idle` gets one token, and then nothing until the client disconnects.
"""

import asyncio
import json
from typing import Any

WORDS = 20


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]}
    return b"data: " + json.dumps(head).encode() + b"\n\n"


FIRST = _chunk({"role": "assistant", "content": ""})
PIECES = [_chunk({"content": f"word{number} "}) for number in range(WORDS)]
LAST = _chunk({}, "stop")
USAGE = {"prompt_tokens": 10, "completion_tokens": WORDS, "total_tokens": 10 + WORDS}
WHOLE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(f"word{number} " for number in range(WORDS))},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
).encode()


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request = json.loads(body) if body else {}
    kind = b"text/event-stream" if request.get("stream") else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if not request.get("stream"):
        await send({"type": "http.response.body", "body": WHOLE})
        return
    await send({"type": "http.response.body", "body": FIRST, "more_body": True})
    await send({"type": "http.response.body", "body": PIECES[0], "more_body": True})
    if request["model"].endswith("idle"):
        await asyncio.sleep(3_600)
    for piece in (*PIECES[1:], LAST):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
