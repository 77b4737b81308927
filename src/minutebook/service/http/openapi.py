"""The OpenAPI document of the service, true to what it answers.

The shapes of what the service answers, for its OpenAPI document.
"""

from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict


class Problem(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error of the service."""

    error: Problem


class Open(BaseModel):
    """An object that may say more than is named here."""

    model_config = ConfigDict(extra="allow")


class ItemObject(Open):
    """A message, a call, a result, …"""

    id: str
    type: str


class ItemPage(BaseModel):
    """A page of items."""

    object: Literal["list"]
    data: list[ItemObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConversationObject(BaseModel):
    """A conversation: OpenAI's fields, and ours."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]
    version: int
    """How often it was written to."""
    status: Literal["active", "awaiting_answer", "closed", "idle"]
    recipient: str
    turn_count: int
    item_count: int
    """How many messages it has; one with several calls is several items."""
    updated_at: int
    forked_from: str | None


class ConversationPage(BaseModel):
    """A page of conversations."""

    object: Literal["list"]
    data: list[ConversationObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    next: str | None = None
    """What to give as `after` for the next page; an id works too, and is looked for."""


class Deleted(BaseModel):
    """Something that is gone."""

    id: str
    object: str
    deleted: Literal[True]


class ResponseObject(Open):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    model: str
    output: list[ItemObject]
    usage: dict[str, Any] | None


class InputTokens(BaseModel):
    """How many tokens a request would have."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class CompactedObject(BaseModel):
    """Items in place of a longer list: hand them back as the beginning of the next input."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[ItemObject]
    usage: dict[str, Any]


class TurnObject(BaseModel):
    """What a user said, and everything up to what it said next."""

    object: Literal["conversation.turn"]
    number: int
    start: int
    stop: int
    started_at: int
    items: list[ItemObject]


class TurnPage(BaseModel):
    """A page of turns."""

    object: Literal["list"]
    data: list[TurnObject]
    has_more: bool


class RequestObject(Open):
    """What one call of the model was sent, beside the record."""

    id: str
    object: Literal["conversation.request"]
    number: int
    model: str
    tokens_before: int
    tokens_after: int
    sha256: str


class RequestPage(BaseModel):
    """A page of requests."""

    object: Literal["list"]
    data: list[RequestObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ContextObject(Open):
    """What would be sent now, and why."""

    object: Literal["conversation.context"]
    messages: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int


class CompactionObject(BaseModel):
    """A stretch of the record that is shown as something shorter."""

    id: str
    object: Literal["conversation.compaction"]
    start: int
    stop: int
    reason: str
    shown: list[dict[str, Any]]
    created_at: int
    reverted_at: int | None
    final: bool
    """Whether what it covers was deleted, so that it cannot be reverted."""


class CompactionPage(BaseModel):
    """All compactions there ever were."""

    object: Literal["list"]
    data: list[CompactionObject]
    has_more: bool


class CompactionResult(BaseModel):
    """What a compaction by hand did."""

    object: Literal["conversation.compacted"]
    compactions: list[CompactionObject]
    tokens_before: int
    tokens_after: int
    reason: str


class Erased(BaseModel):
    """What an erasure removed; it names nobody."""

    id: str
    object: Literal["erasure"]
    erased_at: int
    conversations: int
    entries: int
    compactions: int


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of an endpoint that are errors."""
    said = {
        400: "The request cannot be meant.",
        401: "An API key is missing or wrong.",
        403: "The API key lacks a scope.",
        404: "There is nothing of that id for this caller.",
        405: "It cannot be done to this.",
        409: "The conversation is busy; `retry-after-ms` says when to ask again.",
        412: "It is at another version.",
        413: "It is too large.",
        415: "Send JSON.",
        422: "The idempotency key came with another body before.",
        429: "Too many requests, or no tokens left.",
        502: "The provider fails.",
        503: "The database cannot be reached.",
        504: "It took too long.",
    }
    always = (400, 401, 403, 413, 415, 429, 503)
    return {status: {"model": ErrorBody, "description": said[status]} for status in sorted({*always, *statuses})}


_VALIDATION: Final = "HTTPValidationError"
"""What FastAPI says that it answers to bad requests; ours have the shape of all errors, and status 400."""
_OPEN: Final = frozenset({"/healthz", "/readyz"})


def describe(app: FastAPI) -> None:
    """Have an app describe itself as it is, with the errors that any request may be answered with."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    _correct(operation, everybody=path in _OPEN)
            for name in (_VALIDATION, "ValidationError"):
                made.get("components", {}).get("schemas", {}).pop(name, None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _correct(operation: dict[str, Any], *, everybody: bool) -> None:
    responses = operation["responses"]
    if _VALIDATION in str(responses.get("422")):
        del responses["422"]
    if not everybody:
        for status, told in errors().items():
            responses.setdefault(
                str(status),
                {
                    "description": told.get("description", "An error."),
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                },
            )
