"""OpenAI's chat completions and its list of models, with the history kept and pruned."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.errors import RequestRefused, StoreUnavailable
from minutebook.service.auth import needs
from minutebook.service.caller import Caller
from minutebook.service.completing import Completing, passed_on, told_in_stream
from minutebook.service.identity import Identity, identity_of
from minutebook.service.ids import new_id
from minutebook.service.leaving import watched
from minutebook.service.replies import claim_of
from minutebook.service.runs import Run
from minutebook.service.shapes import Open, errors
from minutebook.service.state import Here, Service
from minutebook.service.strict import StrictRoute
from minutebook.service.wire import EventStream, Json

router = APIRouter(prefix="/v1", tags=["as OpenAI"], route_class=StrictRoute)
MayChat = Annotated[Caller, needs("chat")]
_RECIPIENT: Final = "x-recipient-id"


class Completion(Open):
    """A chat completion, as the provider made it."""

    id: str
    object: Literal["chat.completion"]
    choices: list[dict[str, Any]]


class ModelPage(Open):
    """The provider's models, as it lists them."""

    object: Literal["list"]
    data: list[dict[str, Any]]


_MADE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The completion, whole or as server-sent events.",
        "model": Completion,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class ChatRequest(BaseModel):
    """A request for a chat completion. What is not named here goes to the provider as it is."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    messages: list[dict[str, Any]] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None


@router.get("/models", dependencies=[needs("chat")], responses={200: {"model": ModelPage}, **errors(502, 504)})
async def list_models(service: Here, request: Request) -> Response:
    """The provider's models."""
    return Json(await service.upstream.models(authorization=upstream_key(service, request)))


@router.post("/chat/completions", responses={**_MADE, **errors(404, 409, 412, 422, 502, 504)})
async def create_completion(service: Here, request: Request, asked: ChatRequest, caller: MayChat) -> Response:
    """An answer to a conversation that the client resends; ours is the record, and what the model sees of it."""
    body = asked.model_dump(exclude_unset=True)
    body["model"] = service.model_of(asked.model)
    headers = dict(request.headers)
    identity = _identity(service, headers, body)
    making = Completing(
        service=service,
        caller=caller,
        identity=identity or Identity(""),
        body=body,
        claim=claim_of(caller, identity.conversation if identity else "", headers, body),
        authorization=upstream_key(service, request),
        recipient=caller.recipient or headers.get(_RECIPIENT),
        policy=headers.get("x-history-policy"),
        auxiliary="x-task" in headers,
    )
    run = Run(new_id("chatcmpl"), caller.tenant, identity.conversation if identity else None)
    if identity is None:
        making.headers["x-history"] = "off" if headers.get("x-history") == "off" else "unrecorded"
        making.headers["x-history-reconcile"] = "bypassed"
        service.metrics.unrecorded()
        service.runs.start(run, passed_on(service, body, run, making, authorization=making.authorization), keep=False)
        return await _answer(service, run, making, request)
    try:
        service.runs.start(run, making.make(run), keep=False)
        return await _answer(service, run, making, request)
    except StoreUnavailable:
        if not service.config.database.optional or run.events:
            raise
    making.headers = {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
    service.metrics.unrecorded()
    again = Run(new_id("chatcmpl"), caller.tenant, None)
    service.runs.start(again, passed_on(service, body, again, making, authorization=making.authorization), keep=False)
    return await _answer(service, again, making, request)


async def _answer(service: Service, run: Run, making: Completing, request: Request) -> Response:
    """The run's answer: as it comes, or when it is whole."""
    watch = watched(service, request, run)
    try:
        await run.begun()
        if making.body.get("stream"):
            return EventStream(_told(service, run, watch), headers=making.headers)
        async for _ in run.follow():
            pass
    except BaseException:
        _dismiss(watch)
        raise
    _dismiss(watch)
    return Json(making.result, headers=making.headers)


async def _told(service: Service, run: Run, watch: "asyncio.Task[None] | None") -> AsyncIterator[bytes]:
    try:
        async for piece in run.told(heartbeat_seconds=service.config.server.heartbeat_seconds):
            yield piece
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - the client is told in the stream: the status line is long gone
        yield told_in_stream(error)
    finally:
        _dismiss(watch)
        if watch is not None and not run.done:
            await service.runs.cancel(run)


def _dismiss(watch: "asyncio.Task[None] | None") -> None:
    if watch is not None:
        watch.cancel()


def _identity(service: Service, headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    """The conversation, as the request names it, or as is configured for those that name none."""
    if headers.get("x-history") == "off":
        return None
    identity = identity_of(headers, body)
    if identity is not None or service.config.server.missing_session_id == "pass_through":
        return identity
    if service.config.server.missing_session_id == "reject":
        said = "Name the conversation: the header X-Conversation-Id, or `conversation` in the body."
        raise RequestRefused(400, said, "missing_conversation_id", "conversation")
    return Identity(new_id("conv"))


def upstream_key(service: Service, request: Request) -> str | None:
    """The caller's own key for the provider, where it may bring one. It is used, and kept nowhere."""
    return request.headers.get("x-upstream-authorization") if service.config.upstream.pass_through_key else None
