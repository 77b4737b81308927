"""Threads: chat in the server's own words. A message goes in, the answer comes out word by word, and both are kept.

A thread is a conversation like any other. What the model is offered besides its messages (tools, a system prompt) is
the configuration's, and an answer goes on whether or not anybody still listens.
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
from minutebook.service.agent_tools import Agents, Shared
from minutebook.service.completions.routes import upstream_key
from minutebook.service.conversations.objects import entries_of
from minutebook.service.http.openapi import errors
from minutebook.service.http.requests import StrictRoute, needs, require_sight
from minutebook.service.http.responses import EventStream, Json, new_id, tag_of
from minutebook.service.idempotency import Claim, claim_of, earlier_run, find_earlier_answer
from minutebook.service.state import Here, Service, watch_connection
from minutebook.service.threads.events import Place, ThreadRun, place_in
from minutebook.service.threads.objects import SURFACE, at_hand, exposes, from_record, resumed, rows_of
from minutebook.service.threads.run import DRAFT, Question, ThreadAnswer
from minutebook.store.codec import cursor_of, place_of
from minutebook.store.types import Conversation
from minutebook.wire.chat import dumped


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Around the life of an app: what its agents share ends with it, once the answers that are being made are done."""
    service: Service = app.state.service
    agents = app.state.agents = Agents(service)
    yield
    await service.runs.drain()
    await agents.aclose()


router = APIRouter(prefix="/threads", tags=["threads"], route_class=StrictRoute, lifespan=lifespan)
MayChat = Annotated[Caller, needs("chat")]
MayRead = Annotated[Caller, needs("read")]
Limit = Annotated[int, Query(ge=1, le=100)]
_PARTS: Final[Mapping[str, type]] = {"text": str, "image_url": dict, "input_audio": dict, "file": dict}
"""The parts that a user's message may have, and what each holds under its own name."""
_RESERVED: Final = frozenset({"model", "messages", "stream", "stream_options", "tools", "tool_choice", "n"})
"""What a message's options cannot set: it is the service's."""


class NewThread(BaseModel):
    """A thread to be made."""

    model_config = ConfigDict(extra="forbid")

    recipient: str | None = Field(default=None, min_length=1, max_length=200)
    """Whom it is with: the one whose wish to be forgotten reaches it."""
    metadata: dict[str, str] = Field(default_factory=dict)


@router.post("", status_code=201, responses=errors(409, 422))
async def create_thread(service: Here, request: Request, caller: MayChat, asked: NewThread | None = None) -> Response:
    """A new thread. It begins with the system prompt, where one is configured."""
    asked = asked or NewThread()
    body = asked.model_dump()
    claim = claim_of(caller, "threads", request.headers, {"threads": body})
    _require_metadata(service, asked.metadata)
    if caller.recipient is not None and asked.recipient not in {None, caller.recipient}:
        raise RequestRefused(403, "This API key is bound to another recipient.", "foreign_recipient", "recipient")
    try:
        return await _made_thread(service, caller, asked, claim)
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
    service.metrics.unrecorded()
    thread = {"id": new_id(DRAFT.rstrip("_")), "object": "thread", "created_at": int(datetime.now(UTC).timestamp())}
    return Json({**thread, **body, "version": 0, "turns": 0}, status_code=201, headers={"x-history": "unrecorded"})


async def _made_thread(service: Service, caller: Caller, asked: NewThread, claim: Claim) -> Response:
    store = service.store_of(caller)
    thread_id, again = await earlier_run(store, claim) if claim.keyed else None, True
    if thread_id is None:
        thread_id, again = new_id("thread"), False
        prompt = service.config.system_prompt
        lead = () if prompt is None else ({"role": "system", "content": prompt},)
        try:
            await store.append(
                thread_id,
                entries_of(lead),
                recipient=caller.recipient or asked.recipient,
                labels=asked.metadata,
                expected_version=0,
                documents=[claim.document(thread_id)] if claim.keyed else [],
            )
        except DocumentExists:  # the same request, at the same time
            thread_id, again = await earlier_run(store, claim) or thread_id, True
    thread = await store.header(thread_id)
    headers = {**tag_of(thread), "x-history": "recorded"} | ({"idempotent-replayed": "true"} if again else {})
    return Json(thread_json(thread), status_code=201, headers=headers)


