"""What became of an answer in a thread, and coming back to it.

It is told again while it is being made here, when another server has made it, and when only the record has it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from minutebook.errors import DocumentNotFound
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.earlier_answer import find_run, wait_for_end
from minutebook.service.http.errors import Failure
from minutebook.service.idempotency import RUN
from minutebook.service.state import Service
from minutebook.service.threads.dialogue import said_in, tools_shown
from minutebook.service.threads.events import Place, Telling, ThreadRun
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document

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
