"""The routes of OpenAI's Responses API.

Responses are stored with their conversation. Their events can be read again from any position.
"""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from minutebook.errors import ConversationNotFound, DocumentNotFound, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.answer_job import message_tokens, tool_tokens
from minutebook.service.completions.reconcile import identity_of, is_stored, unstored_headers
from minutebook.service.completions.routes import upstream_key
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
    require_version,
)
from minutebook.service.idempotency import RUN_KIND, UNFINISHED, idempotency_key_of
from minutebook.service.responses.compaction import compact_messages
from minutebook.service.responses.continuation import load_continued
from minutebook.service.responses.items import compaction_item, items_of, missing_input, read_input, require_metadata
from minutebook.service.responses.objects import find_response, load_response, stream_response, wait_for_response
from minutebook.service.responses.request import InputRequest, ResponseRequest, chat_tools
from minutebook.service.responses.run import CANCEL_KIND, ResponseJob
from minutebook.service.runs import OPEN_SECONDS, Run
from minutebook.service.state import CurrentService, Service, cancels_on_disconnect, watch_connection
from minutebook.store.types import NewDocument

router = APIRouter(prefix="/v1/responses", tags=["as OpenAI"], route_class=StrictRoute)
MayChat = Annotated[Caller, require_scope("chat")]
MayRead = Annotated[Caller, require_scope("read")]
ResponseId = Annotated[str, Path(min_length=1, max_length=200)]
_RESPONSE: Any = {200: {"model": ResponseObject, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}


class CountRequest(InputRequest):
    """The body of a request that counts tokens."""


class CompactRequest(InputRequest):
    """The body of a request that compacts items."""


@router.post("", responses={**_RESPONSE, **error_responses(404, 409, 412, 422, 502, 504)})
async def create_response(
    service: CurrentService,
    request: Request,
    body: ResponseRequest,
    caller: MayChat,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Create a response that continues a conversation, an earlier response, or a new conversation."""
    if not is_stored(request.headers):
        body.store = False
    body.require_consistency()
    cancels = cancels_on_disconnect(service, request)
    require_metadata(body.metadata, service.config.limits)
    body.chat_parameters(service.model_of(body.model))  # raises an error if a parameter is invalid
    headers, resend = request.headers, service.config.server.history_resend
    recipient = caller.recipient or headers.get("x-recipient-id")
    is_continued = body.conversation is not None or body.previous_response_id is not None
    identity = None if is_continued or body.store is False else identity_of(headers, {}, resend)
    conversation = body.conversation_id or (identity.conversation if identity is not None else None)
    scope = ("responses", conversation or body.previous_response_id, recipient)
    items, messages = await read_input(body.input, service.config.limits)
    job = ResponseJob(
        service=service,
        caller=caller,
        request=body,
        items=items,
        messages=messages,
        run=Run(new_id("resp"), caller.tenant, conversation),
        idempotency_key=idempotency_key_of(caller, scope, headers, await request.body()),
        authorization=upstream_key(service, request),
        recipient=recipient,
        identity=identity,
        policy=headers.get("x-history-policy"),
        expected_version=expected_version_of(if_match, body.expected_version),
    )
    if conversation is not None:
        job.headers["x-conversation-id"] = conversation
    if body.store is False:
        job.headers |= {**unstored_headers(headers), "x-history": "off"}
    try:
        earlier_answer = None if body.store is False else await _replay_earlier(service, job)
        if earlier_answer is not None:
            return earlier_answer
        service.runs.start(job.run, job.execute())
        if conversation is None and body.store is not False:
            await _wait_for(job.conversation_named, job.run)
        return await _respond(service, job, request, cancels=cancels)
    except StoreUnavailable:
        can_continue = service.config.database.optional and not job.run.events  # no event was sent
        needs_store = is_continued or body.background
        if not can_continue or needs_store:
            raise
    job.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
    service.metrics.count_unrecorded()
    job.run = Run(job.run.id, caller.tenant, None)
    service.runs.start(job.run, job.run_unrecorded())
    return await _respond(service, job, request, cancels=cancels)


async def _respond(service: Service, job: ResponseJob, request: Request, *, cancels: bool) -> Response:
    """The response as a stream, or as JSON when it has ended. A background response is returned when its input is stored."""
    run = job.run
    if not job.request.background:
        watch_connection(service, request, run, cancels=cancels or job.request.store is False)
    if job.request.stream:
        await run.wait_for_first_event(timeout_seconds=OPEN_SECONDS)
        events = run.stream(heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=job.headers)
    if job.request.background:
        await _wait_for(job.input_stored, run)
    else:
        async for _ in run.follow():
            pass
    assert job.response is not None, "a run that ended without an error has a response"
    if not job.request.background and job.error is not None and job.response.status == "failed":
        raise job.error
    return JsonResponse(job.response.to_json(), headers=job.headers)


async def _wait_for(event: asyncio.Event, run: Run) -> None:
    """Wait until the run has set an event, such as that of its stored input.

    Raises:
        Exception: the error that ended the run before that.
    """
    if event.is_set():
        return
    waiter = asyncio.create_task(event.wait())
    assert run.task is not None
    await asyncio.wait({waiter, run.task}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not event.is_set() and run.error is not None:
        raise run.error


async def _replay_earlier(service: Service, job: ResponseJob) -> Response | None:
    """The answer of an earlier attempt of the same request; None if there is none."""
    try:
        document = await job.find_earlier()
    except DocumentNotFound:  # deleted meanwhile
        return None
    if document is None:
        return None
    headers = {"idempotent-replayed": "true", "x-conversation-id": document.conversation}
    if job.request.stream:
        return EventStream(stream_response(service, job.caller, document.id, -1), headers=headers)
    response = await load_response(service.store_of(job.caller), document)
    return JsonResponse(response.to_json(), headers=headers)


@router.post("/input_tokens", responses={200: {"model": InputTokens}, **error_responses(404)})
async def count_input_tokens(service: CurrentService, body: CountRequest, caller: MayRead) -> Response:
    """Count the tokens of a request and the history that it continues, before pruning."""
    messages, model = await _read_messages(service, body, caller), service.model_of(body.model)
    tokens = await tool_tokens(model, chat_tools(body.tools) if body.tools else None)
    tokens += await message_tokens(model, messages)
    return JsonResponse({"object": "response.input_tokens", "input_tokens": tokens})


@router.post("/compact", responses={200: {"model": CompactedObject}, **error_responses(404)})
async def compact_input(service: CurrentService, body: CompactRequest, caller: MayRead) -> Response:
    """Compact items into one compaction item. It is not stored: send it with the next request."""
    messages = await _read_messages(service, body, caller)
    if not messages:
        raise missing_input()
    compacted = await asyncio.to_thread(compact_messages, messages, service.model_of(body.model))
    response = {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [compaction_item(compacted, new_id("cmp"))],
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "total_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    return JsonResponse(response)


async def _read_messages(service: Service, body: InputRequest, caller: Caller) -> list[Any]:
    """The messages of a request, with its instructions and the history that it continues."""
    body.require_one_continuation()
    continued = await load_continued(service, caller, body)
    instructions = [{"role": "system", "content": body.instructions}] if body.instructions is not None else []
    history = [] if continued.record is None else continued.record.messages[continued.record.first :]
    _, new_messages = await read_input(body.input, service.config.limits)
    return [*instructions, *history, *new_messages]


@router.get(
    "/{response_id}",
    responses={**_RESPONSE, **error_responses(404)},
    dependencies=[INCLUDE_PARAMETER, OBFUSCATION_PARAMETER],
)
async def retrieve_response(
    service: CurrentService,
    response_id: ResponseId,
    caller: MayRead,
    stream: Annotated[bool, Query()] = False,
    starting_after: Annotated[int | None, Query(ge=0, le=1_000_000_000)] = None,
) -> Response:
    """The current state of a response; with `stream`, its events after `starting_after`, also those still to come."""
    document = await find_response(service, caller, response_id)
    headers = {"x-conversation-id": document.conversation}
    if not stream:
        if starting_after is not None:
            raise RequestRefused(400, "`starting_after` requires `stream=true`.", "missing_stream", "starting_after")
        return JsonResponse((await load_response(service.store_of(caller), document)).to_json(), headers=headers)
    events = stream_response(service, caller, response_id, -1 if starting_after is None else starting_after)
    return EventStream(events, headers=headers)


@router.delete("/{response_id}", responses={200: {"model": DeletedObject}, **error_responses(404, 412)})
async def delete_response(
    service: CurrentService,
    response_id: ResponseId,
    caller: Annotated[Caller, require_scope("write")],
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Delete a response. Its messages stay in the conversation."""
    document = await find_response(service, caller, response_id)
    conversation = await service.store_of(caller).header(document.conversation)
    require_version(conversation, expected_version_of(if_match))
    if document.body["status"] in UNFINISHED:
        problem = "The response is in progress. Cancel it first, or wait until it has finished."
        raise RequestRefused(409, problem, "response_in_progress", None, (("retry-after-ms", "500"),))
    await service.store_of(caller).delete_document(RUN_KIND, response_id)
    return JsonResponse({"id": response_id, "object": "response", "deleted": True})


@router.post("/{response_id}/cancel", responses={200: {"model": ResponseObject}, **error_responses(404, 412)})
async def cancel_response(
    service: CurrentService,
    response_id: ResponseId,
    caller: MayChat,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Cancel a background response. It is unchanged if it has ended."""
    store = service.store_of(caller)
    document = await find_response(service, caller, response_id)
    require_version(await store.header(document.conversation), expected_version_of(if_match))
    if not document.body["echo"]["background"]:
        problem = (
            "Only a background response can be cancelled. To cancel another response by closing its connection, create it "
            "with ?on_disconnect=cancel."
        )
        raise RequestRefused(400, problem, "not_in_background", "response_id")
    if document.body["status"] in UNFINISHED:
        run = service.runs.get(response_id, caller.tenant)
        if run is not None:
            await service.runs.cancel(run)
        else:
            await store.put_document(document.conversation, NewDocument(CANCEL_KIND, response_id, {}, replace=True))
        document = await wait_for_response(service, caller, response_id)
    return JsonResponse((await load_response(store, document)).to_json())


@router.get(
    "/{response_id}/input_items",
    responses={200: {"model": ItemPage}, **error_responses(404)},
    dependencies=[INCLUDE_PARAMETER],
)
async def list_input_items(
    service: CurrentService,
    response_id: ResponseId,
    caller: MayRead,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Order = "desc",
    after: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """A page of the items that the client sent."""
    document = await find_response(service, caller, response_id)
    start, stop = document.body["input"]
    try:
        loaded = await service.store_of(caller).load(document.conversation, since=start, limit=stop - start)
    except ConversationNotFound:
        raise DocumentNotFound(RUN_KIND, response_id) from None
    return JsonResponse(page_after(list(items_of(loaded)), limit=limit, order=order, after=after))