@router.get("", responses=errors())
async def list_threads(
    service: Here, caller: MayRead, limit: Limit = 20, cursor: str | None = None, recipient: str | None = None
) -> Response:
    """The threads, newest first."""
    if caller.recipient is not None and recipient not in {None, caller.recipient}:
        return Json(page_of([], None))
    store = service.store_of(caller)
    page = await store.list(recipient=caller.recipient or recipient, cursor=cursor, limit=limit)
    return Json(page_of([thread_json(thread) for thread in page.items], page.cursor))


@router.get("/{thread_id}", responses=errors(404))
async def get_thread(service: Here, caller: MayRead, thread_id: str) -> Response:
    """What is known of a thread."""
    thread = require_sight(caller, await service.store_of(caller).header(thread_id))
    return Json(thread_json(thread), headers=tag_of(thread))


def _require_metadata(service: Service, metadata: Mapping[str, str]) -> None:
    limits = service.config.limits
    if len(metadata) > limits.metadata_keys:
        raise RequestRefused(400, f"metadata may have {limits.metadata_keys} keys.", "invalid_metadata", "metadata")
    for key, value in metadata.items():
        if not 0 < len(key) <= limits.metadata_key_characters or len(value) > limits.metadata_value_characters:
            said = f"metadata may have keys of {limits.metadata_key_characters} characters, "
            said += f"and values of {limits.metadata_value_characters}."
            raise RequestRefused(400, said, "invalid_metadata", "metadata")


def thread_json(thread: Conversation) -> dict[str, Any]:
    """A thread as clients get it."""
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
    """What the user says: `text`, or `content` as chat completions have it."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, min_length=1)
    content: str | list[dict[str, Any]] | None = None
    model: str = Field(default="", max_length=200)
    policy: str | None = Field(default=None, max_length=200)
    options: dict[str, Any] = Field(default_factory=dict)
    """What the provider is told besides, such as a temperature."""


_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The answer as server-sent events, or whole for whoever accepts JSON.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/{thread_id}/messages", responses=errors(404))
async def list_messages(
    service: Here, caller: MayRead, thread_id: str, limit: Limit = 20, cursor: str | None = None
) -> Response:
    """What was said, oldest first: the user's words, and answers with the tools that they took."""
    store = service.store_of(caller)
    require_sight(caller, await store.header(thread_id))
    (start,) = place_of(cursor, int) or (0,)
    thread, page = await rows_of(store, thread_id, start=start, limit=limit)
    rows = [row.to_json(thread_id, expose_tool_details=exposes(service)) for row in page.rows]
    more = None if page.next is None else cursor_of(page.next)
    return Json(page_of(rows, more), headers=tag_of(thread))


@router.post("/{thread_id}/messages", responses={**_EVENTS, **errors(404, 409, 412, 422, 502, 504)})
async def create_message(
    service: Here, agents: Shared, request: Request, caller: MayChat, thread_id: str, asked: NewMessage
) -> Response:
    """Say something in a thread, and get the answer: as server-sent events, or whole (`Accept: application/json`).

    With `Last-Event-ID` nothing is said: the answer that the event belongs to is told on from there.
    """
    if "last-event-id" in request.headers:
        return await _told_on(service, request, caller, thread_id, place_in(request.headers["last-event-id"]))
    question = _question(service, thread_id, asked, request.headers.get("if-match"))
    body = {"thread": thread_id, **asked.model_dump(exclude_unset=True)}
    claim = claim_of(caller, thread_id, request.headers, body)
    run = await _earlier(service, caller, thread_id, claim)
    if run is not None:
        return await _answer(service, request, run, headers={"idempotent-replayed": "true"})
    run = ThreadRun(new_id("run"), caller.tenant, thread_id)
    answer = ThreadAnswer(
        service=service,
        agents=agents,
        caller=caller,
        claim=claim,
        authorization=upstream_key(service, request),
        policy=asked.policy or request.headers.get("x-history-policy"),
        question=question,
        run=run,
    )
    service.runs.start(run, answer.make())
    watch_connection(service, request, run)
    return await _answer(service, request, run)


