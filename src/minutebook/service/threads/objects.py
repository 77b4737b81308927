"""JSON objects of threads, and the replay of answers.

An answer can be sent again while this server runs it, or from the record once the server that runs it has finished.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.conversation.trimming import TRIMMED_MARKER, ToolUse, tool_uses, tool_uses_for_clients
from minutebook.errors import DocumentNotFound
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_system, is_user, plain_copy, role_of, text_of
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.errors import Failure
from minutebook.service.idempotency import RUN_KIND, find_run, wait_for_end
from minutebook.service.state import Service
from minutebook.service.threads.events import TEXT_SEPARATOR, StreamPosition, ThreadEvents, ThreadRun
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, Document
from minutebook.wire.chat import entry_to_provider_message

_PAGE_SIZE: Final = 200
"""Entries per read from the store."""
_TRIMMED_RESULTS: Final = frozenset(TRIMMED_MARKER.format(status=status) for status in ("ok", "error"))


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A user message, or a complete answer with its tool calls and results."""

    start: int
    """Position of its first entry in the record."""
    stop: int
    entries: tuple[ConversationEntry, ...]

    def to_json(self, thread: str, *, expose_tool_details: bool) -> dict[str, Any]:
        messages = [entry_to_provider_message(entry) for entry in self.entries]
        from_user = is_user(messages[0])
        fields: dict[str, Any] = {
            "id": f"msg_{self.start}",
            "object": "thread.message",
            "thread_id": thread,
            "role": "user" if from_user else "assistant",
            "text": text_of(messages[0]) if from_user else answer_text(messages),
            "tools_used": None if from_user else tools_for_clients(messages, expose_tool_details=expose_tool_details),
            "created_at": int(self.entries[-1].created_at.timestamp()),
        }
        content = messages[0].get("content")
        return fields | {"content": plain_copy(content)} if from_user and not isinstance(content, str) else fields


@dataclass(frozen=True, slots=True)
class ThreadMessagePage:
    """A page of thread messages."""

    messages: list[ThreadMessage]
    next: int | None
    """Position of the next page; None after the last one."""


def answer_text(messages: Sequence[Message]) -> str:
    """The text of an answer, before and after its tool calls."""
    assistant = [message for message in messages if role_of(message) == "assistant"]
    texts = (text_of(message) or str(message.get("refusal") or "") for message in assistant)
    return TEXT_SEPARATOR.join(text for text in texts if text)


def tools_for_clients(messages: Sequence[Message], *, expose_tool_details: bool) -> list[dict[str, Any]] | None:
    """The tool calls of an answer as clients get them; None if retention has left only their names."""
    uses = tool_uses(messages)
    if uses and all(map(_has_only_name, uses)):
        return None
    return [_tool_for_clients(use, expose_tool_details=expose_tool_details) for use in uses]


def _tool_for_clients(use: ToolUse, *, expose_tool_details: bool) -> dict[str, Any]:
    has_details = expose_tool_details and use["result"] not in _TRIMMED_RESULTS
    return tool_uses_for_clients([use], expose_tool_details=has_details)[0]


def _has_only_name(use: Mapping[str, Any]) -> bool:
    return use["result"] == "" and use["arguments"] in {"", "{}"}


async def read_messages(
    store: ConversationStore, thread: str, *, start: int, limit: int
) -> tuple[ConversationHeader, ThreadMessagePage]:
    """The messages from a position on, oldest first. Reads no more than the page needs.

    Raises:
        ConversationNotFound: there is no such thread.
    """
    entries: list[ConversationEntry] = []
    first_position: int | None = None
    while True:
        since = start if first_position is None else first_position + len(entries)
        loaded = await store.load(thread, since=since, limit=_PAGE_SIZE)
        first_position = loaded.start if first_position is None else first_position
        entries += loaded.entries
        is_end = not loaded.entries or first_position + len(entries) >= loaded.conversation.length
        messages = list(_grouped_by_speaker(entries, first_position))
        if is_end or len(messages) > limit:
            next_start = messages[limit].start if len(messages) > limit else None
            return loaded.conversation, ThreadMessagePage(messages[:limit], next_start)


