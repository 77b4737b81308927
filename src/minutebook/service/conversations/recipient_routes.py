"""Recipients: the conversation that one is in now, all that is kept of one, and the end of it."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import Response, StreamingResponse

from minutebook.errors import ConversationNotFound, VersionConflict
from minutebook.service.access.api_keys import Caller
from minutebook.service.conversations.objects import create, object_of
from minutebook.service.conversations.routes import receipt_object
from minutebook.service.http.auth import needs
from minutebook.service.http.openapi import ConversationObject, Erased, errors
from minutebook.service.http.pages import new_id, tag_of
from minutebook.service.http.responses import Json
from minutebook.service.http.strict_json import StrictRoute
from minutebook.service.state import Here
from minutebook.store.base import ConversationStore
from minutebook.store.types import Conversation, ConversationStatus

router = APIRouter(prefix="/v1/recipients/{recipient}", tags=["recipients"], route_class=StrictRoute)
MayRead = Annotated[Caller, needs("read")]
MayWrite = Annotated[Caller, needs("write")]
Recipient = Annotated[str, Path(min_length=1, max_length=400)]
_LINES: Any = {200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}}


@router.put("/conversation", responses={200: {"model": ConversationObject}, **errors(404)})
async def current_conversation(service: Here, recipient: Recipient, caller: MayWrite) -> Response:
    """The recipient's newest conversation that is not closed; a new one, if there is none."""
    _require_own(caller, recipient)
    store = service.store_of(caller)
    found = await _newest(store, recipient)
    if found is None:
        name = f"conversation:{recipient}"
        for _ in range(2):  # the second name is new for sure
            try:
                found = await create(store, name, (), recipient=recipient)
                break
            except (VersionConflict, ConversationNotFound):  # it is closed by now, or was erased
                found = await _newest(store, recipient)
                if found is not None:
                    break
                name = new_id("conv")
    assert found is not None
    return Json(await object_of(store, found), headers=tag_of(found))


@router.post("/erase", responses={200: {"model": Erased}, **errors(404)})
async def erase_recipient(service: Here, recipient: Recipient, caller: MayWrite) -> Response:
    """Delete all conversations of a recipient for good, and have a receipt that names nobody."""
    _require_own(caller, recipient)
    receipt = await service.store_of(caller).erase(recipient=recipient)
    await service.audit.note(caller, "erase", recipient)
    return Json(receipt_object(receipt))


@router.get("/export", responses={**_LINES, **errors(404)})
async def export_recipient(service: Here, recipient: Recipient, caller: MayRead) -> Response:
    """All that is kept of a recipient's conversations, as lines of JSON that `minutebook import` reads."""
    _require_own(caller, recipient)
    store = service.store_of(caller)
    first = await store.list(recipient=recipient, limit=1)
    if not first.items:
        raise ConversationNotFound(recipient)
    return StreamingResponse(_lines(store, recipient), media_type="application/jsonl")


async def _lines(store: ConversationStore, recipient: str) -> AsyncIterator[bytes]:
    cursor: str | None = None
    while True:
        page = await store.list(recipient=recipient, cursor=cursor, limit=100)
        for conversation in page.items:
            async for line in store.export(conversation.id):
                yield line.rstrip("\n").encode() + b"\n"
        cursor = page.cursor
        if cursor is None:
            return


async def _newest(store: ConversationStore, recipient: str) -> Conversation | None:
    cursor: str | None = None
    while True:
        page = await store.list(recipient=recipient, cursor=cursor, limit=50)
        for conversation in page.items:
            if conversation.status is not ConversationStatus.CLOSED:
                return conversation
        cursor = page.cursor
        if cursor is None:
            return None


def _require_own(caller: Caller, recipient: str) -> None:
    if caller.recipient is not None and caller.recipient != recipient:
        raise ConversationNotFound(recipient)
