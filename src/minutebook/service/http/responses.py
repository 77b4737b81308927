"""Bytes on their way out: JSON that any text survives, and server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from minutebook.wire.chat import dumped

PING: Final = b": ping\n\n"
"""A comment: every client of server-sent events skips it, and proxies see that the line is alive."""
DONE: Final = b"data: [DONE]\n\n"
_QUIET: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


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


class EventStream(Response):
    """An answer of server-sent events.

    The first goes out together with the headers. Only then somebody watches whether the client is still there: the
    tasks that takes would have the first words wait for them.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = 200, None
        self._events = events
        self._gone = False
        self.init_headers({**_QUIET, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - it is ASGI's
        task, watch = asyncio.current_task(), None
        assert task is not None
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(cast("AsyncGenerator[bytes, None]", self._events)) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                    if watch is None:
                        watch = asyncio.create_task(self._watch(receive, task))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._gone or task.uncancel():
                raise  # somebody else broke it off
        finally:
            if watch is not None:
                watch.cancel()

    async def _watch(self, receive: Receive, sender: "asyncio.Task[Any]") -> None:
        """Break off when the client is gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        sender.cancel()
