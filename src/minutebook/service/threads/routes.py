"""Threads: chat in the server's own words. A message goes in, the answer comes out word by word, and both are kept.

A thread is a conversation like any other. What the model is offered besides its messages (tools, a system prompt) is
the configuration's, and an answer goes on whether or not anybody still listens.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from minutebook.conversation.view_source import PROVIDER
from minutebook.errors import DocumentExists, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.agent_tools import Agents
from minutebook.service.http.auth import require_sight
from minutebook.service.http.openapi import errors
from minutebook.service.http.pages import new_id
from minutebook.service.http.responses import Json
from minutebook.service.http.strict_json import StrictRoute
from minutebook.service.idempotency import Claim, claim_of, earlier_run
from minutebook.service.lifespan import DRAIN_SECONDS
from minutebook.service.state import Here, Service
from minutebook.service.threads.message_routes import Limit, MayChat, MayRead, etag, page_of
from minutebook.service.threads.run import DRAFT
from minutebook.store.types import Conversation
from minutebook.wire.chat import provider_message_to_entry


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Around the life of an app: what its agents share ends with it, once the answers that are being made are done."""
    service: Service = app.state.service
    agents = app.state.agents = Agents(service)
    yield
    await service.runs.drain(DRAIN_SECONDS)
    await agents.aclose()


router = APIRouter(prefix="/threads", tags=["threads"], route_class=StrictRoute, lifespan=lifespan)


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
        made: Any = {"evaluation_id": uuid4(), "sequence": 0, "created_at": datetime.now(UTC), "provider": PROVIDER}
        try:
            await store.append(
                thread_id,
                [provider_message_to_entry(message, **made) for message in lead],
                recipient=caller.recipient or asked.recipient,
                labels=asked.metadata,
                expected_version=0,
                documents=[claim.document(thread_id)] if claim.keyed else [],
            )
        except DocumentExists:  # the same request, at the same time
            thread_id, again = await earlier_run(store, claim) or thread_id, True
    thread = await store.header(thread_id)
    headers = {"etag": etag(thread.version), "x-history": "recorded"} | (
        {"idempotent-replayed": "true"} if again else {}
    )
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
    return Json(thread_json(thread), headers={"etag": etag(thread.version)})


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
