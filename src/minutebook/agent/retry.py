"""Maps provider errors to ours, and retries requests with exponential backoff, jitter and Retry-After."""

import asyncio
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from minutebook.agent.limits import now
from minutebook.errors import ContextOverflow, InvalidSetting, ProviderFailed, RetriesExhausted

_RETRYABLE_STATUSES: Final = frozenset({408, 409, 425, 429})
_PERMANENT_CODES: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes that come with status 429 although a retry cannot help."""

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large"})
_OVERFLOW_TEXT: Final = re.compile(
    r"maximum context length|context window|context size|context length|prompt is too long|"
    r"input (?:is|length|token).{0,40}(?:too long|exceed)|exceeds? the (?:max|limit).{0,30}tokens|too many tokens",
    re.IGNORECASE,
)
"""Error texts for a prompt longer than the context window; few providers send a code for it."""
_OVERFLOW_ATTEMPTS: Final = 3
"""Maximum attempts of one model call, each with a shorter view."""
_NUMBER: Final = re.compile(r"\d[\d,]{2,15}")
"""A number of tokens. Longer runs of digits are none, and may have more than `int` accepts."""
MAX_REASON_CHARACTERS: Final = 10_000
"""Maximum length of a provider's error text. Some providers quote the whole request."""


def error_from_status(
    provider: str,
    status: int,
    problem: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], datetime] = now,
) -> ProviderFailed:
    """The error for a response with this status."""
    if status in {400, 413, 422} and (code in _OVERFLOW_CODES or _OVERFLOW_TEXT.search(problem)):
        return ContextOverflow(provider, problem, *_token_counts(problem))
    headers = headers or {}
    should_retry = headers.get("x-should-retry")
    retryable = (status in _RETRYABLE_STATUSES or status >= 500) and code not in _PERMANENT_CODES
    if should_retry in {"true", "false"}:
        retryable = should_retry == "true"
    return ProviderFailed(provider, status, problem, retry_after(headers, clock=clock), retryable)


def error_reason(body: object, default: str = "no reason given", *, code_key: str = "code") -> tuple[str, str | None]:
    """The message and the code in the body of an error response; `default` is the message if the body has none."""
    error = body.get("error", body) if isinstance(body, Mapping) else None
    message, code = (error.get("message"), error.get(code_key)) if isinstance(error, Mapping) else (None, None)
    problem = message if isinstance(message, str) else default
    return problem[:MAX_REASON_CHARACTERS], code if isinstance(code, str) else None


def error_from_transport(provider: str, error: Exception) -> ProviderFailed:
    """The error for a connection that failed or broke; it is retryable."""
    return ProviderFailed(provider, None, str(error) or type(error).__name__, retryable=True)


def retry_after(headers: Mapping[str, str], *, clock: Callable[[], datetime] = now) -> float | None:
    """The seconds to wait according to the headers (milliseconds, seconds or a date); None if they do not say."""
    for name, units_per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / units_per_second
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):  # a year of many digits overflows
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - clock()).total_seconds())


def transport_errors() -> tuple[type[Exception], ...]:
    """The HTTP client's own errors, which the official clients do not wrap when a stream breaks."""
    modules: list[Any] = [sys.modules.get(name) for name in ("httpx2", "httpx")]  # only those already imported
    return tuple(module.TransportError for module in modules if module is not None)


def _token_counts(problem: str) -> tuple[int | None, int | None]:
    """The tokens of the prompt and of the window, read from an error text; a single number is the window."""
    numbers = sorted({int(number.replace(",", "")) for number in _NUMBER.findall(problem)})
    if len(numbers) == 2:
        return numbers[1], numbers[0]
    return None, numbers[-1] if len(numbers) == 1 else None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries failed requests with exponential backoff.

    The wait after the first attempt is random between 0 and `first_wait_seconds`; that upper bound doubles with each attempt, up
    to `max_wait_seconds` ("full jitter"). A wait is never shorter than the provider's Retry-After. If the next wait would end
    later than `total_seconds` after the first attempt, the call fails immediately.

    Raises:
        InvalidSetting: a setting is out of range.
    """

    attempts: int = 6
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 30.0
    total_seconds: float = 180.0
    draw: Callable[[], float] = random.random
    """Returns a random number from 0 to 1."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidSetting("attempts", self.attempts, "1 or more (1 means no retries)")
        for name in ("first_wait_seconds", "max_wait_seconds", "total_seconds"):
            if getattr(self, name) < 0:
                raise InvalidSetting(name, getattr(self, name), "0 or more")

    async def call(
        self, send: Callable[[], Awaitable[T]], *, on_retry: Callable[[ProviderFailed], None] = lambda _: None
    ) -> T:
        """Call `send` until it succeeds or the policy allows no more attempts. `on_retry` is called before each wait.

        Raises:
            ProviderFailed: `send` failed with an error that is not retryable.
            RetriesExhausted: the last attempt failed, or the next wait would exceed `total_seconds`.
        """
        start_time, waited_seconds = self.clock(), 0.0
        for attempt in range(1, self.attempts + 1):
            try:
                return await send()
            except ProviderFailed as failure:
                if not failure.retryable or self.attempts == 1:
                    raise
                wait = self._wait_seconds(attempt, failure.retry_after_seconds)
                exceeds_total = self.clock() - start_time + wait > self.total_seconds
                if attempt == self.attempts or exceeds_total:
                    raise RetriesExhausted(
                        failure.provider, failure.status, failure.problem, attempt, waited_seconds
                    ) from failure
                on_retry(failure)
            await self.sleep(wait)
            waited_seconds += wait
        raise AssertionError("the last attempt returns or raises")

    def _wait_seconds(self, attempt: int, retry_after_seconds: float | None) -> float:
        backoff: float = self.draw() * min(self.max_wait_seconds, self.first_wait_seconds * 2 ** (attempt - 1))
        return max(backoff, retry_after_seconds or 0.0)


async def retry_overflow(
    send: Callable[[], Awaitable[T]], shorten: Callable[[ContextOverflow], Awaitable[object]]
) -> T:
    """Call `send`, and after a context overflow call `shorten` and try again.

    `shorten` must make the next `send` use a shorter view; it raises if there is none.

    Raises:
        ContextOverflow: the view of the last attempt was too long as well.
    """
    for _ in range(_OVERFLOW_ATTEMPTS - 1):
        try:
            return await send()
        except ContextOverflow as overflow:
            await shorten(overflow)
    return await send()
