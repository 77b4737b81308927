"""The record as users see it: who said what, and which tools an answer took (document 002)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.conversation.trimming import TRIMMED, ToolUsed, sanitised, tools_used
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_system, is_user, role_of, text_of, thawed
from minutebook.service.threads.events import GAP
from minutebook.store.base import ConversationStore
from minutebook.store.types import Conversation
from minutebook.wire.chat import entry_to_provider_message

_PAGE: Final = 200
"""Entries that are read at a time."""
_TRIMMED: Final = frozenset(TRIMMED.format(status=status) for status in ("ok", "error"))


@dataclass(frozen=True, slots=True)
class Row:
    """What a user said, or all of what was answered."""

    start: int
    """Where it begins in the record."""
    stop: int
    entries: tuple[ConversationEntry, ...]

    def to_json(self, thread: str, *, expose_tool_details: bool) -> dict[str, Any]:
        """The row as clients get it."""
        messages = [entry_to_provider_message(entry) for entry in self.entries]
        asked = is_user(messages[0])
        row: dict[str, Any] = {
            "id": f"msg_{self.start}",
            "object": "thread.message",
            "thread_id": thread,
            "role": "user" if asked else "assistant",
            "text": text_of(messages[0]) if asked else said_in(messages),
            "tools_used": None if asked else tools_shown(messages, expose_tool_details=expose_tool_details),
            "created_at": int(self.entries[-1].created_at.timestamp()),
        }
        content = messages[0].get("content")
        return row | {"content": thawed(content)} if asked and not isinstance(content, str) else row


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, and where the next ones begin."""

    rows: list[Row]
    next: int | None


def said_in(messages: Sequence[Message]) -> str:
    """What the model said in an answer, before and after its tools."""
    spoken = (text_of(each) or str(each.get("refusal") or "") for each in messages if role_of(each) == "assistant")
    return GAP.join(text for text in spoken if text)


def tools_shown(messages: Sequence[Message], *, expose_tool_details: bool) -> list[dict[str, Any]] | None:
    """The tools of an answer as clients are told of them; None where the record has no more than their names."""
    used = tools_used(messages)
    if used and all(map(_is_emptied, used)):
        return None
    return [_shown(each, expose_tool_details=expose_tool_details) for each in used]


def _shown(used: ToolUsed, *, expose_tool_details: bool) -> dict[str, Any]:
    exposed = expose_tool_details and used["result"] not in _TRIMMED
    return sanitised([used], expose_tool_details=exposed)[0]


def _is_emptied(used: Mapping[str, Any]) -> bool:
    """Whether retention left a call its name alone."""
    return used["result"] == "" and used["arguments"] in {"", "{}"}


async def rows_of(store: ConversationStore, thread: str, *, start: int, limit: int) -> tuple[Conversation, Rows]:
    """The rows from a position on, oldest first; it costs what it returns.

    Raises:
        ConversationNotFound: there is no such thread.
    """
    entries: list[ConversationEntry] = []
    place: int | None = None
    while True:
        since = start if place is None else place + len(entries)
        loaded = await store.load(thread, since=since, limit=_PAGE)
        place = loaded.start if place is None else place
        entries += loaded.entries
        ended = not loaded.entries or place + len(entries) >= loaded.conversation.length
        rows = list(_grouped(entries, place))
        if ended:
            more = rows[limit].start if len(rows) > limit else None
            return loaded.conversation, Rows(rows[:limit], more)
        if len(rows) > limit:
            return loaded.conversation, Rows(rows[:limit], rows[limit].start)


def _grouped(entries: Sequence[ConversationEntry], start: int) -> Iterator[Row]:
    """What each side said, whole: an answer goes on until the user speaks again. System messages are for the model."""
    begun: int | None = None
    for at, entry in enumerate(entries):
        message = entry_to_provider_message(entry)
        if not is_user(message) and not is_system(message):
            begun = at if begun is None else begun
            continue
        if begun is not None:
            yield Row(start + begun, start + at, tuple(entries[begun:at]))
            begun = None
        if is_user(message):
            yield Row(start + at, start + at + 1, (entry,))
    if begun is not None:
        yield Row(start + begun, start + len(entries), tuple(entries[begun:]))
