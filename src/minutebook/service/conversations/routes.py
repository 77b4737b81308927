"""OpenAI's conversation endpoints, with a list, search and erasure, and the endpoints for recipients."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from minutebook.errors import ConversationNotFound, DocumentExists, InvalidSetting, RequestRefused, VersionConflict
from minutebook.service.access.api_keys import Caller
from minutebook.service.conversations.objects import (
    conversation_object,
    create_with_items,
    hold_for_writing,
    metadata_document,
    read_header,
    require_item_count,
)
from minutebook.service.http.openapi import (
    ConversationObject,
    ConversationPage,
    DeletedObject,
    ErasureObject,
    error_responses,
)
from minutebook.service.http.requests import StrictRoute, require_scope
from minutebook.service.http.responses import (
    After,
    JsonResponse,
    Limit,
    etag_header,
    expected_version_of,
    iterate_pages,
    new_id,
    page,
    require_version,
    unknown_cursor,
)
from minutebook.service.idempotency import find_earlier_result_id, idempotency_key_of, in_flight_error, store_key
from minutebook.service.responses.items import input_items, require_metadata, require_room
from minutebook.service.responses.request import Id
from minutebook.service.state import CurrentService, Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, ConversationStatus, ErasureReceipt, Page
from minutebook.wire.responses import items_to_messages

router = APIRouter(prefix="/v1/conversations", tags=["conversations"], route_class=StrictRoute)
MayRead = Annotated[Caller, require_scope("read")]
MayWrite = Annotated[Caller, require_scope("write")]
ConversationId = Annotated[str, Path(min_length=1, max_length=200)]
REPLAYED = {"idempotent-replayed": "true"}
IfMatch = Annotated[str | None, Header()]
Version = Annotated[int | None, Field(ge=0, le=1 << 53)]


class NewConversation(BaseModel):
    """The body of a request that creates a conversation."""

    model_config = ConfigDict(extra="forbid")
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None
    recipient: Id | None = None
    """The user or application that the conversation is with."""


class ConversationUpdate(BaseModel):
    """The body of a request that changes a conversation."""

    model_config = ConfigDict(extra="forbid")
    metadata: dict[str, str] | None
    expected_version: Version = None


@router.post("", responses={200: {"model": ConversationObject}, **error_responses()})
async def create_conversation(
    service: CurrentService, request: Request, caller: MayWrite, body: NewConversation | None = None
) -> Response:
    """Create a conversation, optionally with items."""
    body = body or NewConversation()
    store = service.store_of(caller)
    scope = ("conversations", None, caller.recipient)
    idempotency_key = idempotency_key_of(caller, scope, request.headers, await request.body())
    earlier_id = await find_earlier_result_id(store, idempotency_key)
    if earlier_id is not None:
        conversation = await read_header(service, caller, earlier_id)
        headers = {**etag_header(conversation), **REPLAYED}
        return JsonResponse(await conversation_object(store, conversation), headers=headers)
    limits = service.config.limits
    items = input_items(body.items, limits, param="items")
    require_item_count(items, limits)
    require_room(len(items_to_messages(items)), limits)
    require_metadata(body.metadata, limits)
    recipient = caller.recipient or body.recipient
    conversation_id = new_id("conv")
    documents = [idempotency_key.document(conversation_id)] if idempotency_key.from_header else []
    if body.metadata:
        documents.append(metadata_document(conversation_id, body.metadata))
    try:
        conversation = await create_with_items(store, conversation_id, items, recipient=recipient, documents=documents)
    except DocumentExists:
        raise in_flight_error() from None
    if not idempotency_key.from_header:
        await store_key(store, idempotency_key, conversation_id, conversation_id)
    return JsonResponse(await conversation_object(store, conversation), headers=etag_header(conversation))


@router.get("", responses={200: {"model": ConversationPage}, **error_responses(404)})
async def list_conversations(
    service: CurrentService,
    caller: MayRead,
    recipient: Annotated[str | None, Query(min_length=1, max_length=512)] = None,
    status: Annotated[ConversationStatus | None, Query()] = None,
    q: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    after: After = None,
    limit: Limit = 20,
) -> Response:
    """A page of conversations, newest first. With `q`, those with a message or summary that matches it.

    `q` has words that must all occur, "exact phrases", prefixes such as ord*, -word to exclude a word, and OR between
    alternatives. Case and accents are ignored. Other syntax is an error.
    """
    if caller.recipient is not None:
        if recipient not in {None, caller.recipient}:
            return JsonResponse(page([], has_more=False))
        recipient = caller.recipient
    if q is not None:
        if after is not None or status is not None:
            raise RequestRefused(
                400, "`q` cannot be combined with `after` or `status`: a search has one page.", "invalid_search", "q"
            )
        return JsonResponse(await _search(service, caller, q, recipient, limit))
    store = service.read_store_of(caller)
    headers = await _read_page(store, recipient, status, after, limit)
    data = [await conversation_object(store, header) for header in headers.items]
    return JsonResponse({**page(data, has_more=headers.cursor is not None), "next": headers.cursor})


async def _read_page(
    store: ConversationStore, recipient: str | None, status: ConversationStatus | None, after: str | None, limit: int
) -> Page[ConversationHeader]:
    """The page after a cursor (`next` of the previous page) or after a conversation id.

    An id is searched for from the newest conversation on.

    Raises:
        RequestRefused: no conversation has that id.
    """
    with suppress(InvalidSetting):
        return await store.list(recipient=recipient, status=status, cursor=after, limit=limit)
    cursor: str | None = None
    while True:
        single_page = await store.list(recipient=recipient, status=status, cursor=cursor, limit=1)
        if not single_page.items or (single_page.items[0].id != after and single_page.cursor is None):
            raise unknown_cursor()
        if single_page.items[0].id == after:
            if single_page.cursor is None:
                return Page((), None)
            return await store.list(recipient=recipient, status=status, cursor=single_page.cursor, limit=limit)
        cursor = single_page.cursor


async def _search(service: Service, caller: Caller, q: str, recipient: str | None, limit: int) -> dict[str, Any]:
    store = service.read_store_of(caller)
    ids: dict[str, None] = {}  # an ordered set
    cursor: str | None = None
    while len(ids) <= limit:
        hits = await store.search(q, recipient=recipient, cursor=cursor, limit=100)
        ids |= dict.fromkeys(hit.conversation for hit in hits.items)
        cursor = hits.cursor
        if cursor is None:
            break
    data = [await conversation_object(store, await store.header(conversation_id)) for conversation_id in [*ids][:limit]]
    return page(data, has_more=len(ids) > limit)


@router.get("/{conversation_id}", responses={200: {"model": ConversationObject}, **error_responses(404)})
async def retrieve_conversation(service: CurrentService, conversation_id: ConversationId, caller: MayRead) -> Response:
    """One conversation, without its items."""
    conversation = await read_header(service, caller, conversation_id)
    return JsonResponse(
        await conversation_object(service.store_of(caller), conversation), headers=etag_header(conversation)
    )


@router.post("/{conversation_id}", responses={200: {"model": ConversationObject}, **error_responses(404, 409, 412)})
async def update_conversation(
    service: CurrentService,
    conversation_id: ConversationId,
    body: ConversationUpdate,
    caller: MayWrite,
    if_match: IfMatch = None,
) -> Response:
    """Replace the metadata of a conversation."""
    require_metadata(body.metadata, service.config.limits)
    conversation = await read_header(service, caller, conversation_id)
    require_version(conversation, expected_version_of(if_match, body.expected_version))
    store = service.store_of(caller)
    await store.put_document(conversation.id, metadata_document(conversation.id, body.metadata or {}))
    return JsonResponse(await conversation_object(store, conversation), headers=etag_header(conversation))


@router.delete("/{conversation_id}", responses={200: {"model": DeletedObject}, **error_responses(404, 409, 412)})
async def delete_conversation(
    service: CurrentService, conversation_id: ConversationId, caller: MayWrite, if_match: IfMatch = None
) -> Response:
    """Delete a conversation and its forks permanently."""
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        await store.erase(conversation=conversation_id)
    service.records.clear(caller.tenant)
    await service.audit.note(caller, "erase", conversation_id)
    return JsonResponse({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@router.post("/{conversation_id}/erase", responses={200: {"model": ErasureObject}, **error_responses(404, 409, 412)})
async def erase_conversation(
    service: CurrentService, conversation_id: ConversationId, caller: MayWrite, if_match: IfMatch = None
) -> Response:
    """Delete a conversation and its forks permanently. The receipt contains no ids."""
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        receipt = await store.erase(conversation=conversation_id)
    service.records.clear(caller.tenant)
    await service.audit.note(caller, "erase", conversation_id)
    return JsonResponse(receipt_object(receipt))


def receipt_object(receipt: ErasureReceipt) -> dict[str, Any]:
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
_JSON_LINES_RESPONSE: Any = {200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}}


@recipients.put("/conversation", responses={200: {"model": ConversationObject}, **error_responses(404)})
async def current_conversation(service: CurrentService, recipient: Recipient, caller: MayWrite) -> Response:
    """The recipient's newest conversation that is not closed; it is created if there is none."""
    _require_access(caller, recipient)
    store = service.store_of(caller)
    conversation = await _find_newest(store, recipient)
    if conversation is None:
        conversation_id = f"conversation:{recipient}"
        for _ in range(2):  # the second id is new, so creating it cannot fail
            try:
                conversation = await create_with_items(store, conversation_id, (), recipient=recipient)
                break
            except (VersionConflict, ConversationNotFound):  # the id exists and is closed, or was erased
                conversation = await _find_newest(store, recipient)
                if conversation is not None:
                    break
                conversation_id = new_id("conv")
    assert conversation is not None
    return JsonResponse(await conversation_object(store, conversation), headers=etag_header(conversation))


