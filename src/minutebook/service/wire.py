"""Bytes on their way out: JSON that any text survives, and server-sent events with a heartbeat."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, cast

from starlette.responses import Response, StreamingResponse

PING: Final = b": ping\n\n"
"""A comment: every client of server-sent events skips it, and proxies see that the line is alive."""
DONE: Final = b"data: [DONE]\n\n"
_QUIET: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def dumped(value: Any) -> bytes:
    """A value as JSON; half a surrogate pair, which UTF-8 cannot say, as an escape."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


class Json(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content)


def sse(data: Any, *, event: str | None = None, number: int | str | None = None) -> bytes:
    """One server-sent event."""
    head = b"" if event is None else b"event: %s\n" % event.encode()
    if number is not None:
        head = b"id: %s\n" % str(number).encode() + head
    return head + b"data: %s\n\n" % (data if isinstance(data, bytes) else dumped(data))


def streamed(
    events: AsyncIterator[bytes], *, heartbeat_seconds: float, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """An answer of server-sent events, with a heartbeat."""
    return event_stream(kept_alive(events, heartbeat_seconds), headers=headers)


def event_stream(events: AsyncIterator[bytes], *, headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """An answer of server-sent events, as they are."""
    return StreamingResponse(events, media_type="text/event-stream", headers={**_QUIET, **(headers or {})})


async def kept_alive(events: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """The same events, with a comment wherever none comes for so long."""
    queue: asyncio.Queue[bytes | BaseException] = asyncio.Queue(maxsize=1_000)
    pump = asyncio.create_task(_pumped(events, queue))
    try:
        while True:
            try:
                async with asyncio.timeout(seconds):
                    event = await queue.get()
            except TimeoutError:
                event = PING
            if isinstance(event, StopAsyncIteration):
                return
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        pump.cancel()
        with suppress(asyncio.CancelledError):
            await pump


async def _pumped(events: AsyncIterator[bytes], queue: "asyncio.Queue[bytes | BaseException]") -> None:
    """Waiting for an event with a time limit would break off whoever makes it, so they are handed over here."""
    try:
        async with aclosing(cast("AsyncGenerator[bytes, None]", events)):
            async for event in events:
                await queue.put(event)
    except Exception as error:  # noqa: BLE001 - it is raised where the events are read
        await queue.put(error)
    else:
        await queue.put(StopAsyncIteration())
