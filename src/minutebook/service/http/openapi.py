"""The OpenAPI document of the service and the schemas of its responses."""

from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict


class ErrorObject(BaseModel):
    """An error, in OpenAI's format."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorObject


class ExtensibleObject(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow")


class ItemObject(ExtensibleObject):
    """A message, a tool call, a tool result, …"""

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
    """A conversation: OpenAI's fields, and those of this service from `version` on."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]
    version: int
    """The number of writes to the conversation."""
    status: Literal["active", "awaiting_answer", "closed", "idle"]
    recipient: str
    turn_count: int
    item_count: int
    """The number of messages. A message with several tool calls counts once, but is listed as several items."""
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
    """The value of `after` for the next page. The id of the last conversation works as well, but is slower."""


class DeletedObject(BaseModel):
    """The confirmation of a deletion."""

    id: str
    object: str
    deleted: Literal[True]


class ResponseObject(ExtensibleObject):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    model: str
    output: list[ItemObject]
    usage: dict[str, Any] | None


class InputTokens(BaseModel):
    """The number of input tokens of a request that was not sent."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class CompactedObject(BaseModel):
    """Compacted items, to be sent at the start of the next input in place of the original ones."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[ItemObject]
    usage: dict[str, Any]


class TurnObject(BaseModel):
    """A user message and all items up to the next user message."""

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


class RequestObject(ExtensibleObject):
    """The minutes of one model call: what was sent, compared with the record."""

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


class ContextObject(ExtensibleObject):
    """The view that would be sent to the model now, and why."""

    object: Literal["conversation.context"]
    messages: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int


class CompactionObject(BaseModel):
    """A range of the record, and the shorter messages that models get instead."""

    id: str
    object: Literal["conversation.compaction"]
    start: int
    stop: int
    reason: str
    shown: list[dict[str, Any]]
    created_at: int
    reverted_at: int | None
    final: bool
    """The compacted messages were deleted, so the compaction cannot be reverted."""


class CompactionPage(BaseModel):
    """All compactions of a conversation, including reverted ones."""

    object: Literal["list"]
    data: list[CompactionObject]
    has_more: bool


class CompactedConversationObject(BaseModel):
    """The compactions that a request has created."""

    object: Literal["conversation.compacted"]
    compactions: list[CompactionObject]
    tokens_before: int
    tokens_after: int
    reason: str


class ErasureObject(BaseModel):
    """The receipt of an erasure. It contains no ids of what was erased."""

    id: str
    object: Literal["erasure"]
    erased_at: int
    conversations: int
    entries: int
    compactions: int


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an endpoint: these statuses, and those that every endpoint has."""
    descriptions = {
        400: "The request is invalid.",
        401: "The API key is missing or invalid.",
        403: "The API key lacks a scope.",
        404: "The object does not exist, or the caller may not access it.",
        405: "The object does not support this operation.",
        409: "The conversation is locked by another request; retry after `retry-after-ms`.",
        412: "The conversation is at another version.",
        413: "The request is too large.",
        415: "The request is not JSON.",
        422: "The idempotency key was already used with a different request.",
        429: "Too many requests, or the daily token limit is reached.",
        502: "The provider failed.",
        503: "The database is unavailable.",
        504: "The request exceeded its deadline.",
    }
    common_statuses = (400, 401, 403, 413, 415, 429, 503)
    return {
        status: {"model": ErrorBody, "description": descriptions[status]}
        for status in sorted({*common_statuses, *statuses})
    }


_VALIDATION_ERROR: Final = "HTTPValidationError"
"""FastAPI documents this schema for status 422, but the service responds with status 400 and `ErrorBody`."""
_PUBLIC_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Paths that need no API key."""


def install_openapi(app: FastAPI) -> None:
    """Make the app's OpenAPI document include the error responses that every endpoint has."""

    def openapi_document() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    _correct_responses(operation, is_public=path in _PUBLIC_PATHS)
            for name in (_VALIDATION_ERROR, "ValidationError"):
                document.get("components", {}).get("schemas", {}).pop(name, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi_document  # type: ignore[method-assign]


def _correct_responses(operation: dict[str, Any], *, is_public: bool) -> None:
    responses = operation["responses"]
    if _VALIDATION_ERROR in str(responses.get("422")):
        del responses["422"]
    if not is_public:
        for status, response in error_responses().items():
            responses.setdefault(
                str(status),
                {
                    "description": response.get("description", "An error."),
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                },
            )