@recipients.post("/erase", responses={200: {"model": ErasureObject}, **error_responses(404)})
async def erase_recipient(service: CurrentService, recipient: Recipient, caller: MayWrite) -> Response:
    """Delete all conversations of a recipient permanently. The receipt contains no ids."""
    _require_access(caller, recipient)
    receipt = await service.store_of(caller).erase(recipient=recipient)
    await service.audit.note(caller, "erase", recipient)
    return JsonResponse(receipt_object(receipt))


@recipients.get("/export", responses={**_JSON_LINES_RESPONSE, **error_responses(404)})
async def export_recipient(service: CurrentService, recipient: Recipient, caller: MayRead) -> Response:
    """Export all conversations of a recipient as JSON lines, which `minutebook import` reads."""
    _require_access(caller, recipient)
    store = service.read_store_of(caller)
    first_page = await store.list(recipient=recipient, limit=1)
    if not first_page.items:
        raise ConversationNotFound(recipient)
    return StreamingResponse(_export_lines(store, recipient), media_type="application/jsonl")


async def _export_lines(store: ConversationStore, recipient: str) -> AsyncIterator[bytes]:
    async for conversation in iterate_pages(lambda cursor: store.list(recipient=recipient, cursor=cursor, limit=100)):
        async for line in store.export(conversation.id):
            yield line.rstrip("\n").encode() + b"\n"


async def _find_newest(store: ConversationStore, recipient: str) -> ConversationHeader | None:
    async for conversation in iterate_pages(lambda cursor: store.list(recipient=recipient, cursor=cursor, limit=50)):
        if conversation.status is not ConversationStatus.CLOSED:
            return conversation
    return None


def _require_access(caller: Caller, recipient: str) -> None:
    if caller.recipient is not None and caller.recipient != recipient:
        raise ConversationNotFound(recipient)
