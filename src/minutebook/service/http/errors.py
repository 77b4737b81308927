"""Errors as HTTP answers, in the shape that every OpenAI client reads.

`{"error": {"message", "type", "param", "code"}}`, always. What an answer quotes is ours: never a value that came in, since
a prompt or a key would then stand in somebody's log of errors.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

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
    ProviderFailed,
    RequestRefused,
    StoreUnavailable,
    ToolServerFailed,
    TooManyCalls,
    UnknownName,
    VersionConflict,
)

_LOG: Final = logging.getLogger("minutebook.service")

SOON: Final = {"retry-after-ms": "250"}
FINAL: Final = {"x-should-retry": "false"}
"""The official clients repeat a 409 by themselves; this tells them not to."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One HTTP answer that says what went wrong."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The word that OpenAI has for this kind of status."""
        return _TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


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
    """What a client is told of an error. One that nobody expected is told by its request id alone."""
    for kind, told in _TOLD.items():
        if isinstance(error, kind):
            return told if isinstance(told, Failure) else told(error)
    _LOG.error("a request failed in a way that nobody expected: %s", type(error).__name__, exc_info=error)
    return Failure(500, "The server failed. Its log says more under this request's x-request-id.", "internal_error")


def _refused(error: Any) -> Failure:
    return Failure(error.status, error.problem, error.code, error.param, dict(error.headers))


def _busy(error: Any) -> Failure:
    wait = max(50, min(5_000, int((error.until - datetime.now(UTC)).total_seconds() * 1_000)))
    said = "Another answer is being made in this conversation. Ask again when it is done."
    return Failure(409, said, "conversation_locked", headers={"retry-after-ms": str(min(wait, 500))})


def _provider(error: Any) -> Failure:
    status = error.status
    if status in {401, 403}:
        return Failure(502, "The provider refused this server's key.", "upstream_unauthorized", headers=FINAL)
    if status is None or status >= 500:
        said = "The provider does not answer." if status is None else f"The provider answered {status}."
        return Failure(502, said, "upstream_error")
    headers = {} if getattr(error, "retry_after", None) is None else {"retry-after": str(int(error.retry_after) + 1)}
    said = {429: "The provider asks to slow down."}.get(status, "The provider refused the request.")
    return Failure(status, said, "upstream_refused", headers=headers)


def _unfit(error: Any) -> Failure:
    needed = getattr(error, "needed", None)
    said = "What must be sent does not fit the model's window." + (f" It needs {needed} tokens." if needed else "")
    return Failure(400, said, "context_length_exceeded", "messages")


_QUOTED_ROLE: Final = re.compile(r"^is .*; use")


def _message(error: Any) -> Failure:
    where = error.path if error.index is None else f"messages[{error.index}].{error.path}"
    problem = _QUOTED_ROLE.sub("is none we know; use", error.problem)
    return Failure(400, f"{where} {problem}", "invalid_message", where)


def _unknown(error: Any) -> Failure:
    return Failure(400, f"There is no {error.kind} of that name.", f"unknown_{error.kind}", error.kind)


def _setting(error: Any) -> Failure:
    return Failure(400, f"{error.name}: give {error.expected}", "invalid_value", str(error.name))


_TOLD: Final[Mapping[type[MinutebookError], Failure | Callable[[Any], Failure]]] = {
    RequestRefused: _refused,
    ConversationBusy: _busy,
    ConversationNotFound: Failure(404, "There is no conversation of that id.", "conversation_not_found"),
    DocumentNotFound: Failure(404, "There is nothing of that id.", "not_found"),
    FoldNotFound: Failure(404, "There is no compaction of that id.", "compaction_not_found"),
    VersionConflict: Failure(412, "Somebody else wrote in the meantime. Read again, then decide.", "version_conflict"),
    IdempotencyConflict: Failure(422, "This key came with another body before. Use a new key.", "idempotency_conflict"),
    DocumentExists: Failure(409, "There is one of that id.", "already_exists", headers=FINAL),
    FoldConflict: Failure(
        409, "This compaction cannot stand there, or cannot go.", "compaction_conflict", headers=FINAL
    ),
    LeaseLost: Failure(409, "Another answer was begun in this conversation.", "conversation_locked", headers=SOON),
    CannotFit: _unfit,
    ContextOverflow: _unfit,
    UnknownName: _unknown,
    DeadlineExceeded: Failure(504, "The answer took too long.", "deadline_exceeded"),
    ProviderFailed: _provider,
    TooManyCalls: Failure(502, "The model goes on calling tools and gives no answer.", "too_many_calls"),
    ToolServerFailed: Failure(502, "A server of tools does not answer.", "tool_server_failed"),
    BrokenConversation: Failure(
        400,
        "A message does not fit the ones before it: calls and results must pair.",
        "broken_conversation",
        "messages",
    ),
    InvalidMessage: _message,
    InvalidSetting: _setting,
    StoreUnavailable: Failure(
        503, "The database cannot be reached now.", "store_unavailable", headers={"retry-after": "1"}
    ),
}
"""Which error is told how; the first that fits wins."""
