"""Endpoints of threads: a client posts a message and gets the answer as a stream of events; both are stored.

A thread is a conversation. Its tools and its system prompt come from the configuration. An answer continues when the
client disconnects, unless `on_disconnect` is `cancel`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.errors import DocumentExists, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.agent_tools import Agents, CurrentAgents
from minutebook.service.completions.reconcile import is_stored
from minutebook.service.completions.routes import upstream_key
from minutebook.service.conversations.objects import entries_of
from minutebook.service.http.json_codec import json_bytes
from minutebook.service.http.openapi import error_responses
from minutebook.service.http.requests import StrictRoute, require_access, require_scope
from minutebook.service.http.responses import EventStream, JsonResponse, etag_header, new_id
from minutebook.service.idempotency import (
    IdempotencyKey,
    find_earlier_answer,
    find_earlier_result_id,
    idempotency_key_of,
)
from minutebook.service.responses.items import require_metadata
from minutebook.service.runs import OPEN_SECONDS
from minutebook.service.state import CurrentService, Service, cancels_on_disconnect, watch_connection
from minutebook.service.threads.events import StreamPosition, ThreadRun, parse_event_id
from minutebook.service.threads.objects import (
    API_NAME,
    exposes_tool_details,
    local_run,
    read_messages,
    resume_run,
    start_replay,
)
from minutebook.service.threads.run import DRAFT_ID_PREFIX, Question, ThreadJob
from minutebook.store.codec import cursor_of, cursor_values
from minutebook.store.types import ConversationHeader


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create the resources that agents share, and close them at shutdown, after the running answers have finished."""
    service: Service = app.state.service
    agents = app.state.agents = Agents(service)
    yield
    await service.runs.drain()
    await agents.aclose()


router = APIRouter(prefix="/threads", tags=["threads"], route_class=StrictRoute, lifespan=lifespan)
MayChat = Annotated[Caller, require_scope("chat")]
MayRead = Annotated[Caller, require_scope("read")]
Limit = Annotated[int, Query(ge=1, le=100)]
_PART_VALUES: Final[Mapping[str, type]] = {"text": str, "image_url": dict, "input_audio": dict, "file": dict}
"""`type` of a content part → Python type of its value. The key of the value has the same name as the `type`."""
_RESERVED_OPTIONS: Final = frozenset({"model", "messages", "stream", "stream_options", "tools", "tool_choice", "n"})
"""Provider options that the service sets itself."""


class NewThread(BaseModel):
    """The body of a request that creates a thread."""

    model_config = ConfigDict(extra="forbid")

    recipient: str | None = Field(default=None, min_length=1, max_length=200)
    """The user that the thread is with. Erasing the recipient erases the thread."""
    metadata: dict[str, str] = Field(default_factory=dict)


@router.post("", status_code=201, responses=error_responses(409, 422))
async def create_thread(
    service: CurrentService, request: Request, caller: MayChat, body: NewThread | None = None
) -> Response:
    """Create a thread. It starts with the system prompt, if one is configured."""
    body = body or NewThread()
    fields = body.model_dump()
    scope = ("threads", None, caller.recipient)
    idempotency_key = idempotency_key_of(caller, scope, request.headers, await request.body())
    require_metadata(body.metadata, service.config.limits)
    if caller.recipient is not None and body.recipient not in {None, caller.recipient}:
        raise RequestRefused(403, "This API key is bound to another recipient.", "foreign_recipient", "recipient")
    try:
        return await _create_stored_thread(service, caller, body, idempotency_key)
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
    service.metrics.count_unrecorded()
    thread = {
        "id": new_id(DRAFT_ID_PREFIX.rstrip("_")),
        "object": "thread",
        "created_at": int(datetime.now(UTC).timestamp()),
    }
    return JsonResponse(
        {**thread, **fields, "version": 0, "turns": 0}, status_code=201, headers={"x-history": "unrecorded"}
    )


async def _create_stored_thread(
    service: Service, caller: Caller, body: NewThread, idempotency_key: IdempotencyKey
) -> Response:
    store = service.store_of(caller)
    thread_id = await find_earlier_result_id(store, idempotency_key) if idempotency_key.from_header else None
    is_replay = thread_id is not None
    if thread_id is None:
        thread_id = new_id("thread")
        prompt = service.config.system_prompt
        messages = () if prompt is None else ({"role": "system", "content": prompt},)
        try:
            await store.append(
                thread_id,
                entries_of(messages),
                recipient=caller.recipient or body.recipient,
                labels=body.metadata,
                expected_version=0,
                documents=[idempotency_key.document(thread_id)] if idempotency_key.from_header else [],
            )
        except DocumentExists:  # a concurrent request with the same idempotency key
            thread_id, is_replay = await find_earlier_result_id(store, idempotency_key) or thread_id, True
    thread = await store.header(thread_id)
    headers = {**etag_header(thread), "x-history": "recorded"} | ({"idempotent-replayed": "true"} if is_replay else {})
    return JsonResponse(thread_json(thread), status_code=201, headers=headers)


