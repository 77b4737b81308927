"""JSON responses, server-sent events, pagination, new ids and ETags."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal, TypeVar, cast
from urllib.parse import quote

from fastapi import Depends, Query
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from minutebook.errors import RequestRefused, VersionConflict
from minutebook.service.http.json_codec import json_bytes
from minutebook.store.types import ConversationHeader, Page

T = TypeVar("T")
PING: Final = b": ping\n\n"
"""A comment that clients of server-sent events ignore. It keeps proxies from closing an idle connection."""
DONE: Final = b"data: [DONE]\n\n"
_HEADER_CHARACTERS: Final = "".join(map(chr, range(0x20, 0x7F)))
_STREAM_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class _UnicodeHeaders(Response):
    """A response whose header values may be any text. Text outside of ASCII is percent-encoded."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers({name: _header_value(value) for name, value in (headers or {}).items()})


def _header_value(text: str) -> str:
    return text if text.isascii() else quote(text.encode("utf-8", "replace"), safe=_HEADER_CHARACTERS)


class JsonResponse(_UnicodeHeaders):
    """A JSON response. Unlike Starlette's, it can encode any text, including lone surrogates."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def sse(data: Any, *, event: str | None = None, event_id: int | str | None = None) -> bytes:
    """One server-sent event. `data` is encoded as JSON unless it is bytes."""
    head = b"" if event is None else b"event: %s\n" % event.encode()
    if event_id is not None:
        head = b"id: %s\n" % str(event_id).encode() + head
    return head + b"data: %s\n\n" % (data if isinstance(data, bytes) else json_bytes(data))


class EventStream(_UnicodeHeaders):
    """A response of server-sent events. It stops when the client disconnects.

    Disconnects are detected only after the first event: starting that task earlier would delay the first event.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], *, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = 200, None
        self._events = events
        self._disconnected = False
        self.init_headers({**_STREAM_HEADERS, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        sender, watcher = asyncio.current_task(), None
        assert sender is not None
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(cast("AsyncGenerator[bytes, None]", self._events)) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                    if watcher is None:
                        watcher = asyncio.create_task(self._cancel_on_disconnect(receive, sender))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._disconnected or sender.uncancel():
                raise  # cancelled by something other than the disconnect
        finally:
            if watcher is not None:
                watcher.cancel()

    async def _cancel_on_disconnect(self, receive: Receive, sender: "asyncio.Task[Any]") -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._disconnected = True
        sender.cancel()


_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str) -> str:
    """A new id, such as `conv_0mi2x…`. Later ids sort after earlier ones."""
    return f"{prefix}_{_base36(time.time_ns() // 1_000)}{_base36(secrets.randbits(80)):0>16}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return digits


Order = Annotated[Literal["asc", "desc"], Query()]
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(min_length=1, max_length=1_000)]


async def accept_include(
    _include: Annotated[list[Literal["reasoning.encrypted_content"]] | None, Query(alias="include")] = None,
) -> None:
    """Accept OpenAI's `include` and ignore it: chat-completions providers return no encrypted content."""


async def accept_include_obfuscation(
    _obfuscation: Annotated[Literal["false"] | None, Query(alias="include_obfuscation")] = None,
) -> None:
    """Accept OpenAI's `include_obfuscation=false` only: events are not padded."""


INCLUDE_PARAMETER: Any = Depends(accept_include)
OBFUSCATION_PARAMETER: Any = Depends(accept_include_obfuscation)


def unknown_cursor() -> RequestRefused:
    return RequestRefused(
        404, "Invalid cursor: there is no item with the id given in `after`.", "cursor_not_found", "after"
    )


async def iterate_pages(read_page: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Every item of a paginated list of a store; `read_page` takes a cursor, None for the first page."""
    cursor: str | None = None
    while True:
        store_page = await read_page(cursor)
        for item in store_page.items:
            yield item
        cursor = store_page.cursor
        if cursor is None:
            return


def page(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page in OpenAI's list format."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def page_after(items: Sequence[Mapping[str, Any]], *, limit: int, order: str, after: str | None) -> dict[str, Any]:
    """The page after the item with the id `after`, from a complete list in ascending order.

    Raises:
        RequestRefused: no item has that id.
    """
    items = list(items) if order == "asc" else list(reversed(items))
    start = 0
    if after is not None:
        start = next((index for index, item in enumerate(items, 1) if item["id"] == after), -1)
        if start < 0:
            raise unknown_cursor()
    return page(items[start : start + limit], has_more=start + limit < len(items))


_ETAG: Final = re.compile(r'(?:W/)?"(?P<version>\d{1,18})"')


def etag_header(conversation: ConversationHeader) -> dict[str, str]:
    """The ETag header with the version of the conversation."""
    return {"etag": f'"{conversation.version}"'}


def expected_version_of(if_match: str | None, expected: int | None = None) -> int | None:
    """The version that the client expects, from If-Match or the body; None for any version.

    Raises:
        RequestRefused: If-Match is invalid or differs from `expected`.
    """
    if if_match is None or if_match.strip() == "*":
        return expected
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise RequestRefused(
            400, 'If-Match must be one ETag exactly as the server sent it, such as "7".', "invalid_etag", "If-Match"
        )
    version = int(match["version"])
    if expected is not None and expected != version:
        raise RequestRefused(400, "If-Match and expected_version differ.", "invalid_etag", "If-Match")
    return version


def require_version(conversation: ConversationHeader, expected: int | None) -> None:
    """Raise `VersionConflict` if the conversation is at another version than the client expects."""
    if expected is not None and expected != conversation.version:
        raise VersionConflict(conversation.id, conversation.version, expected)
