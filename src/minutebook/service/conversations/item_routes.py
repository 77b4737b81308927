"""What conversations hold: their items, their turns, and the forks that begin with some of them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.errors import RequestRefused
from minutebook.record.exchange import safe_boundaries, turns
from minutebook.service.access.api_keys import Caller
from minutebook.service.conversations.objects import add, metadata_document, metadata_of, object_of, require_few, seen
from minutebook.service.conversations.routes import REPLAYED, ConversationId, IfMatch, MayRead, MayWrite, Version
from minutebook.service.http.errors import FINAL
from minutebook.service.http.openapi import ConversationObject, ItemObject, ItemPage, TurnPage, errors
from minutebook.service.http.requests import StrictRoute
from minutebook.service.http.responses import (
    INCLUDE,
    After,
    Json,
    Limit,
    Order,
    expected_of,
    new_id,
    page,
    tag_of,
    unknown_cursor,
)
from minutebook.service.idempotency import claim_of, earlier_run
from minutebook.service.responses.items import items_at, items_of, place_of, usual
from minutebook.service.responses.request import Id
from minutebook.service.state import Here, Service
from minutebook.store.types import Conversation

router = APIRouter(prefix="/v1/conversations/{conversation_id}", tags=["conversations"], route_class=StrictRoute)


class NewItems(BaseModel):
    """Items to be appended."""

    model_config = ConfigDict(extra="forbid")
    items: list[dict[str, Any]] = Field(min_length=1)
    expected_version: Version = None


class Fork(BaseModel):
    """Where a fork leaves."""

    model_config = ConfigDict(extra="forbid")
    at_item: Id | None = None
    """The last item that both have; the newest, if none is named. What belongs together with it comes along."""


@router.post("/fork", responses={200: {"model": ConversationObject}, **errors(404, 409)})
async def fork_conversation(
    service: Here, conversation_id: ConversationId, caller: MayWrite, asked: Fork | None = None
) -> Response:
    """A new conversation that begins as this one did, up to an item."""
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    name, at = new_id("conv"), None
    if asked is not None and asked.at_item is not None:
        position = await _position(service, caller, found, asked.at_item)
        at = await _end_of_exchange(service, caller, found, position)
    made = await store.fork(found.id, name, at=at)
    metadata = await metadata_of(store, found.id)
    if metadata:
        await store.put_document(name, metadata_document(name, metadata))
    await service.audit.note(caller, "fork", found.id)
    return Json(await object_of(store, made), headers=tag_of(made))


async def _end_of_exchange(service: Service, caller: Caller, conversation: Conversation, position: int) -> int:
    """The first place after a position where the record may be cut."""
    loaded = await service.store_of(caller).load(conversation.id)
    return min(loaded.start + place for place in safe_boundaries(loaded.messages) if loaded.start + place > position)


@router.post("/items", responses={200: {"model": ItemPage}, **errors(404, 409, 412, 422)}, dependencies=[INCLUDE])
async def create_items(
    service: Here,
    request: Request,
    conversation_id: ConversationId,
    asked: NewItems,
    caller: MayWrite,
    if_match: IfMatch = None,
) -> Response:
    """Append items, all of them or none."""
    limits = service.config.limits
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    claim = claim_of(caller, f"items {found.id}", request.headers, asked.model_dump(exclude_unset=True))
    earlier = await earlier_run(store, claim)
    if earlier is not None:
        start, stop = map(int, earlier.split("-"))
        added = list(items_of(await store.load(found.id, since=start, limit=stop - start)))
        return Json(page(added, has_more=False), headers={**tag_of(found), **REPLAYED})
    items = usual(asked.items, limits)
    require_few(asked.items, limits)
    expected = expected_of(if_match, asked.expected_version)
    conversation, added = await add(service, caller, found.id, items, expected_version=expected, claim=claim)
    return Json(page(added, has_more=False), headers=tag_of(conversation))


@router.get("/items", responses={200: {"model": ItemPage}, **errors(404)}, dependencies=[INCLUDE])
async def list_items(
    service: Here,
    conversation_id: ConversationId,
    caller: MayRead,
    after: After = None,
    limit: Limit = 20,
    order: Order = "desc",
) -> Response:
    """The items of a conversation."""
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    if after is not None:
        try:
            position = await _position(service, caller, found, after)
        except RequestRefused:
            raise unknown_cursor() from None
    else:
        position = found.first if order == "asc" else found.length - 1
    data: list[dict[str, Any]] = []
    passed = after is None
    step = limit + 2
    while len(data) <= limit:
        start = position if order == "asc" else max(found.first, position - step + 1)
        stop = min(found.length, start + step) if order == "asc" else position + 1
        if start >= stop:
            break
        loaded = await store.load(found.id, since=start, limit=stop - start)
        items = list(items_of(loaded))
        for item in items if order == "asc" else reversed(items):
            if passed:
                data.append(item)
            passed = passed or item["id"] == after
        position = stop if order == "asc" else start - 1
    return Json(page(data[:limit], has_more=len(data) > limit), headers=tag_of(found))


@router.get("/items/{item_id}", responses={200: {"model": ItemObject}, **errors(404)}, dependencies=[INCLUDE])
async def retrieve_item(
    service: Here, conversation_id: ConversationId, item_id: ConversationId, caller: MayRead
) -> Response:
    """One item."""
    found = await seen(service, caller, conversation_id)
    position = await _position(service, caller, found, item_id)
    loaded = await service.store_of(caller).load(found.id, since=position, limit=1)
    return Json(next(item for item in items_at(position, loaded.entries[0]) if item["id"] == item_id))


@router.delete("/items/{item_id}", responses=errors(404, 405))
async def delete_item(
    service: Here, conversation_id: ConversationId, item_id: ConversationId, caller: MayWrite
) -> Response:
    """Always refused: the record only grows, and an item without the ones it answers would break it."""
    found = await seen(service, caller, conversation_id)
    await _position(service, caller, found, item_id)
    said = "Items are not deleted one by one. Fork the conversation before this item, or delete the conversation."
    raise RequestRefused(405, said, "items_are_kept", None, (("allow", "GET"), *FINAL.items()))


async def _position(service: Service, caller: Caller, conversation: Conversation, name: str) -> int:
    """Where an item stands.

    Raises:
        RequestRefused: the conversation has none of that id.
    """
    store, place = service.store_of(caller), place_of(name)
    if place is not None and conversation.first <= place.position < conversation.length:
        loaded = await store.load(conversation.id, since=place.position, limit=1)
        if any(item["id"] == name for item in items_at(place.position, loaded.entries[0])):
            return place.position
    loaded = await store.load(conversation.id, since=conversation.first)
    for position, entry in zip(loaded.positions, loaded.entries, strict=True):
        if any(item["id"] == name for item in items_at(position, entry)):
            return position
    raise RequestRefused(404, "There is no item of that id.", "item_not_found", "item_id")


@router.get("/turns", responses={200: {"model": TurnPage}, **errors(404)})
async def list_turns(
    service: Here,
    conversation_id: ConversationId,
    caller: MayRead,
    after: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
    limit: Limit = 20,
) -> Response:
    """What users said, each with all that was said until the next; `after` is the number of the turn before the page."""
    found = await seen(service, caller, conversation_id)
    loaded = await service.store_of(caller).load(found.id)
    ranges = turns(loaded.messages)
    first = 0 if after is None else after + 1
    data = [
        {
            "object": "conversation.turn",
            "number": number,
            "start": loaded.start + one.start,
            "stop": loaded.start + one.stop,
            "started_at": int(loaded.entries[one.start].created_at.timestamp()),
            "items": [item for at in one for item in items_at(loaded.start + at, loaded.entries[at])],
        }
        for number, one in enumerate(ranges)
    ]
    chosen = data[first : first + limit]
    return Json({"object": "list", "data": chosen, "has_more": first + limit < len(data)}, headers=tag_of(found))
