"""What goes out: JSON that any text survives, server-sent events, pages of lists, new ids, and versions as ETags."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from fastapi import Depends, Query
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from minutebook.errors import RequestRefused, VersionConflict
from minutebook.store.types import Conversation, Page
from minutebook.wire.chat import dumped

T = TypeVar("T")
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


_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str) -> str:
    """A new name, such as `conv_0mi2x…`."""
    return f"{prefix}_{_base36(time.time_ns() // 1_000)}{_base36(secrets.randbits(80)):0>16}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _ALPHABET[rest] + digits
    return digits


Order = Annotated[Literal["asc", "desc"], Query()]
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(min_length=1, max_length=1_000)]


async def nothing_to_include(
    _include: Annotated[list[Literal["reasoning.encrypted_content"]] | None, Query(alias="include")] = None,
) -> None:
    """A provider of chat completions has nothing encrypted, so whoever asks for it gets what there is: none."""


async def nothing_to_hide(
    _obfuscation: Annotated[Literal["false"] | None, Query(alias="include_obfuscation")] = None,
) -> None:
    """Events are not padded; only `false` can be promised."""


INCLUDE: Any = Depends(nothing_to_include)
PLAIN: Any = Depends(nothing_to_hide)


def unknown_cursor() -> RequestRefused:
    """There is nothing that a page could begin after."""
    return RequestRefused(404, "There is nothing of that id to go on after.", "cursor_not_found", "after")


async def each_item(read: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Every item of what a store returns page by page; `read` takes a page's cursor."""
    cursor: str | None = None
    while True:
        found = await read(cursor)
        for item in found.items:
            yield item
        cursor = found.cursor
        if cursor is None:
            return


def page(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def paged(items: Sequence[Mapping[str, Any]], *, limit: int, order: str, after: str | None) -> dict[str, Any]:
    """A page of a list that is at hand.

    Raises:
        RequestRefused: it has nothing of the id to go on after.
    """
    items = list(items) if order == "asc" else list(reversed(items))
    start = 0
    if after is not None:
        start = next((place for place, item in enumerate(items, 1) if item["id"] == after), -1)
        if start < 0:
            raise unknown_cursor()
    return page(items[start : start + limit], has_more=start + limit < len(items))


_TAG: Final = re.compile(r'(?:W/)?"(?P<version>\d{1,18})"')


def tag_of(conversation: Conversation) -> dict[str, str]:
    """The header that says at which version a conversation is."""
    return {"etag": f'"{conversation.version}"'}


def expected_of(if_match: str | None, expected: int | None = None) -> int | None:
    """The version that a client expects; None if any will do.

    Raises:
        RequestRefused: it is none, or two different ones.
    """
    if if_match is None or if_match.strip() == "*":
        return expected
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise RequestRefused(400, 'If-Match must be one ETag as it came: "7".', "invalid_etag", "If-Match")
    version = int(found["version"])
    if expected is not None and expected != version:
        raise RequestRefused(400, "If-Match and expected_version differ.", "invalid_etag", "If-Match")
    return version


def require_version(conversation: Conversation, expected: int | None) -> None:
    """Raises `VersionConflict` unless the conversation is where the client thinks it is."""
    if expected is not None and expected != conversation.version:
        raise VersionConflict(conversation.id, conversation.version, expected)
