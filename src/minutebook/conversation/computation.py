"""Runs long computations in a thread, so that the event loop can serve other requests meanwhile."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from minutebook.wire.chat import json_bytes

T = TypeVar("T")
MAX_INLINE_MESSAGES: Final = 1_000
"""Work on each of more messages is done in a thread."""
_MAX_INLINE_CHARACTERS: Final = 256 * 1024


async def compute(function: Callable[..., T], *arguments: Any, is_large: bool) -> T:
    """The result of a function that only computes. If its input is large, the function runs in a thread.

    A cancellation waits for the thread, because the thread may use what others use next.
    """
    if not is_large:
        return function(*arguments)
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        while not thread.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({thread})
        raise


def are_large(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether work on each of these messages or items would block the event loop."""
    return len(messages) > MAX_INLINE_MESSAGES or sum(map(_size, messages)) > _MAX_INLINE_CHARACTERS


def _size(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    return len(content) if isinstance(content, str) else len(json_bytes(content))