@router.get("/{thread_id}/runs/{run_id}/events", responses={**_EVENTS, **errors(404, 409)})
async def get_events(service: Here, request: Request, caller: MayRead, thread_id: str, run_id: str) -> Response:
    """The events of an answer, from the beginning or from `Last-Event-ID` on."""
    place = Place(run_id)
    if "last-event-id" in request.headers:
        place = place_in(request.headers["last-event-id"])
        if place.run != run_id:
            raise RequestRefused(400, "Last-Event-ID belongs to another answer.", "invalid_event_id")
    return await _told_on(service, request, caller, thread_id, place)


async def _told_on(service: Service, request: Request, caller: Caller, thread_id: str, place: Place) -> Response:
    if caller.recipient is not None or at_hand(service, caller, thread_id, place.run) is None:
        require_sight(caller, await service.store_of(caller).header(thread_id))
    run, heard = await resumed(service, caller, thread_id, place)
    return await _answer(service, request, run, heard=heard)


async def _earlier(service: Service, caller: Caller, thread: str, claim: Claim) -> ThreadRun | None:
    """The answer to the same request, if it came before and was answered or is being answered here.

    Raises:
        IdempotencyConflict: its key came with another body.
    """
    store = service.store_of(caller)
    try:
        known = await find_earlier_answer(store, claim, SURFACE)
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        return None
    if known is None:
        return None
    run = at_hand(service, caller, thread, known.id)
    if run is not None and run.refusal is None and run.failure is None:
        return run
    return from_record(service, caller, known) if "answer" in known.body else None


async def _answer(
    service: Service,
    request: Request,
    run: ThreadRun,
    *,
    heard: int = 0,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The run's answer: as it comes, or when it is whole."""
    await run.begun()
    told = {"x-run-id": run.id, **run.headers, **(headers or {})}
    accepted = request.headers.get("accept", "")
    if "application/json" not in accepted or "text/event-stream" in accepted:
        events = run.told(heard, heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=told)
    async for _ in run.follow():
        pass
    if run.result is None:
        assert run.refusal is not None, "a run that has begun ends in one of the two"
        return Json(run.refusal.body(), status_code=run.refusal.status, headers=told | dict(run.refusal.headers))
    told["x-history"] = run.result["history"]
    if run.result["version"] is not None:
        told["etag"] = f'"{run.result["version"]}"'
    return Json(run.result, headers=told)


def _question(service: Service, thread_id: str, asked: NewMessage, if_match: str | None) -> Question:
    if (asked.text is None) == (asked.content is None) or asked.content in ("", []):
        raise RequestRefused(400, "Give the message as text or as content: one of them.", "invalid_message", "text")
    for at, part in enumerate(asked.content if isinstance(asked.content, list) else ()):
        _require_part(part, f"content.{at}")
    reserved = next((name for name in asked.options if name in _RESERVED), None)
    if reserved is not None:
        said = f"options cannot set {reserved}: that is decided here."
        raise RequestRefused(400, said, "invalid_option", f"options.{reserved}")
    message = {"role": "user", "content": asked.text if asked.text is not None else asked.content}
    if len(dumped(message)) > service.config.limits.item_bytes:
        said = f"The message is larger than {service.config.limits.item_bytes} bytes, the most that is taken."
        raise RequestRefused(413, said, "message_too_large", "text")
    return Question(
        thread=thread_id,
        message=message,
        model=service.model_of(asked.model),
        options=asked.options,
        version=_version(if_match),
    )


def _require_part(part: Mapping[str, Any], where: str) -> None:
    """What no provider takes would make it refuse the thread from then on, so it is not stored."""
    kind = part.get("type")
    wanted = _PARTS.get(kind) if isinstance(kind, str) else None
    if wanted is None or not isinstance(part.get(str(kind)), wanted) or not part[str(kind)]:
        said = f"{where} must be a part such as {{'type': 'text', 'text': '…'}}; types are {', '.join(_PARTS)}."
        raise RequestRefused(400, said, "invalid_message", where)


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    given = if_match.strip().removeprefix("W/").strip('"')
    if not given.isascii() or not given.isdecimal() or len(given) > 18:
        raise RequestRefused(400, 'If-Match must be a version, as ETag tells it: "3".', "invalid_version", "If-Match")
    return int(given)


def page_of(data: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    """A page of a list."""
    return {"object": "list", "data": data, "has_more": cursor is not None, "next_cursor": cursor}
