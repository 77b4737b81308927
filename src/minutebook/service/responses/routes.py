"""OpenAI's responses: made here, kept with their conversation, and told again from any event on."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from minutebook.errors import ConversationNotFound, DocumentNotFound, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.completions.routes import upstream_key
from minutebook.service.http.errors import RETRY_SOON
from minutebook.service.http.openapi import (
    CompactedObject,
    DeletedObject,
    InputTokens,
    ItemPage,
    ResponseObject,
    error_responses,
)
from minutebook.service.http.requests import StrictRoute, require_scope
from minutebook.service.http.responses import (
    INCLUDE_PARAMETER,
    OBFUSCATION_PARAMETER,
    EventStream,
    JsonResponse,
    Order,
    expected_version_of,
    new_id,
    page_after,
)
from minutebook.service.idempotency import RUN, UNFINISHED, claim_of
from minutebook.service.responses.compact import compacted
from minutebook.service.responses.items import items_of, sealed, usual
from minutebook.service.responses.objects import ended, events_from, found, told
from minutebook.service.responses.request import Input, ResponseRequest, chat_tools
from minutebook.service.responses.run import CANCEL, ResponseAnswer
from minutebook.service.runs import Run
from minutebook.service.state import Here, Service, counter_of, watch_connection
from minutebook.store.types import NewDocument
from minutebook.wire.chat import json_bytes
from minutebook.wire.responses import items_to_messages

router = APIRouter(prefix="/v1/responses", tags=["as OpenAI"], route_class=StrictRoute)
MayChat = Annotated[Caller, require_scope("chat")]
MayRead = Annotated[Caller, require_scope("read")]
ResponseId = Annotated[str, Path(min_length=1, max_length=200)]
_MADE: Any = {200: {"model": ResponseObject, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}


class CountRequest(Input):
    """What to count the tokens of."""


class CompactRequest(Input):
    """What to compact."""


@router.post("", responses={**_MADE, **error_responses(404, 409, 412, 422, 502, 504)})
async def create_response(
    service: Here,
    request: Request,
    asked: ResponseRequest,
    caller: MayChat,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """An answer that goes on in a conversation, after another response, or in a conversation of its own."""
    asked.require_possible()
    asked.chat(service.model_of(asked.model))
    headers = request.headers
    where = f"responses {asked.conversation_id or asked.previous_response_id or ''}"
    making = ResponseAnswer(
        service=service,
        caller=caller,
        asked=asked,
        items=usual(asked.input, service.config.limits),
        run=Run(new_id("resp"), caller.tenant, asked.conversation_id),
        claim=claim_of(caller, where, headers, asked.model_dump(exclude_unset=True)),
        authorization=upstream_key(service, request),
        recipient=caller.recipient or headers.get("x-recipient-id"),
        policy=headers.get("x-history-policy"),
        expected_version=expected_version_of(if_match, asked.expected_version),
    )
    items_to_messages(making.items)
    try:
        earlier = None if asked.store is False else await _earlier(service, making)
        if earlier is not None:
            return earlier
        service.runs.start(making.run, making.make())
        return await _answer(service, making, request)
    except StoreUnavailable:
        optional = service.config.database.optional and not making.run.events
        if not optional or asked.conversation is not None or asked.previous_response_id is not None or asked.background:
            raise
    making.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
    service.metrics.unrecorded()
    making.run = Run(making.run.id, caller.tenant, None)
    service.runs.start(making.run, making.unrecorded())
    return await _answer(service, making, request)


async def _answer(service: Service, making: ResponseAnswer, request: Request) -> Response:
    run = making.run
    if not making.asked.background:
        watch_connection(service, request, run)
    if making.asked.stream:
        await run.begun()
        events = run.told(heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=making.headers)
    if making.asked.background:
        await _first(making.begun, run)
    else:
        async for _ in run.follow():
            pass
    assert making.told is not None, "a run that ended without an error has told its end"
    if making.asked.background or making.failure is None:
        return JsonResponse(making.told.object(), headers=making.headers)
    if making.told.status == "cancelled":
        said = "The server stops, or another took over. Ask again."
        raise RequestRefused(503, said, "cancelled", None, tuple(RETRY_SOON.items()))
    if making.told.status == "failed":
        raise making.failure
    return JsonResponse(making.told.object(), headers=making.headers)


async def _first(begun: asyncio.Event, run: Run) -> None:
    """Wait until a background response is written down, or cannot be."""
    waiting = asyncio.create_task(begun.wait())
    assert run.task is not None
    await asyncio.wait({waiting, run.task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not begun.is_set() and run.failure is not None:
        raise run.failure


async def _earlier(service: Service, making: ResponseAnswer) -> Response | None:
    """The answer to the same request, if it came before and need not be made again."""
    try:
        document = await making.find_earlier()
    except DocumentNotFound:  # deleted meanwhile
        return None
    if document is None:
        return None
    headers = {"idempotent-replayed": "true", "x-conversation-id": document.conversation}
    if making.asked.stream:
        events = events_from(service, making.caller, document.id, -1)
        return EventStream(events, headers=headers)
    return JsonResponse((await told(service.store_of(making.caller), document)).object(), headers=headers)


@router.post("/input_tokens", responses={200: {"model": InputTokens}, **error_responses(404)})
async def count_input_tokens(service: Here, asked: CountRequest, caller: MayRead) -> Response:
    """How many tokens a request would have, before anything is left out."""
    messages, model = await _whole(service, asked, caller)
    counter = counter_of(model)
    tools = counter.count(json_bytes(chat_tools(asked.tools)).decode()) if asked.tools else 0
    tokens = sum(map(counter.message, messages)) + tools
    return JsonResponse({"object": "response.input_tokens", "input_tokens": tokens})


@router.post("/compact", responses={200: {"model": CompactedObject}, **error_responses(404)})
async def compact_input(service: Here, asked: CompactRequest, caller: MayRead) -> Response:
    """Items that say in fewer words what a longer list says. They are not stored: hand them back with the next request."""
    messages, model = await _whole(service, asked, caller)
    if not messages:
        raise RequestRefused(400, "There is nothing to compact: give an input.", "missing_input", "input")
    item = sealed(await compacted(messages, model), new_id("cmp"))
    nothing = {"cached_tokens": 0, "cache_write_tokens": 0}
    usage = {"input_tokens": 0, "input_tokens_details": nothing, "output_tokens": 0, "total_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    facts = {"id": new_id("resp"), "object": "response.compaction", "created_at": int(time.time())}
    return JsonResponse({**facts, "output": [item], "usage": usage})


async def _whole(service: Service, asked: Input, caller: Caller) -> tuple[list[Any], str]:
    """Everything that a request stands for, as messages."""
    asked.require_one_place()
    asking = ResponseAnswer(
        service=service,
        caller=caller,
        asked=ResponseRequest(conversation=asked.conversation, previous_response_id=asked.previous_response_id),
        items=(),
        claim=claim_of(caller, "", {}, {}),
        run=Run("", caller.tenant, None),
    )
    place = await asking.place(None)
    head = [{"role": "system", "content": asked.instructions}] if asked.instructions is not None else []
    known = [] if place.loaded is None else place.loaded.messages
    new = items_to_messages(usual(asked.input, service.config.limits))
    return [*head, *known, *new], service.model_of(asked.model)


@router.get(
    "/{response_id}",
    responses={**_MADE, **error_responses(404)},
    dependencies=[INCLUDE_PARAMETER, OBFUSCATION_PARAMETER],
)
async def retrieve_response(
    service: Here,
    response_id: ResponseId,
    caller: MayRead,
    stream: Annotated[bool, Query()] = False,
    starting_after: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
) -> Response:
    """A response as it is now; with `stream`, everything that was told after an event, and what is still to come."""
    document = await found(service, caller, response_id)
    headers = {"x-conversation-id": document.conversation}
    if not stream:
        if starting_after is not None:
            raise RequestRefused(400, "starting_after needs stream=true.", "missing_stream", "starting_after")
        return JsonResponse((await told(service.store_of(caller), document)).object(), headers=headers)
    events = events_from(service, caller, response_id, -1 if starting_after is None else starting_after)
    return EventStream(events, headers=headers)


@router.delete("/{response_id}", responses={200: {"model": DeletedObject}, **error_responses(404)})
async def delete_response(
    service: Here, response_id: ResponseId, caller: Annotated[Caller, require_scope("write")]
) -> Response:
    """Forget a response. What was said stays in its conversation; erase that to remove it."""
    document = await found(service, caller, response_id)
    if document.body["status"] in UNFINISHED:
        said = "The response is still being made. Cancel it first, or wait."
        raise RequestRefused(409, said, "response_in_progress", None, (("retry-after-ms", "500"),))
    await service.store_of(caller).delete_document(RUN, response_id)
    return JsonResponse({"id": response_id, "object": "response", "deleted": True})


@router.post("/{response_id}/cancel", responses={200: {"model": ResponseObject}, **error_responses(404)})
async def cancel_response(service: Here, response_id: ResponseId, caller: MayChat) -> Response:
    """Stop a background response; one that has ended stays as it is."""
    store = service.store_of(caller)
    document = await found(service, caller, response_id)
    if not document.body["echo"]["background"]:
        said = "Only a background response can be cancelled. For another, close the stream with ?on_disconnect=cancel."
        raise RequestRefused(400, said, "not_in_background", "response_id")
    if document.body["status"] in UNFINISHED:
        run = service.runs.get(response_id, caller.tenant)
        if run is not None:
            await service.runs.cancel(run)
        else:
            await store.put_document(document.conversation, NewDocument(CANCEL, response_id, {}, replace=True))
        document = await ended(service, caller, response_id)
    return JsonResponse((await told(store, document)).object())


@router.get(
    "/{response_id}/input_items",
    responses={200: {"model": ItemPage}, **error_responses(404)},
    dependencies=[INCLUDE_PARAMETER],
)
async def list_input_items(
    service: Here,
    response_id: ResponseId,
    caller: MayRead,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Order = "desc",
    after: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """What the caller sent."""
    document = await found(service, caller, response_id)
    start, stop = document.body["input"]
    try:
        loaded = await service.store_of(caller).load(document.conversation, since=start, limit=stop - start)
    except ConversationNotFound:
        raise DocumentNotFound(RUN, response_id) from None
    return JsonResponse(page_after(list(items_of(loaded)), limit=limit, order=order, after=after))