@router.get("", responses=error_responses())
async def list_threads(
    service: CurrentService, caller: MayRead, limit: Limit = 20, cursor: str | None = None, recipient: str | None = None
) -> Response:
    """A page of threads, newest first."""
    if caller.recipient is not None and recipient not in {None, caller.recipient}:
        return JsonResponse(page_of([], None))
    store = service.read_store_of(caller)
    page = await store.list(recipient=caller.recipient or recipient, cursor=cursor, limit=limit)
    return JsonResponse(page_of([thread_json(thread) for thread in page.items], page.cursor))


@router.get("/{thread_id}", responses=error_responses(404))
async def get_thread(service: CurrentService, caller: MayRead, thread_id: str) -> Response:
    """One thread, without its messages."""
    thread = require_access(caller, await service.store_of(caller).header(thread_id))
    return JsonResponse(thread_json(thread), headers=etag_header(thread))


def thread_json(thread: ConversationHeader) -> dict[str, Any]:
    return {
        "id": thread.id,
        "object": "thread",
        "created_at": int(thread.created_at.timestamp()),
        "updated_at": int(thread.updated_at.timestamp()),
        "recipient": thread.recipient,
        "metadata": dict(thread.labels),
        "status": str(thread.status),
        "version": thread.version,
        "turns": thread.turns,
    }


class NewMessage(BaseModel):
    """A user message: either `text`, or `content` as in chat completions."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, min_length=1)
    content: str | list[dict[str, Any]] | None = None
    model: str = Field(default="", max_length=200)
    policy: str | None = Field(default=None, max_length=200)
    options: dict[str, Any] = Field(default_factory=dict)
    """Further parameters of the provider call, such as temperature."""


_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer as server-sent events, or as one JSON object (`Accept: application/json`).",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/{thread_id}/messages", responses=error_responses(404))
async def list_messages(
    service: CurrentService, caller: MayRead, thread_id: str, limit: Limit = 20, cursor: str | None = None
) -> Response:
    """A page of messages, oldest first: user messages, and answers with the tools that they used."""
    store = service.store_of(caller)
    require_access(caller, await store.header(thread_id))
    (start,) = cursor_values(cursor, int) or (0,)
    thread, page = await read_messages(store, thread_id, start=start, limit=limit)
    expose = exposes_tool_details(service)
    data = [message.to_json(thread_id, expose_tool_details=expose) for message in page.messages]
    next_cursor = None if page.next is None else cursor_of(page.next)
    return JsonResponse(page_of(data, next_cursor), headers=etag_header(thread))


@router.post("/{thread_id}/messages", responses={**_EVENTS, **error_responses(404, 409, 412, 422, 502, 504)})
async def create_message(
    service: CurrentService, agents: CurrentAgents, request: Request, caller: MayChat, thread_id: str, body: NewMessage
) -> Response:
    """Post a message and get the answer, as server-sent events or as one JSON object (`Accept: application/json`).

    With `Last-Event-ID` no message is posted: the answer continues after that event.
    """
    if "last-event-id" in request.headers:
        return await _resume(service, request, caller, thread_id, parse_event_id(request.headers["last-event-id"]))
    if not is_stored(request.headers):
        problem = "The messages of a thread are always stored. Send the request to /v1/chat/completions instead."
        raise RequestRefused(400, problem, "invalid_history", "X-History")
    cancels = cancels_on_disconnect(service, request)
    question = _question(service, thread_id, body, request.headers.get("if-match"))
    scope = ("messages", thread_id, caller.recipient)
    idempotency_key = idempotency_key_of(caller, scope, request.headers, await request.body())
    run = await _find_earlier_run(service, caller, thread_id, idempotency_key)
    if run is not None:
        return await _respond(service, request, run, headers={"idempotent-replayed": "true"})
    run = ThreadRun(new_id("run"), caller.tenant, thread_id)
    job = ThreadJob(
        service=service,
        agents=agents,
        caller=caller,
        idempotency_key=idempotency_key,
        authorization=upstream_key(service, request),
        policy=body.policy or request.headers.get("x-history-policy") or service.config.conversation.threads_policy,
        question=question,
        run=run,
    )
    service.runs.start(run, job.execute())
    watch_connection(service, request, run, cancels=cancels)
    return await _respond(service, request, run)


@router.get("/{thread_id}/runs/{run_id}/events", responses={**_EVENTS, **error_responses(404, 409)})
async def get_events(
    service: CurrentService, request: Request, caller: MayRead, thread_id: str, run_id: str
) -> Response:
    """The events of an answer, from the start or after `Last-Event-ID`."""
    position = StreamPosition(run_id)
    if "last-event-id" in request.headers:
        position = parse_event_id(request.headers["last-event-id"])
        if position.run != run_id:
            raise RequestRefused(400, "Last-Event-ID belongs to another run.", "invalid_event_id")
    return await _resume(service, request, caller, thread_id, position)


async def _resume(
    service: Service, request: Request, caller: Caller, thread_id: str, position: StreamPosition
) -> Response:
    if caller.recipient is not None or local_run(service, caller, thread_id, position.run) is None:
        require_access(caller, await service.store_of(caller).header(thread_id))
    run, skip = await resume_run(service, caller, thread_id, position)
    return await _respond(service, request, run, skip=skip)


async def _find_earlier_run(
    service: Service, caller: Caller, thread: str, idempotency_key: IdempotencyKey
) -> ThreadRun | None:
    """The run of an earlier identical request, if it was answered or is running on this server.

    Raises:
        IdempotencyConflict: the idempotency key was used with a different request.
    """
    store = service.store_of(caller)
    try:
        stored = await find_earlier_answer(store, idempotency_key, API_NAME)
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        return None
    if stored is None:
        return None
    run = local_run(service, caller, thread, stored.id)
    if run is not None and run.sent_failure is None and run.error is None:
        return run
    return start_replay(service, caller, stored) if "answer" in stored.body else None


async def _respond(
    service: Service,
    request: Request,
    run: ThreadRun,
    *,
    skip: int = 0,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Respond with the run's events after the first `skip`, or with one JSON object, as the client accepts it."""
    accept = request.headers.get("accept", "")
    is_streamed = "application/json" not in accept or "text/event-stream" in accept
    await run.wait_for_first_event(timeout_seconds=OPEN_SECONDS if is_streamed else None)
    response_headers = {"x-run-id": run.id, **run.headers, **(headers or {})}
    if is_streamed:
        events = run.stream(skip, heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=response_headers)
    async for _ in run.follow():
        pass
    if run.result is None:
        assert run.sent_failure is not None, "a run that has started ends with a result or a failure"
        response_headers |= run.sent_failure.headers
        return JsonResponse(run.sent_failure.body(), status_code=run.sent_failure.status, headers=response_headers)
    response_headers["x-history"] = run.result["history"]
    if run.result["version"] is not None:
        response_headers["etag"] = f'"{run.result["version"]}"'
    return JsonResponse(run.result, headers=response_headers)


