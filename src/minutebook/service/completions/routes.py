"""OpenAI's chat completions with stored and pruned history, and its list of models."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator
from starlette.responses import Response

from minutebook.errors import RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.completions.reconcile import Identity, identity_of, is_stored, unstored_headers
from minutebook.service.completions.run import ChatJob
from minutebook.service.http.json_codec import json_bytes
from minutebook.service.http.openapi import ExtensibleObject, error_responses
from minutebook.service.http.requests import StrictRoute, require_scope
from minutebook.service.http.responses import EventStream, JsonResponse, expected_version_of, new_id
from minutebook.service.idempotency import idempotency_key_of
from minutebook.service.runs import OPEN_SECONDS, Run
from minutebook.service.state import CurrentService, Service, cancels_on_disconnect, watch_connection

router = APIRouter(prefix="/v1", tags=["as OpenAI"], route_class=StrictRoute)
MayChat = Annotated[Caller, require_scope("chat")]
_RECIPIENT: Final = "x-recipient-id"


class Completion(ExtensibleObject):
    """A chat completion of the provider."""

    id: str
    object: Literal["chat.completion"]
    choices: list[dict[str, Any]]


class ProviderModel(ExtensibleObject):
    """A model of the provider."""

    id: str
    object: Literal["model"]


class ModelPage(ExtensibleObject):
    """The provider's list of models."""

    object: Literal["list"]
    data: list[dict[str, Any]]


_COMPLETION: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The completion as JSON, or as server-sent events with `stream`.",
        "model": Completion,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def _skip_copy(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """The value if it is a list of objects, which pydantic would copy one by one; else what pydantic says."""
    return value if type(value) is list and value and set(map(type, value)) == {dict} else validate(value)


class ChatRequest(BaseModel):
    """A request for a chat completion. Fields that are not listed here are sent to the provider unchanged."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    messages: Annotated[list[dict[str, Any]], WrapValidator(_skip_copy)] = Field(min_length=1)
    stream: bool | None = Field(default=None, strict=True)
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None
    conversation: str | dict[str, Any] | None = None


@router.get(
    "/models", dependencies=[require_scope("chat")], responses={200: {"model": ModelPage}, **error_responses(502, 504)}
)
async def list_models(service: CurrentService, request: Request) -> Response:
    """The provider's models."""
    return JsonResponse(await service.upstream.models(authorization=upstream_key(service, request)))


@router.get(
    "/models/{model_id:path}",
    dependencies=[require_scope("chat")],
    responses={200: {"model": ProviderModel}, **error_responses(404, 502, 504)},
)
async def retrieve_model(service: CurrentService, request: Request, model_id: str) -> Response:
    """One of the provider's models."""
    return JsonResponse(await service.upstream.model(model_id, authorization=upstream_key(service, request)))


@router.post("/chat/completions", responses={**_COMPLETION, **error_responses(404, 409, 412, 422, 502, 504)})
async def create_completion(
    service: CurrentService, request: Request, chat_request: ChatRequest, caller: MayChat
) -> Response:
    """Create a chat completion. New messages are added to the record, and the model gets the view that fits."""
    sent_body: dict[str, Any] = await request.json()
    body = {**sent_body, "model": service.model_of(chat_request.model)}
    headers = dict(request.headers)
    recipient = caller.recipient or headers.get(_RECIPIENT)
    identity = _identity(service, headers, body, [caller.key_id, recipient])
    conversation = identity.conversation if identity else None
    scope = ("chat.completions", conversation, recipient)
    job = ChatJob(
        service=service,
        caller=caller,
        run=Run(new_id("chatcmpl"), caller.tenant, conversation),
        identity=identity or Identity(""),
        body=body,
        unchanged_body=await request.body() if sent_body.get("model") else None,
        idempotency_key=idempotency_key_of(caller, scope, headers, await request.body()),
        authorization=upstream_key(service, request),
        recipient=recipient,
        expected_version=expected_version_of(headers.get("if-match")),
        policy=headers.get("x-history-policy"),
        recorded=identity is not None,
    )
    if identity is None:
        job.headers |= unstored_headers(headers)
        service.metrics.count_unrecorded()
        return await _respond(service, job, request)
    job.headers["x-conversation-id"] = identity.conversation
    try:
        return await _respond(service, job, request)
    except StoreUnavailable:
        if not service.config.database.optional or job.run.events:
            raise
    job.headers = {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
    service.metrics.count_unrecorded()
    job.run, job.recorded = Run(new_id("chatcmpl"), caller.tenant, None), False
    return await _respond(service, job, request)


async def _respond(service: Service, job: ChatJob, request: Request) -> Response:
    """Start the run, and return its answer as a stream or as JSON."""
    cancels = cancels_on_disconnect(service, request) or not job.recorded
    run = service.runs.start(job.run, job.execute(), keep_after_end=False)
    watch_connection(service, request, run, cancels=cancels)
    is_streamed = bool(job.body.get("stream"))
    await run.wait_for_first_event(timeout_seconds=OPEN_SECONDS if is_streamed else None)
    if is_streamed:
        events = run.stream(heartbeat_seconds=service.config.server.heartbeat_seconds)
        return EventStream(events, headers=job.headers)
    async for _ in run.follow():
        pass
    return JsonResponse(job.result, headers=job.headers)


def _identity(
    service: Service, headers: Mapping[str, str], body: Mapping[str, Any], owner: list[str | None]
) -> Identity | None:
    """The conversation that the request names, else a new one; None if the request is not recorded.

    The id of a new conversation is made from the idempotency key and `owner`, so a retry finds the first attempt.
    """
    if not is_stored(headers):
        return None
    identity = identity_of(headers, body, service.config.server.history_resend)
    if identity is not None or service.config.server.missing_session_id == "pass_through":
        return identity
    if service.config.server.missing_session_id == "reject":
        problem = "No conversation id. Send the header X-Conversation-Id, or `conversation` in the body."
        raise RequestRefused(400, problem, "missing_conversation_id", "conversation")
    if "idempotency-key" not in headers:
        return Identity(new_id("conv"))
    digest = hashlib.sha256(json_bytes([*owner, headers["idempotency-key"]])).hexdigest()
    return Identity(f"conv_{digest[:32]}")


def upstream_key(service: Service, request: Request) -> str | None:
    """The caller's own `Authorization` header for the provider, if callers may send one. It is not stored."""
    return request.headers.get("x-upstream-authorization") if service.config.upstream.pass_through_key else None
