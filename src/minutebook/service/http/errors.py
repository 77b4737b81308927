"""Errors as HTTP responses, in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`.

The messages have the words of `minutebook.errors`, but never quote ids or contents of the request: clients log error
messages, and a prompt or a key must not get there.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from minutebook.agent.retry import retry_after
from minutebook.errors import (
    BrokenConversation,
    CannotFit,
    ContextOverflow,
    ConversationBusy,
    ConversationNotFound,
    DeadlineExceeded,
    DocumentExists,
    DocumentNotFound,
    FoldConflict,
    FoldNotFound,
    IdempotencyConflict,
    InvalidMessage,
    InvalidSetting,
    LeaseLost,
    MinutebookError,
    MissingSetting,
    ProviderFailed,
    ProviderRefused,
    RecipientBlocked,
    RequestRefused,
    RetriesExhausted,
    StoreFull,
    StoreReadOnly,
    StoreRejected,
    StoreUnavailable,
    ToolServerFailed,
    TooManyCalls,
    UnknownName,
    VersionConflict,
)
from minutebook.service.observability.logs import without_secrets

_LOG: Final = logging.getLogger("minutebook.service")

RETRY_SOON: Final = {"retry-after-ms": "250"}
DO_NOT_RETRY: Final = {"x-should-retry": "false"}
"""The official clients retry a 409 and a 429 unless the response has this header."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The HTTP response to a failed request."""

    status: int
    message: str
    code: str | int | None = None
    """A provider's code may be a number."""
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    own_type: str | None = None
    """The error type, if it is not OpenAI's type for this status."""

    @property
    def type(self) -> str:
        """The error type."""
        return self.own_type or _TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def event(self) -> dict[str, Any]:
        """The data of an error event in a stream, with the seconds after which a retry can succeed, if they are known."""
        seconds = retry_after(self.headers)
        error = self.body()["error"]
        return {"error": error if seconds is None else {**error, "retry_after": seconds}}


_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    412: "conflict_error",
    422: "idempotency_error",
    429: "rate_limit_error",
}


def failure_of(error: BaseException) -> Failure:
    """The response to an error. An unexpected error is logged, and the client only gets its request id."""
    for error_type, failure in _FAILURES.items():
        if isinstance(error, error_type):
            return failure if isinstance(failure, Failure) else failure(error)
    _LOG.error("unexpected error in a request: %s", type(error).__name__, exc_info=error)
    return Failure(500, "Internal server error. The server's log has it under this x-request-id.", "internal_error")


def _refused(error: RequestRefused) -> Failure:
    return Failure(error.status, error.problem, error.code, error.param, dict(error.headers))


def _conversation_busy(error: ConversationBusy) -> Failure:
    milliseconds = max(50, min(500, int((error.until - datetime.now(UTC)).total_seconds() * 1_000)))
    message = "The conversation is leased to another holder; retry later."
    headers = {"retry-after": "1", "retry-after-ms": str(milliseconds)}
    return Failure(409, message, "conversation_locked", headers=headers)


def _version_conflict(error: VersionConflict) -> Failure:
    message = f"The conversation is at version {error.actual}, not the expected one; load it again and retry."
    if error.expected == 0:
        message = f"The conversation already exists, at version {error.actual}; choose another id."
    return Failure(412, message, "version_conflict")


def _provider_failed(error: ProviderFailed) -> Failure:
    if isinstance(error, RetriesExhausted) and isinstance(error.__cause__, ProviderFailed):
        return failure_of(error.__cause__)
    status = error.status
    if status in {401, 403}:
        return Failure(502, "The provider rejected this server's key.", "upstream_unauthorized", headers=DO_NOT_RETRY)
    if status is None:
        return Failure(502, "The provider did not respond.", "upstream_error")
    if status < 400:
        return Failure(502, "The provider returned an invalid response.", "upstream_error")
    message = f"The provider returned status {status}."
    seconds = error.retry_after_seconds
    headers = {} if seconds is None else {"retry-after": str(int(seconds) + 1)}
    return Failure(502, message, "upstream_error", headers=headers)