def _grouped_by_speaker(entries: Sequence[ConversationEntry], start: int) -> Iterator[ThreadMessage]:
    """User messages and complete answers; an answer ends at the next user or system message. System messages are omitted."""
    answer_start: int | None = None
    for index, entry in enumerate(entries):
        message = entry_to_provider_message(entry)
        if not is_user(message) and not is_system(message):
            answer_start = index if answer_start is None else answer_start
            continue
        if answer_start is not None:
            yield ThreadMessage(start + answer_start, start + index, tuple(entries[answer_start:index]))
            answer_start = None
        if is_user(message):
            yield ThreadMessage(start + index, start + index + 1, (entry,))
    if answer_start is not None:
        yield ThreadMessage(start + answer_start, start + len(entries), tuple(entries[answer_start:]))


API_NAME: Final = "threads"
"""The name of this API in stored runs and minutes."""
RUN_LOST: Final = {
    "status": 409,
    "message": "The server that ran this answer has stopped. Post the message again with the same idempotency key.",
    "code": "run_lost",
}


def exposes_tool_details(service: Service) -> bool:
    """Whether clients get the arguments and results of tool calls."""
    return service.config.conversation.effective_retention.expose_tool_details


async def replay_answer(
    service: Service, store: ConversationStore, run: Document, events: ThreadEvents, *, received: int = 0
) -> None:
    """Send an answer from the record, without the characters that the client has received."""
    body = run.body
    loaded = await store.load(body["conversation"], since=body["answer"], limit=body["stop"] - body["answer"])
    events.send_stored_text(answer_text(loaded.messages), received)
    events.finish(answer_object(run.id, body, loaded.messages, expose_tool_details=exposes_tool_details(service)))


def answer_object(
    run_id: str, body: Mapping[str, Any], messages: Sequence[Message], *, expose_tool_details: bool
) -> dict[str, Any]:
    """The data of the `done` event, and the JSON response if the answer is not streamed."""
    recorded = "answer" in body
    return {
        "id": run_id,
        "object": "thread.answer",
        "thread_id": body["conversation"],
        "message_id": f"msg_{body['answer']}" if recorded else None,
        "text": answer_text(messages),
        "tools": tools_for_clients(messages, expose_tool_details=True)
        if expose_tool_details
        else [dict(use) for use in body["tools"]],
        "model": body["model"],
        "finish": body["finish"],
        "usage": _plain_dict(body["usage"]),
        "version": body.get("version"),
        "history": "recorded" if recorded else "unrecorded",
    }


def _plain_dict(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in usage.items()}


def local_run(service: Service, caller: Caller, thread: str, run_id: str) -> ThreadRun | None:
    """The run with that id, if this server still has it in memory."""
    run = service.runs.get(run_id, caller.tenant)
    return run if isinstance(run, ThreadRun) and run.conversation == thread else None


async def resume_run(service: Service, caller: Caller, thread: str, position: StreamPosition) -> tuple[ThreadRun, int]:
    """The run to read again, and the number of its events to skip.

    Raises:
        DocumentNotFound: there is no such run in this thread.
    """
    run = local_run(service, caller, thread, position.run)
    if run is not None:
        return run, min(position.number, len(run.events))
    stored_run = await find_run(service.store_of(caller), position.run, API_NAME)
    if stored_run.conversation != thread:
        raise DocumentNotFound(RUN_KIND, position.run)
    return start_replay(service, caller, stored_run, received=position.characters), 0


def start_replay(service: Service, caller: Caller, stored_run: Document, *, received: int = 0) -> ThreadRun:
    """Start a run that sends an answer from the record, once the server that runs it has finished."""
    run = ThreadRun(stored_run.id, caller.tenant, stored_run.conversation)
    run.headers["x-history"] = "recorded"
    run.task = asyncio.create_task(_replay(service, service.store_of(caller), stored_run, run, received))
    return run


async def _replay(
    service: Service, store: ConversationStore, stored_run: Document, run: ThreadRun, received: int
) -> None:
    events = ThreadEvents(run, expose_tool_details=exposes_tool_details(service))
    try:
        stored_run = await wait_for_end(service, store, stored_run, {"error": RUN_LOST})
        if "answer" in stored_run.body:
            await replay_answer(service, store, stored_run, events, received=received)
        else:
            error = stored_run.body["error"]
            events.fail(Failure(error["status"], error["message"], error["code"]))
    except Exception as error:  # noqa: BLE001 - raised in the clients that read the run
        run.end(error)
    else:
        run.end()
