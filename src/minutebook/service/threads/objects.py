"""The record of a thread as users see it: who said what, which tools an answer took, and what became of an answer.

An answer is told again while it is being made here, when another server has made it, and when only the record has it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.conversation.trimming import TRIMMED, ToolUsed, sanitised, tools_used
from minutebook.errors import DocumentNotFound
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_system, is_user, role_of, text_of, thawed
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.errors import Failure
from minutebook.service.idempotency import RUN, find_run, wait_for_end
from minutebook.service.state import Service
from minutebook.service.threads.events import GAP, Place, Telling, ThreadRun
from minutebook.store.base import ConversationStore
from minutebook.store.types import Conversation, Document
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


SURFACE: Final = "threads"
LOST: Final = {
    "status": 409,
    "message": "The server that made this answer is gone. Post the message again, with the same key.",
    "code": "run_lost",
}


def exposes(service: Service) -> bool:
    """Whether clients are told what tools were asked and answered."""
    return service.config.conversation.effective_retention.expose_tool_details


async def retell(
    service: Service, store: ConversationStore, known: Document, telling: Telling, *, heard: int = 0
) -> None:
    """Tell an answer that is in the record, from a character on."""
    body = known.body
    loaded = await store.load(body["conversation"], since=body["answer"], limit=body["stop"] - body["answer"])
    telling.whole(said_in(loaded.messages), heard)
    telling.done(result_of(known.id, body, loaded.messages, expose=exposes(service)))


def result_of(run_id: str, body: Mapping[str, Any], messages: Sequence[Message], *, expose: bool) -> dict[str, Any]:
    """What `done` says, and the whole answer where it was not to be streamed."""
    recorded = "answer" in body
    return {
        "id": run_id,
        "object": "thread.answer",
        "thread_id": body["conversation"],
        "message_id": f"msg_{body['answer']}" if recorded else None,
        "text": said_in(messages),
        "tools": tools_shown(messages, expose_tool_details=True) if expose else [dict(used) for used in body["tools"]],
        "model": body["model"],
        "finish": body["finish"],
        "usage": _plain(body["usage"]),
        "version": body.get("version"),
        "history": "recorded" if recorded else "unrecorded",
    }


def _plain(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in usage.items()}


def at_hand(service: Service, caller: Caller, thread: str, run_id: str) -> ThreadRun | None:
    """The answer of that id, if it was begun by this server not long ago."""
    run = service.runs.get(run_id, caller.tenant)
    return run if isinstance(run, ThreadRun) and run.conversation == thread else None


async def resumed(service: Service, caller: Caller, thread: str, place: Place) -> tuple[ThreadRun, int]:
    """An answer to listen to again, and the number of events that were heard.

    Raises:
        DocumentNotFound: there is no such answer in this thread.
    """
    run = at_hand(service, caller, thread, place.run)
    if run is not None:
        return run, min(place.number, len(run.events))
    store = service.store_of(caller)
    known = await find_run(store, place.run, SURFACE)
    if known.conversation != thread:
        raise DocumentNotFound(RUN, place.run)
    return from_record(service, caller, known, heard=place.characters), 0


def from_record(service: Service, caller: Caller, known: Document, *, heard: int = 0) -> ThreadRun:
    """An answer told from the record, as soon as it is there."""
    run = ThreadRun(known.id, caller.tenant, known.conversation)
    run.headers["x-history"] = "recorded"
    run.task = asyncio.create_task(_tell(service, service.store_of(caller), known, run, heard))
    return run


async def _tell(service: Service, store: ConversationStore, known: Document, run: ThreadRun, heard: int) -> None:
    telling = Telling(run, expose_tool_details=exposes(service))
    try:
        known = await wait_for_end(service, store, known, {"error": LOST})
        if "answer" in known.body:
            await retell(service, store, known, telling, heard=heard)
        else:
            error = known.body["error"]
            telling.fail(Failure(error["status"], error["message"], error["code"]))
    except Exception as error:  # noqa: BLE001 - whoever listens is told, and decides
        run.end(error)
    else:
        run.end()
