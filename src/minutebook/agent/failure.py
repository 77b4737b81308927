"""What a provider's error means: whether to ask again, when, and whether the prompt was too long."""

import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from minutebook.agent.deadline import now
from minutebook.errors import ContextOverflow, ProviderFailed

_BUSY: Final = frozenset({408, 409, 425, 429})
_HOPELESS: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes that come with 429 and that no waiting mends."""

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large"})
_OVERFLOW: Final = re.compile(
    r"maximum context length|context window|context size|context length|prompt is too long|"
    r"input (?:is|length|token).{0,40}(?:too long|exceed)|exceeds? the (?:max|limit).{0,30}tokens|too many tokens",
    re.IGNORECASE,
)
"""How providers say that the prompt is longer than the window; few have a code for it."""
_NUMBER: Final = re.compile(r"\d[\d,]{2,}")


def from_status(
    provider: str,
    status: int,
    problem: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], datetime] = now,
) -> ProviderFailed:
    """The error that an answer with this status is."""
    if status in {400, 413, 422} and (code in _OVERFLOW_CODES or _OVERFLOW.search(problem)):
        return ContextOverflow(provider, problem, *_sizes(problem))
    headers = headers or {}
    told = headers.get("x-should-retry")
    retryable = (status in _BUSY or status >= 500) and code not in _HOPELESS
    if told in {"true", "false"}:
        retryable = told == "true"
    return ProviderFailed(provider, status, problem, retry_after(headers, clock=clock), retryable)


def told(body: object, otherwise: str) -> str:
    """What the provider itself said in the body of an error, without what its client adds to that."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    message = inner.get("message") if isinstance(inner, Mapping) else None
    return message if isinstance(message, str) else otherwise


def from_transport(provider: str, error: Exception) -> ProviderFailed:
    """The error that a connection which broke, or was never made, is: there may be a better one later."""
    return ProviderFailed(provider, None, str(error) or type(error).__name__, retryable=True)


def retry_after(headers: Mapping[str, str], *, clock: Callable[[], datetime] = now) -> float | None:
    """How many seconds the provider asks us to wait, however it says that; None where it does not."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - clock()).total_seconds())


def transport_errors() -> tuple[type[Exception], ...]:
    """What the official clients let through when a stream breaks off: the errors of the HTTP client below them."""
    loaded: list[Any] = [sys.modules.get(name) for name in ("httpx2", "httpx")]
    return tuple(module.TransportError for module in loaded if module is not None)


def _sizes(problem: str) -> tuple[int | None, int | None]:
    """The tokens there were and the tokens there may be, where the message says both; else the larger number is a limit."""
    numbers = sorted({int(number.replace(",", "")) for number in _NUMBER.findall(problem)})
    if len(numbers) == 2:
        return numbers[1], numbers[0]
    return None, numbers[-1] if len(numbers) == 1 else None
