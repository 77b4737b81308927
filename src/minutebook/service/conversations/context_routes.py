"""Endpoints for the views of a conversation: the next view, the views of past requests, and compactions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.conversation.minutes import CallSettings, messages_digest, sent_messages
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.requests import find_request, read_requests
from minutebook.errors import CannotFit, FoldNotFound, RequestRefused
from minutebook.service.conversations.objects import hold_for_writing, read_header
from minutebook.service.conversations.routes import ConversationId, IfMatch, MayRead, MayWrite
from minutebook.service.http.openapi import (
    CompactedConversationObject,
    CompactionObject,
    CompactionPage,
    ContextObject,
    RequestObject,
    RequestPage,
    error_responses,
)
from minutebook.service.http.requests import StrictRoute
from minutebook.service.http.responses import (
    After,
    JsonResponse,
    Limit,
    etag_header,
    expected_version_of,
    new_id,
    page_after,
)
from minutebook.service.responses.compaction import compact_now
from minutebook.service.responses.items import items_of
from minutebook.service.state import CurrentService, counter_of
from minutebook.store.types import Document, StoredFold
from minutebook.wire.write import without_own_keys

router = APIRouter(prefix="/v1/conversations/{conversation_id}", tags=["conversations"], route_class=StrictRoute)


class CompactionRequest(BaseModel):
    """The body of a compaction request."""

    model_config = ConfigDict(extra="forbid")
    keep_turns: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)
    """The number of newest turns that are not compacted. Default: 3."""


@router.get("/context", responses={200: {"model": ContextObject}, **error_responses(404)})
async def show_context(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayRead,
    policy: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    model: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    budget: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None,
) -> Response:
    """The view that a model would be sent now, and why. It is a dry run: no model is called, nothing is changed."""
    conversation = await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    loaded = await store.load(conversation.id)
    if not loaded.entries:
        raise RequestRefused(400, "The conversation has no messages yet.", "empty_conversation", "conversation_id")
    model = service.model_of(model)
    active_policy = service.policy(model, policy)
    if budget is not None:
        active_policy = replace(active_policy, max_tokens=budget, mode="on")
    run_id = new_id("dry")
    settings = CallSettings(
        conversation=conversation.id,
        model=model,
        policy=active_policy,
        counter=counter_of(model),
        run_id=run_id,
        request_id=run_id,
    )
    call = ModelCall(store, settings, loaded, ())
    try:
        await call.preview()
    except CannotFit as error:
        problem = f"The view needs at least {error.needed:,} tokens, but the budget is {error.max_tokens:,}."
        raise RequestRefused(400, problem, "context_length_exceeded", "budget") from None
    context = {
        "object": "conversation.context",
        "conversation": conversation.id,
        "model": model,
        "policy": active_policy.describe(),
        "mode": active_policy.mode,
        "bypass": call.bypass,
        "messages": call.messages,
        "would_compact": list(map(str, call.compactions)),
        **{key: value for key, value in call.minutes.to_json().items() if key != "parts"},
    }
    return JsonResponse(context, headers=etag_header(conversation))


@router.get("/requests", responses={200: {"model": RequestPage}, **error_responses(404)})
async def list_requests(
    service: CurrentService, conversation_id: ConversationId, caller: MayRead, after: After = None, limit: Limit = 20
) -> Response:
    """The model calls of this conversation, newest first, without message contents."""
    conversation = await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    requests = [request_object(number, document) async for number, document in read_requests(store, conversation.id)]
    return JsonResponse(page_after(requests, limit=limit, order="desc", after=after))


@router.get("/requests/{request}", responses={200: {"model": RequestObject}, **error_responses(404)})
async def show_request(
    service: CurrentService, conversation_id: ConversationId, request: ConversationId, caller: MayRead
) -> Response:
    """The messages that one model call was sent, and the record at that time. `request` is an id or a number from 1."""
    conversation = await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    is_number = request.isascii() and request.isdecimal()
    number, document = await find_request(store, conversation.id, int(request) if is_number else request)
    minutes = document.body
    loaded = await store.load(
        conversation.id, since=conversation.first, limit=max(0, minutes["length"] - conversation.first)
    )
    record = dict(zip(loaded.positions, loaded.messages, strict=True))
    sent = sent_messages(minutes["parts"], record)
    contents = {
        "record": list(items_of(loaded)),
        "sent": [without_own_keys(message) for message in sent],
        "agrees": messages_digest(sent) == minutes["sha256"],
        "parts": minutes["parts"],
        "other_choices": minutes.get("other_choices", []),
    }
    return JsonResponse({**request_object(number, document), **contents})


_CONTENT_FIELDS: Final = frozenset({"parts", "partial", "other_choices"})
"""Fields of the minutes that contain message contents."""


def request_object(number: int, document: Document) -> dict[str, Any]:
    """The minutes of a request, without message contents."""
    fields = {key: value for key, value in document.body.items() if key not in _CONTENT_FIELDS}
    head = {"id": document.id, "object": "conversation.request", "number": number}
    return {**head, "created_at": int(document.created_at.timestamp()), **fields}


@router.post("/compact", responses={200: {"model": CompactedConversationObject}, **error_responses(404, 409, 412)})
async def compact_conversation(
    service: CurrentService,
    conversation_id: ConversationId,
    caller: MayWrite,
    body: CompactionRequest | None = None,
    if_match: IfMatch = None,
) -> Response:
    """Replace all but the last turns with a summary in the view for models. This can be reverted: the record is unchanged."""
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        loaded = await store.load(conversation_id)
        result = await compact_now(service, store, loaded, keep_turns=None if body is None else body.keep_turns)
    return JsonResponse(
        {
            "object": "conversation.compacted",
            "compactions": [fold_object(stored) for stored in result.folds],
            "tokens_before": result.tokens_before,
            "tokens_after": result.tokens_after,
            "reason": result.reason,
        }
    )


@router.get("/compactions", responses={200: {"model": CompactionPage}, **error_responses(404)})
async def list_compactions(service: CurrentService, conversation_id: ConversationId, caller: MayRead) -> Response:
    """All compactions, including reverted ones, in the order of their creation."""
    conversation = await read_header(service, caller, conversation_id)
    folds = await service.store_of(caller).folds(conversation.id)
    return JsonResponse({"object": "list", "data": [fold_object(stored) for stored in folds], "has_more": False})


@router.get("/compactions/{compaction_id}", responses={200: {"model": CompactionObject}, **error_responses(404)})
async def show_compaction(
    service: CurrentService, conversation_id: ConversationId, compaction_id: ConversationId, caller: MayRead
) -> Response:
    """One compaction."""
    conversation = await read_header(service, caller, conversation_id)
    for stored in await service.store_of(caller).folds(conversation.id):
        if stored.fold.id == compaction_id:
            return JsonResponse(fold_object(stored))
    raise FoldNotFound(conversation.id, compaction_id)


@router.post(
    "/compactions/{compaction_id}/revert",
    responses={200: {"model": CompactionObject}, **error_responses(404, 409, 412)},
)
async def revert_compaction(
    service: CurrentService,
    conversation_id: ConversationId,
    compaction_id: ConversationId,
    caller: MayWrite,
    if_match: IfMatch = None,
) -> Response:
    """Undo a compaction: models get the original messages again. Reverting twice has no further effect."""
    expected_version = expected_version_of(if_match)
    async with hold_for_writing(service, caller, conversation_id, expected_version=expected_version) as (store, _):
        stored = await store.undo_fold(conversation_id, compaction_id)
    await service.audit.note(caller, "undo", conversation_id)
    return JsonResponse(fold_object(stored))


def fold_object(stored: StoredFold) -> Mapping[str, Any]:
    """A fold as a compaction object."""
    fold = stored.fold
    return {
        "id": fold.id,
        "object": "conversation.compaction",
        "start": fold.start,
        "stop": fold.stop,
        "reason": fold.reason,
        "shown": [without_own_keys(message) for message in fold.shown],
        "created_at": int(stored.created_at.timestamp()),
        "reverted_at": None if stored.undone_at is None else int(stored.undone_at.timestamp()),
        "final": stored.sealed,
    }
