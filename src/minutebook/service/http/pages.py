"""Pages of lists, in the form in which OpenAI's clients turn them.

Names for new things: they sort by the time at which they were made, and nobody can guess one.

Versions of conversations, as HTTP says them: `ETag` and `If-Match`.
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query

from minutebook.errors import RequestRefused, VersionConflict
from minutebook.store.types import Conversation

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