def _question(service: Service, thread_id: str, body: NewMessage, if_match: str | None) -> Question:
    if (body.text is None) == (body.content is None) or body.content in ("", []):
        raise RequestRefused(400, "Send either `text` or `content`, not empty.", "invalid_message", "text")
    for index, part in enumerate(body.content if isinstance(body.content, list) else ()):
        _require_part(part, f"content.{index}")
    reserved = next((name for name in body.options if name in _RESERVED_OPTIONS), None)
    if reserved is not None:
        problem = f"`options` cannot contain {reserved}: the service sets it."
        raise RequestRefused(400, problem, "invalid_option", f"options.{reserved}")
    message = {"role": "user", "content": body.text if body.text is not None else body.content}
    if len(json_bytes(message)) > service.config.limits.item_bytes:
        problem = f"The message exceeds the maximum of {service.config.limits.item_bytes} bytes."
        raise RequestRefused(413, problem, "message_too_large", "text")
    return Question(
        thread=thread_id,
        message=message,
        model=service.model_of(body.model),
        options=body.options,
        version=_expected_version(if_match),
    )


def _require_part(part: Mapping[str, Any], location: str) -> None:
    """Reject an invalid content part. Once stored, it would make the provider reject every later request."""
    part_type = part.get("type")
    value_type = _PART_VALUES.get(part_type) if isinstance(part_type, str) else None
    if value_type is None or not isinstance(part.get(str(part_type)), value_type) or not part[str(part_type)]:
        problem = (
            f"{location} must be a part such as {{'type': 'text', 'text': '…'}}; types are {', '.join(_PART_VALUES)}."
        )
        raise RequestRefused(400, problem, "invalid_message", location)


def _expected_version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    version = if_match.strip().removeprefix("W/").strip('"')
    if not version.isascii() or not version.isdecimal() or len(version) > 18:
        raise RequestRefused(
            400, 'If-Match must be one ETag exactly as the server sent it, such as "3".', "invalid_version", "If-Match"
        )
    return int(version)


def page_of(data: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    """A page of a list, with the cursor of the next page."""
    return {"object": "list", "data": data, "has_more": cursor is not None, "next_cursor": cursor}
