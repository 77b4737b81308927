"""Versions of conversations, as HTTP says them: `ETag` and `If-Match`."""

import re
from typing import Final

from minutebook.errors import RequestRefused, VersionConflict
from minutebook.store.types import Conversation

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
