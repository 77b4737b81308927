"""Which conversation a request of chat completions belongs to, as its many clients say it.

Never the `user`, a cache key, or what the first message says: strangers share those, and would share a history.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import RequestRefused

_VENDOR: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")
_PLAIN: Final = re.compile(r"^[A-Za-z0-9_-]{8,}$")
_RESEND: Final = frozenset({"x-openwebui-chat-id"})
"""Clients that send their whole history each time, and other jobs under the same id."""
_METADATA: Final = ("conversation_id", "thread_id", "session_id")
LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """A conversation's id, and what is known about whoever gave it."""

    conversation: str
    resends_all: bool = False


def identity_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    """The conversation that a request names, in the order in which names are believed; None if it names none.

    Raises:
        RequestRefused: a name that is no name.
    """
    given = body.get("conversation")
    if isinstance(given, Mapping):
        given = given.get("id")
    if given is not None:
        return Identity(_name(given, "conversation"))
    for header in ("x-conversation-id", "x-openwebui-chat-id", "x-litellm-session-id"):
        if header in headers:
            return Identity(_name(headers[header], header), header in _RESEND)
    for header, value in headers.items():
        if _VENDOR.match(header) and _PLAIN.match(value):
            return Identity(_name(value, header))
    if "codex" in headers.get("user-agent", "").lower():
        for header in ("thread-id", "session-id"):
            if header in headers:
                return Identity(_name(headers[header], header))
    if "x-session-id" in headers:
        return Identity(_name(headers["x-session-id"], "x-session-id"))
    metadata = body.get("metadata")
    for key in _METADATA if isinstance(metadata, Mapping) else ():
        if metadata is not None and isinstance(metadata.get(key), str):
            return Identity(_name(metadata[key], f"metadata.{key}"))
    return None


def _name(value: object, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        said = f"{where} must be 1 to {LONGEST} printable characters."
        raise RequestRefused(400, said, "invalid_conversation_id", where)
    return value