def _provider_refused(error: ProviderRefused) -> Failure:
    """The provider's own error. Secrets in its text are removed: it may quote the request."""
    assert error.status is not None
    fields = {key: without_secrets(value) for key, value in error.error.items() if isinstance(value, str)}
    code = error.error.get("code")
    return Failure(
        error.status,
        fields.get("message") or f"The provider returned status {error.status}.",
        code if isinstance(code, int) else fields.get("code", "upstream_refused"),
        fields.get("param"),
        dict(error.headers),
        fields.get("type", "rate_limit_error" if error.status == 429 else "invalid_request_error"),
    )


def _cannot_fit(error: CannotFit | ContextOverflow) -> Failure:
    if isinstance(error, ContextOverflow):
        message = without_secrets(error.problem)
    else:
        # Not "max_tokens": in a request that is the length of the answer.
        message = f"The view needs at least {error.needed:,} tokens, but the budget is {error.max_tokens:,}."
    return Failure(400, message, "context_length_exceeded", "messages")


def _invalid_message(error: InvalidMessage) -> Failure:
    """The field and the problem, without the value of the field."""
    message = "messages" if error.index is None else f"messages[{error.index}]"
    location = f"{message}.{error.path}" if error.path and error.index is not None else error.path or message
    return Failure(400, f"{location} {error.problem}", "invalid_message", location)


def _unknown_name(error: UnknownName) -> Failure:
    return Failure(400, f"Unknown {error.kind}.", f"unknown_{error.kind}", error.kind)


def _invalid_setting(error: InvalidSetting) -> Failure:
    return Failure(400, f"{error.name}: expected {error.expected}", "invalid_value", str(error.name))


def _missing_setting(error: MissingSetting) -> Failure:
    return Failure(400, str(error), "invalid_value", error.what)


_FAILURES: Final[Mapping[type[MinutebookError], Failure | Callable[[Any], Failure]]] = {
    RequestRefused: _refused,
    ConversationBusy: _conversation_busy,
    ConversationNotFound: Failure(404, "The conversation does not exist.", "conversation_not_found"),
    DocumentNotFound: Failure(404, "No such object; it was never stored, was deleted or has expired.", "not_found"),
    FoldNotFound: Failure(404, "The conversation has no such compaction.", "compaction_not_found"),
    RecipientBlocked: Failure(
        403,
        "The recipient was erased and is blocked; no conversation with it can be created until it is readmitted.",
        "recipient_blocked",
    ),
    VersionConflict: _version_conflict,
    IdempotencyConflict: Failure(
        422,
        "The idempotency key was already used with a different request; use a new key, or retry with the same request.",
        "idempotency_conflict",
    ),
    DocumentExists: Failure(
        409, "An object with this id already exists; choose another id.", "already_exists", headers=DO_NOT_RETRY
    ),
    FoldConflict: Failure(
        409, "The compaction cannot be applied or undone.", "compaction_conflict", headers=DO_NOT_RETRY
    ),
    LeaseLost: Failure(
        409, "The lease on the conversation was released or taken over.", "conversation_locked", headers=RETRY_SOON
    ),
    CannotFit: _cannot_fit,
    ContextOverflow: _cannot_fit,
    UnknownName: _unknown_name,
    DeadlineExceeded: Failure(504, "The evaluation exceeded its deadline.", "deadline_exceeded"),
    ProviderRefused: _provider_refused,
    ProviderFailed: _provider_failed,
    TooManyCalls: Failure(
        502, "No final answer after the maximum number of model calls; check for a tool loop.", "too_many_calls"
    ),
    ToolServerFailed: Failure(502, "An MCP server does not respond.", "tool_server_failed"),
    BrokenConversation: Failure(
        400,
        "A message breaks the pairing of tool calls and results. Append the missing message first.",
        "broken_conversation",
        "messages",
    ),
    InvalidMessage: _invalid_message,
    InvalidSetting: _invalid_setting,
    MissingSetting: _missing_setting,
    StoreFull: Failure(503, "The database is full; free some space.", "store_full"),
    StoreReadOnly: Failure(503, "The database is read-only; make it writable.", "store_read_only"),
    StoreRejected: Failure(500, "The database refused the operation; see the server's log.", "store_rejected"),
    StoreUnavailable: Failure(
        503, "The database is unavailable; retry.", "store_unavailable", headers={"retry-after": "1"}
    ),
}
"""Error class → response, or the function that builds it. The first class that matches is used."""
