"""Endpoints for the items and turns of a conversation, and for forks."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.errors import RequestRefused
from minutebook.record.exchange import safe_boundaries, turns
from minutebook.service.access.api_keys import Caller
from minutebook.service.conversations.objects import (
    append_items,
    conversation_object,
    hold_for_writing,
    metadata_document,
    read_header,
    read_metadata,
    require_item_count,
)
from minutebook.service.conversations.routes import REPLAYED, ConversationId, IfMatch, MayRead, MayWrite, Version
from minutebook.service.http.errors import DO_NOT_RETRY
from minutebook.service.http.openapi import ConversationObject, ItemObject, ItemPage, TurnPage, error_responses
from minutebook.service.http.requests import StrictRoute
from minutebook.service.http.responses import (
    INCLUDE_PARAMETER,
    After,
    JsonResponse,
    Limit,
    Order,
    etag_header,
    expected_version_of,
    new_id,
    page,
    require_version,
    unknown_cursor,
)
from minutebook.service.idempotency import find_earlier_result_id, idempotency_key_of
from minutebook.service.responses.items import input_items, items_at, items_of, position_in
from minutebook.service.responses.request import Id
from minutebook.service.state import CurrentService, Service
from minutebook.store.types import ConversationHeader

router = APIRouter(prefix="/v1/conversations/{conversation_id}", tags=["conversations"], route_class=StrictRoute)


class NewItems(BaseModel):
    """Items to append."""

    model_config = ConfigDict(extra="forbid")
    items: list[dict[str, Any]] = Field(min_length=1)
    expected_version: Version = None


class ForkRequest(BaseModel):
    """The body of a fork request."""

    model_config = ConfigDict(extra="forbid")
    at_item: Id | None = None
    """The last item of the fork, extended to the end of its exchange. Default: the newest item."""


@router.post("/fork", responses={200: {"model": ConversationObject}, **error_responses(404, 409, 412)})
async def fork_conversation(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayWrite,
    body: ForkRequest | None = None,
    if_match: IfMatch = None,
) -> Response:
    """Copy a conversation, up to an item, to a new one."""
    conversation = await read_header(service, caller, conversation_id)
    require_version(conversation, expected_version_of(if_match))
    store = service.store_of(caller)
    fork_id, at = new_id("conv"), None
    if body is not None and body.at_item is not None:
        position = await _find_position(service, caller, conversation, body.at_item)
        at = await _end_of_exchange(service, caller, conversation, position)
    fork = await store.fork(conversation.id, fork_id, at=at)
    metadata = await read_metadata(store, conversation.id)
    if metadata:
        await store.put_document(fork_id, metadata_document(fork_id, metadata))
    await service.audit.note(caller, "fork", conversation.id)
    return JsonResponse(await conversation_object(store, fork), headers=etag_header(fork))


class RewindRequest(BaseModel):
    """The body of a rewind request."""

    model_config = ConfigDict(extra="forbid")
    from_item: Id
    """The first item that is hidden. It must be the first one of its exchange."""


@router.post("/rewind", responses={200: {"model": ConversationObject}, **error_responses(404, 409, 412)})
async def rewind_conversation(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayWrite,
    body: RewindRequest,
    if_match: IfMatch = None,
) -> Response:
    """Hide the items from one on: models no longer get them, and the conversation continues before it.

    The items stay in the record and can be listed.
    """
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        conversation = await store.header(conversation_id)
        position = await _find_position(service, caller, conversation, body.from_item)
        rewound = await store.rewind(conversation.id, position, expected_version=conversation.version)
    await service.audit.note(caller, "rewind", conversation_id)
    return JsonResponse(await conversation_object(store, rewound), headers=etag_header(rewound))


@router.post("/clear", responses={200: {"model": ConversationObject}, **error_responses(404, 409, 412)})
async def clear_conversation(
    service: CurrentService, conversation_id: ConversationId, caller: MayWrite, if_match: IfMatch = None
) -> Response:
    """Hide all items: models no longer get them, and the conversation starts again behind the same id.

    The items stay in the record and can be listed.
    """
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        conversation = await store.header(conversation_id)
        cleared = await store.clear(conversation.id, expected_version=conversation.version)
    await service.audit.note(caller, "clear", conversation_id)
    return JsonResponse(await conversation_object(store, cleared), headers=etag_header(cleared))


async def _end_of_exchange(service: Service, caller: Caller, conversation: ConversationHeader, position: int) -> int:
    """The first position after this one where the record may be cut."""
    loaded = await service.store_of(caller).load(conversation.id)
    boundaries = (loaded.start + index for index in safe_boundaries(loaded.messages))
    return min(boundary for boundary in boundaries if boundary > position)


@router.post(
    "/items",
    responses={200: {"model": ItemPage}, **error_responses(404, 409, 412, 422)},
    dependencies=[INCLUDE_PARAMETER],
)
async def create_items(
    service: CurrentService,
    request: Request,
    conversation_id: ConversationId,
    body: NewItems,
    caller: MayWrite,
    if_match: IfMatch = None,
) -> Response:
    """Append items, atomically."""
    limits = service.config.limits
    conversation = await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    scope = ("items", conversation.id, caller.recipient)
    idempotency_key = idempotency_key_of(caller, scope, request.headers, await request.body())
    earlier_range = await find_earlier_result_id(store, idempotency_key)
    if earlier_range is not None:
        start, stop = map(int, earlier_range.split("-"))
        appended = list(items_of(await store.load(conversation.id, since=start, limit=stop - start)))
        return JsonResponse(page(appended, has_more=False), headers={**etag_header(conversation), **REPLAYED})
    items = input_items(body.items, limits, param="items")
    require_item_count(body.items, limits)
    expected_version = expected_version_of(if_match, body.expected_version)
    conversation, appended = await append_items(
        service, caller, conversation.id, items, expected_version=expected_version, idempotency_key=idempotency_key
    )
    return JsonResponse(page(appended, has_more=False), headers=etag_header(conversation))


@router.get("/items", responses={200: {"model": ItemPage}, **error_responses(404)}, dependencies=[INCLUDE_PARAMETER])
async def list_items(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayRead,
    after: After = None,
    limit: Limit = 20,
    order: Order = "desc",
) -> Response:
    """A page of the items of a conversation."""
    conversation = await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    if after is not None:
        try:
            position = await _find_position(service, caller, conversation, after)
        except RequestRefused:
            raise unknown_cursor() from None
    else:
        position = conversation.first if order == "asc" else conversation.length - 1
    data: list[dict[str, Any]] = []
    is_after = after is None
    chunk_size = limit + 2
    while len(data) <= limit:
        start = position if order == "asc" else max(conversation.first, position - chunk_size + 1)
        stop = min(conversation.length, start + chunk_size) if order == "asc" else position + 1
        if start >= stop:
            break
        loaded = await store.load(conversation.id, since=start, limit=stop - start)
        items = list(items_of(loaded))
        for item in items if order == "asc" else reversed(items):
            if is_after:
                data.append(item)
            is_after = is_after or item["id"] == after
        position = stop if order == "asc" else start - 1
    return JsonResponse(page(data[:limit], has_more=len(data) > limit), headers=etag_header(conversation))


@router.get(
    "/items/{item_id}", responses={200: {"model": ItemObject}, **error_responses(404)}, dependencies=[INCLUDE_PARAMETER]
)
async def retrieve_item(
    service: CurrentService, conversation_id: ConversationId, item_id: ConversationId, caller: MayRead
) -> Response:
    """One item."""
    conversation = await read_header(service, caller, conversation_id)
    position = await _find_position(service, caller, conversation, item_id)
    loaded = await service.store_of(caller).load(conversation.id, since=position, limit=1)
    return JsonResponse(next(item for item in items_at(position, loaded.entries[0]) if item["id"] == item_id))


@router.delete("/items/{item_id}", responses=error_responses(404, 405))
async def delete_item(
    service: CurrentService, conversation_id: ConversationId, item_id: ConversationId, caller: MayWrite
) -> Response:
    """Always rejected: the record is append-only, and removing single items would break its tool calls."""
    conversation = await read_header(service, caller, conversation_id)
    await _find_position(service, caller, conversation, item_id)
    problem = "Single items cannot be deleted. Fork the conversation before this item, or delete the conversation."
    raise RequestRefused(405, problem, "items_are_kept", None, (("allow", "GET"), *DO_NOT_RETRY.items()))


async def _find_position(service: Service, caller: Caller, conversation: ConversationHeader, item_id: str) -> int:
    """The position in the record of the message with this item.

    Raises:
        RequestRefused: the conversation has no such item.
    """
    # Ids of this service contain the position. Ids that a client chose are searched for.
    store, id_position = service.store_of(caller), position_in(item_id)
    if id_position is not None and conversation.first <= id_position < conversation.length:
        loaded = await store.load(conversation.id, since=id_position, limit=1)
        if any(item["id"] == item_id for item in items_at(id_position, loaded.entries[0])):
            return id_position
    loaded = await store.load(conversation.id, since=conversation.first)
    for position, entry in zip(loaded.positions, loaded.entries, strict=True):
        if any(item["id"] == item_id for item in items_at(position, entry)):
            return position
    raise RequestRefused(404, "The conversation has no such item.", "item_not_found", "item_id")


@router.get("/turns", responses={200: {"model": TurnPage}, **error_responses(404)})
async def list_turns(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayRead,
    after: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
    limit: Limit = 20,
) -> Response:
    """A page of turns, oldest first. `after` is the number of the turn before the page."""
    conversation = await read_header(service, caller, conversation_id)
    loaded = await service.store_of(caller).load(conversation.id)
    first_number = 0 if after is None else after + 1
    data = [
        {
            "object": "conversation.turn",
            "number": number,
            "start": loaded.start + turn.start,
            "stop": loaded.start + turn.stop,
            "started_at": int(loaded.entries[turn.start].created_at.timestamp()),
            "items": [item for index in turn for item in items_at(loaded.start + index, loaded.entries[index])],
        }
        for number, turn in enumerate(turns(loaded.messages))
    ]
    has_more = first_number + limit < len(data)
    return JsonResponse(
        {"object": "list", "data": data[first_number : first_number + limit], "has_more": has_more},
        headers=etag_header(conversation),
    )
