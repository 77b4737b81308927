"""What the model is sent of a conversation: what would be sent now, what was sent, and what is shown in place of old parts."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.conversation.minutes import REQUEST, CallSettings, digest, resent
from minutebook.conversation.model_call import ModelCall
from minutebook.errors import CannotFit, DocumentNotFound, FoldNotFound, RequestRefused
from minutebook.service.conversations.objects import seen, writing
from minutebook.service.conversations.routes import ConversationId, MayRead, MayWrite
from minutebook.service.http.openapi import (
    CompactionObject,
    CompactionPage,
    CompactionResult,
    ContextObject,
    RequestObject,
    RequestPage,
    errors,
)
from minutebook.service.http.requests import StrictRoute
from minutebook.service.http.responses import After, Json, Limit, each_item, new_id, paged, tag_of
from minutebook.service.responses.compact import compact_now
from minutebook.service.responses.items import items_of
from minutebook.service.state import Here, counter_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document, StoredFold
from minutebook.wire.responses import bare

router = APIRouter(prefix="/v1/conversations/{conversation_id}", tags=["conversations"], route_class=StrictRoute)
_PAGE = 200


class Compact(BaseModel):
    """How to compact."""

    model_config = ConfigDict(extra="forbid")
    keep_turns: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """So many of the newest turns stay as they are; 3, if nothing is said."""


@router.get("/context", responses={200: {"model": ContextObject}, **errors(404)})
async def show_context(
    service: Here,
    conversation_id: ConversationId,
    caller: MayRead,
    policy: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    model: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    budget: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None,
) -> Response:
    """What would be sent now, and why: nothing is asked, and nothing is changed."""
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    loaded = await store.load(found.id)
    if not loaded.entries:
        raise RequestRefused(400, "Nothing was said in this conversation yet.", "empty_conversation", "conversation_id")
    name = service.model_of(model)
    chosen = service.policy(name, policy)
    if budget is not None:
        chosen = replace(chosen, max_tokens=budget, mode="on")
    run = new_id("dry")
    settings = CallSettings(
        conversation=found.id, model=name, policy=chosen, counter=counter_of(name), run_id=run, request_id=run
    )
    call = ModelCall(store, settings, loaded, ())
    try:
        await call.rehearse()
    except CannotFit as error:
        said = f"What must be sent has {error.needed} tokens, more than the budget."
        raise RequestRefused(400, said, "context_length_exceeded", "budget") from None
    facts = {
        "object": "conversation.context",
        "conversation": found.id,
        "model": name,
        "policy": chosen.describe(),
        "mode": chosen.mode,
        "bypass": call.bypass,
        "messages": call.messages,
        "would_compact": call.notices,
        **{key: value for key, value in call.minutes.to_json().items() if key != "parts"},
    }
    return Json(facts, headers=tag_of(found))


@router.get("/requests", responses={200: {"model": RequestPage}, **errors(404)})
async def list_requests(
    service: Here, conversation_id: ConversationId, caller: MayRead, after: After = None, limit: Limit = 20
) -> Response:
    """Every call of the model for this conversation, the newest first: numbers, and no text."""
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    asked = [request_object(number, document) async for number, document in _requests(store, found.id)]
    return Json(paged(asked, limit=limit, order="desc", after=after))


@router.get("/requests/{request}", responses={200: {"model": RequestObject}, **errors(404)})
async def show_request(
    service: Here, conversation_id: ConversationId, request: ConversationId, caller: MayRead
) -> Response:
    """What one call was sent, beside the record. `request` is its id, or its number, counted from 1."""
    found = await seen(service, caller, conversation_id)
    store = service.store_of(caller)
    number, document = await _request(store, found.id, request)
    body = document.body
    loaded = await store.load(found.id, since=found.first, limit=max(0, body["length"] - found.first))
    record = dict(zip(loaded.positions, loaded.messages, strict=True))
    sent = resent(body["parts"], record)
    facts = {
        "record": list(items_of(loaded)),
        "sent": [bare(message) for message in sent],
        "agrees": digest(sent) == body["sha256"],
        "parts": body["parts"],
        "other_choices": body.get("other_choices", []),
    }
    return Json({**request_object(number, document), **facts})


async def _request(store: ConversationStore, conversation: str, name: str) -> tuple[int, Document]:
    async for number, document in _requests(store, conversation):
        if name in {document.id, str(number)}:
            return number, document
    raise DocumentNotFound(REQUEST, name)


async def _requests(store: ConversationStore, conversation: str) -> AsyncIterator[tuple[int, Document]]:
    """The requests of a conversation with their numbers, the first one first."""
    number = 0
    async for document in each_item(lambda at: store.documents(conversation, REQUEST, cursor=at, limit=_PAGE)):
        number += 1
        yield number, document


_SAID: Final = frozenset({"parts", "partial", "other_choices"})
"""What minutes hold of the words themselves; a list of requests has none of that."""


def request_object(number: int, document: Document) -> dict[str, Any]:
    """The minutes of a request, without what was sent."""
    body = {key: value for key, value in document.body.items() if key not in _SAID}
    head = {"id": document.id, "object": "conversation.request", "number": number}
    return {**head, "created_at": int(document.created_at.timestamp()), **body}


@router.post("/compact", responses={200: {"model": CompactionResult}, **errors(404, 409)})
async def compact_conversation(
    service: Here, conversation_id: ConversationId, caller: MayWrite, asked: Compact | None = None
) -> Response:
    """Show all but the last turns as a summary from now on. The record stays, and it can be reverted."""
    async with writing(service, caller, conversation_id) as (store, _):
        loaded = await store.load(conversation_id)
        shrunk = await compact_now(service, store, loaded, keep_turns=None if asked is None else asked.keep_turns)
    return Json(
        {
            "object": "conversation.compacted",
            "compactions": [fold_object(stored) for stored in shrunk.folds],
            "tokens_before": shrunk.tokens_before,
            "tokens_after": shrunk.tokens_after,
            "reason": shrunk.reason,
        }
    )


@router.get("/compactions", responses={200: {"model": CompactionPage}, **errors(404)})
async def list_compactions(service: Here, conversation_id: ConversationId, caller: MayRead) -> Response:
    """Every compaction there ever was, in the order in which they were made."""
    found = await seen(service, caller, conversation_id)
    folds = await service.store_of(caller).folds(found.id)
    return Json({"object": "list", "data": [fold_object(stored) for stored in folds], "has_more": False})


@router.get("/compactions/{compaction_id}", responses={200: {"model": CompactionObject}, **errors(404)})
async def show_compaction(
    service: Here, conversation_id: ConversationId, compaction_id: ConversationId, caller: MayRead
) -> Response:
    """One compaction."""
    found = await seen(service, caller, conversation_id)
    for stored in await service.store_of(caller).folds(found.id):
        if stored.fold.id == compaction_id:
            return Json(fold_object(stored))
    raise FoldNotFound(found.id, compaction_id)


@router.post("/compactions/{compaction_id}/revert", responses={200: {"model": CompactionObject}, **errors(404, 409)})
async def revert_compaction(
    service: Here, conversation_id: ConversationId, compaction_id: ConversationId, caller: MayWrite
) -> Response:
    """Show again what a compaction stands for. Reverting twice is reverting once."""
    async with writing(service, caller, conversation_id) as (store, _):
        stored = await store.undo_fold(conversation_id, compaction_id)
    await service.audit.note(caller, "undo", conversation_id)
    return Json(fold_object(stored))


def fold_object(stored: StoredFold) -> Mapping[str, Any]:
    """A compaction as an object."""
    fold = stored.fold
    return {
        "id": fold.id,
        "object": "conversation.compaction",
        "start": fold.start,
        "stop": fold.stop,
        "reason": fold.reason,
        "shown": [bare(message) for message in fold.shown],
        "created_at": int(stored.created_at.timestamp()),
        "reverted_at": None if stored.undone_at is None else int(stored.undone_at.timestamp()),
        "final": stored.sealed,
    }
