"""Error responses in the format of each provider."""

import math
from collections.abc import Mapping
from typing import Any, Final

from minutebook.record.message import Provider
from minutebook.testing.script import ScriptedFailure

OPENAI_TYPES: Final = {429: "requests", 404: "invalid_request_error"}
OPENAI_CODES: Final = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}
ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
GEMINI_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
MESSAGES: Final = {
    400: "the request cannot be understood",
    401: "the API key is missing or wrong",
    403: "this key may not do that",
    404: "not found",
    429: "rate limit reached; try again later",
    503: "the service is not available at the moment",
    529: "the service is overloaded at the moment",
}


def error_text(failure: ScriptedFailure, provider: Provider) -> str:
    if failure.overflow is None:
        return failure.message or MESSAGES.get(failure.status, "something went wrong on the server")
    tokens, maximum = failure.overflow
    if provider == "anthropic":
        return f"prompt is too long: {tokens} tokens > {maximum} maximum"
    return f"the maximum context length of this model is {maximum} tokens, but the messages come to {tokens} tokens"


def error_body(failure: ScriptedFailure, provider: Provider, request_id: str) -> dict[str, Any]:
    """The JSON that the provider's official client turns into its exception."""
    status, text = failure.status, error_text(failure, provider)
    if provider == "anthropic":
        kind = ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": text}, "request_id": request_id}
    if provider == "gemini":
        return {"error": {"code": status, "message": text, "status": GEMINI_STATUSES.get(status, "INTERNAL")}}
    kind = OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code, param = failure.code or OPENAI_CODES.get(status), failure.param
    if failure.overflow is not None:
        code, param = "context_length_exceeded", "messages"
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def error_headers(failure: ScriptedFailure) -> Mapping[str, str]:
    headers = {}
    if failure.retry_after is not None:
        headers["retry-after"] = str(math.ceil(failure.retry_after))
        headers["retry-after-ms"] = str(math.ceil(failure.retry_after * 1000))
    if not failure.retryable:
        headers["x-should-retry"] = "false"
    return headers
