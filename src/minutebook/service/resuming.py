"""Coming back to an answer: while it is being made here, while another server makes it, and when only the record has it."""

import asyncio
from typing import Final

from minutebook.errors import ConversationBusy, DocumentNotFound
from minutebook.service.caller import Caller
from minutebook.service.failures import Failure
from minutebook.service.ids import new_id
from minutebook.service.outcome import exposes, retell, run_of
from minutebook.service.replies import RUN
from minutebook.service.state import Service
from minutebook.service.telling import Place, Telling, ThreadRun
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document

_LOOK_SECONDS: Final = 0.25
"""How often it is looked whether another server is done."""
LOST: Final = Failure(
    409, "The server that made this answer is gone. Post the message again, with the same key.", "run_lost"
)


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
    known = await run_of(store, place.run)
    if known is None or known.conversation != thread:
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
        while known.body["status"] == "in_progress":
            is_made = await _is_being_made(store, known.conversation)
            known = await store.document(RUN, known.id)
            if not is_made:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if known.body["status"] == "completed":
            await retell(service, store, known, telling, heard=heard)
        else:
            telling.fail(_failure(known))
    except Exception as error:  # noqa: BLE001 - whoever listens is told, and decides
        run.end(error)
    else:
        run.end()


async def _is_being_made(store: ConversationStore, thread: str) -> bool:
    try:
        lease = await store.acquire_lease(thread, new_id("look"), seconds=1.0)
    except ConversationBusy:
        return True
    await store.release_lease(lease)
    return False


def _failure(known: Document) -> Failure:
    error = known.body.get("error")
    if known.body["status"] == "in_progress" or error is None:
        return LOST
    return Failure(error["status"], error["message"], error["code"])
