"""OpenAI's chat completions and its list of models, with the history kept and pruned."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.errors import RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.completions.reconcile import Identity, identity_of
from minutebook.service.completions.run import ChatAnswer
from minutebook.service.http.openapi import Open, errors
from minutebook.service.http.requests import StrictRoute, needs
from minutebook.service.http.responses import EventStream, Json, new_id
from minutebook.service.idempotency import claim_of
from minutebook.service.runs import Run
from minutebook.service.state import Here, Service, watch_connection

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
    making = ChatAnswer(
        service=service,
        caller=caller,
        run=Run(new_id("chatcmpl"), caller.tenant, identity.conversation if identity else None),
        identity=identity or Identity(""),
        body=body,
        claim=claim_of(caller, identity.conversation if identity else "", headers, body),
        authorization=upstream_key(service, request),
        recipient=caller.recipient or headers.get(_RECIPIENT),
        policy=headers.get("x-history-policy"),
        recorded=identity is not None,
        auxiliary="x-task" in headers,
    )
    if identity is None:
        making.headers["x-history"] = "off" if headers.get("x-history") == "off" else "unrecorded"
        making.headers["x-history-reconcile"] = "bypassed"
        service.metrics.unrecorded()
        return await _answer(service, making, request)
    try:
        return await _answer(service, making, request)
    except StoreUnavailable:
        if not service.config.database.optional or making.run.events:
            raise
    making.headers = {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
    service.metrics.unrecorded()
    making.run, making.recorded = Run(new_id("chatcmpl"), caller.tenant, None), False
    return await _answer(service, making, request)


async def _answer(service: Service, making: ChatAnswer, request: Request) -> Response:
    """The run's answer: as it comes, or when it is whole."""
    run = service.runs.start(making.run, making.make(), keep=False)
    watch_connection(service, request, run)
    await run.begun()
    if making.body.get("stream"):
        events = run.told(heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=making.headers)
    async for _ in run.follow():
        pass
    return Json(making.result, headers=making.headers)


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
