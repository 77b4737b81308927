"""OpenAI's conversations, and what they lack: a list, a search, erasure, and the conversations of a recipient."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from minutebook.errors import ConversationNotFound, DocumentExists, InvalidSetting, RequestRefused, VersionConflict
from minutebook.service.access.api_keys import Caller
from minutebook.service.conversations.objects import create, metadata_document, object_of, require_few, seen, writing
from minutebook.service.http.openapi import ConversationObject, ConversationPage, Deleted, Erased, errors
from minutebook.service.http.requests import StrictRoute, needs
from minutebook.service.http.responses import (
    After,
    Json,
    Limit,
    each_item,
    expected_of,
    new_id,
    page,
    require_version,
    tag_of,
    unknown_cursor,
)
from minutebook.service.idempotency import claim_of, earlier_run, in_flight, remember
from minutebook.service.responses.items import usual
from minutebook.service.responses.request import Id, Metadata
from minutebook.service.state import Here, Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Conversation, ConversationStatus, Page, Receipt

router = APIRouter(prefix="/v1/conversations", tags=["conversations"], route_class=StrictRoute)
MayRead = Annotated[Caller, needs("read")]
MayWrite = Annotated[Caller, needs("write")]
ConversationId = Annotated[str, Path(min_length=1, max_length=200)]
REPLAYED = {"idempotent-replayed": "true"}
IfMatch = Annotated[str | None, Header()]
Include = Annotated[list[Literal["reasoning.encrypted_content"]] | None, Query()]
Version = Annotated[int | None, Field(ge=0, le=1 << 53)]


class NewConversation(BaseModel):
    """A conversation to be made."""

    model_config = ConfigDict(extra="forbid")
    items: list[dict[str, Any]] | None = None
    metadata: Metadata | None = None
    recipient: Id | None = None
    """Whom it is with."""


class ConversationUpdate(BaseModel):
    """What is to change of a conversation."""

    model_config = ConfigDict(extra="forbid")
    metadata: Metadata | None
    expected_version: Version = None


@router.post("", responses={200: {"model": ConversationObject}, **errors()})
async def create_conversation(
    service: Here, request: Request, caller: MayWrite, asked: NewConversation | None = None
) -> Response:
    """A new conversation, with some items to begin with."""
    asked = asked or NewConversation()
    store = service.store_of(caller)
    claim = claim_of(caller, "conversations", request.headers, asked.model_dump(exclude_unset=True))
    earlier = await earlier_run(store, claim)
    if earlier is not None:
        known = await seen(service, caller, earlier)
        return Json(await object_of(store, known), headers={**tag_of(known), **REPLAYED})
    limits = service.config.limits
    items = usual(asked.items, limits)
    require_few(items, limits)
    recipient = caller.recipient or asked.recipient
    name = new_id("conv")
    documents = [claim.document(name)] if claim.keyed else []
    if asked.metadata:
        documents.append(metadata_document(name, asked.metadata))
    try:
        made = await create(store, name, items, recipient=recipient, documents=documents)
    except DocumentExists:
        raise in_flight() from None
    if not claim.keyed:
        await remember(store, claim, name, name)
    return Json(await object_of(store, made), headers=tag_of(made))


@router.get("", responses={200: {"model": ConversationPage}, **errors(404)})
async def list_conversations(
    service: Here,
    caller: MayRead,
    recipient: Annotated[str | None, Query(min_length=1, max_length=512)] = None,
    status: Annotated[ConversationStatus | None, Query()] = None,
    q: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    after: After = None,
    limit: Limit = 20,
) -> Response:
    """Conversations, the newest first; with `q`, those in which every word of it was said."""
    if caller.recipient is not None:
        if recipient not in {None, caller.recipient}:
            return Json(page([], has_more=False))
        recipient = caller.recipient
    if q is not None:
        if after is not None or status is not None:
            raise RequestRefused(
                400, "A search has one page and any status: leave out after and status.", "invalid_search", "q"
            )
        return Json(await _searched(service, caller, q, recipient, limit))
    store = service.store_of(caller)
    found = await _listed(store, recipient, status, after, limit)
    data = [await object_of(store, each) for each in found.items]
    return Json({**page(data, has_more=found.cursor is not None), "next": found.cursor})


async def _listed(
    store: ConversationStore, recipient: str | None, status: ConversationStatus | None, after: str | None, limit: int
) -> Page[Conversation]:
    """The page after a page's `next`; or after a conversation's id, which is looked for from the newest on.

    Raises:
        RequestRefused: there is none of that id.
    """
    with suppress(InvalidSetting):
        return await store.list(recipient=recipient, status=status, cursor=after, limit=limit)
    cursor: str | None = None
    while True:
        found = await store.list(recipient=recipient, status=status, cursor=cursor, limit=1)
        if not found.items or (found.items[0].id != after and found.cursor is None):
            raise unknown_cursor()
        if found.items[0].id == after:
            if found.cursor is None:
                return Page((), None)
            return await store.list(recipient=recipient, status=status, cursor=found.cursor, limit=limit)
        cursor = found.cursor


async def _searched(service: Service, caller: Caller, q: str, recipient: str | None, limit: int) -> dict[str, Any]:
    store = service.store_of(caller)
    names: dict[str, None] = {}
    cursor: str | None = None
    while len(names) <= limit:
        hits = await store.search(q, recipient=recipient, cursor=cursor, limit=100)
        names |= dict.fromkeys(hit.conversation for hit in hits.items)
        cursor = hits.cursor
        if cursor is None:
            break
    data = [await object_of(store, await store.header(name)) for name in list(names)[:limit]]
    return page(data, has_more=len(names) > limit)


@router.get("/{conversation_id}", responses={200: {"model": ConversationObject}, **errors(404)})
async def retrieve_conversation(service: Here, conversation_id: ConversationId, caller: MayRead) -> Response:
    """What is known of a conversation."""
    found = await seen(service, caller, conversation_id)
    return Json(await object_of(service.store_of(caller), found), headers=tag_of(found))


@router.post("/{conversation_id}", responses={200: {"model": ConversationObject}, **errors(404, 409, 412)})
async def update_conversation(
    service: Here,
    conversation_id: ConversationId,
    asked: ConversationUpdate,
    caller: MayWrite,
    if_match: IfMatch = None,
) -> Response:
    """Note other metadata with a conversation."""
    found = await seen(service, caller, conversation_id)
    require_version(found, expected_of(if_match, asked.expected_version))
    store = service.store_of(caller)
    await store.put_document(found.id, metadata_document(found.id, asked.metadata or {}))
    return Json(await object_of(store, found), headers=tag_of(found))


@router.delete("/{conversation_id}", responses={200: {"model": Deleted}, **errors(404, 409, 412)})
async def delete_conversation(
    service: Here, conversation_id: ConversationId, caller: MayWrite, if_match: IfMatch = None
) -> Response:
    """Delete a conversation for good, its forks too: nothing that was said in it can be read any more."""
    async with writing(service, caller, conversation_id) as (store, _):
        require_version(await store.header(conversation_id), expected_of(if_match))
        await store.erase(conversation=conversation_id)
    await service.audit.note(caller, "erase", conversation_id)
    return Json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@router.post("/{conversation_id}/erase", responses={200: {"model": Erased}, **errors(404, 409)})
async def erase_conversation(service: Here, conversation_id: ConversationId, caller: MayWrite) -> Response:
    """Delete a conversation for good, and have a receipt that names nobody."""
    async with writing(service, caller, conversation_id) as (store, _):
        receipt = await store.erase(conversation=conversation_id)
    await service.audit.note(caller, "erase", conversation_id)
    return Json(receipt_object(receipt))


def receipt_object(receipt: Receipt) -> dict[str, Any]:
    """The receipt of an erasure."""
    return {
        "id": receipt.id,
        "object": "erasure",
        "erased_at": int(receipt.erased_at.timestamp()),
        "conversations": receipt.conversations,
        "entries": receipt.entries,
        "compactions": receipt.folds,
    }


recipients = APIRouter(prefix="/v1/recipients/{recipient}", tags=["recipients"], route_class=StrictRoute)
Recipient = Annotated[str, Path(min_length=1, max_length=400)]
_LINES: Any = {200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}}


@recipients.put("/conversation", responses={200: {"model": ConversationObject}, **errors(404)})
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


@recipients.post("/erase", responses={200: {"model": Erased}, **errors(404)})
async def erase_recipient(service: Here, recipient: Recipient, caller: MayWrite) -> Response:
    """Delete all conversations of a recipient for good, and have a receipt that names nobody."""
    _require_own(caller, recipient)
    receipt = await service.store_of(caller).erase(recipient=recipient)
    await service.audit.note(caller, "erase", recipient)
    return Json(receipt_object(receipt))


@recipients.get("/export", responses={**_LINES, **errors(404)})
async def export_recipient(service: Here, recipient: Recipient, caller: MayRead) -> Response:
    """All that is kept of a recipient's conversations, as lines of JSON that `minutebook import` reads."""
    _require_own(caller, recipient)
    store = service.store_of(caller)
    first = await store.list(recipient=recipient, limit=1)
    if not first.items:
        raise ConversationNotFound(recipient)
    return StreamingResponse(_lines(store, recipient), media_type="application/jsonl")


async def _lines(store: ConversationStore, recipient: str) -> AsyncIterator[bytes]:
    async for conversation in each_item(lambda cursor: store.list(recipient=recipient, cursor=cursor, limit=100)):
        async for line in store.export(conversation.id):
            yield line.rstrip("\n").encode() + b"\n"


async def _newest(store: ConversationStore, recipient: str) -> Conversation | None:
    async for conversation in each_item(lambda cursor: store.list(recipient=recipient, cursor=cursor, limit=50)):
        if conversation.status is not ConversationStatus.CLOSED:
            return conversation
    return None


def _require_own(caller: Caller, recipient: str) -> None:
    if caller.recipient is not None and caller.recipient != recipient:
        raise ConversationNotFound(recipient)
