"""What a provider's error means, and retries: never sooner than it says, never in step with others, never for ever."""

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
OVERFLOW_ATTEMPTS: Final = 3
"""Maximum attempts of one call, each with a shorter view."""
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


def error_reason(
    body: object, otherwise: str = "it gave no reason", *, code_key: str = "code"
) -> tuple[str, str | None]:
    """What the provider itself said in the body of an error, without what its client adds to that, and the code."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    message, code = (inner.get("message"), inner.get(code_key)) if isinstance(inner, Mapping) else (None, None)
    return message if isinstance(message, str) else otherwise, code if isinstance(code, str) else None


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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Throttle:
    """How often and how long to try.

    The wait after the first attempt is drawn from 0 to `first_seconds`, after each further one from twice as much, up to
    `most_seconds` ("full jitter"); it is never shorter than the provider's Retry-After. When the next wait would go beyond `total_seconds` since the first
    attempt, we give up at once rather than later.

    Raises:
        InvalidSetting: a setting cannot be meant.
    """

    attempts: int = 6
    first_seconds: float = 0.5
    most_seconds: float = 30.0
    total_seconds: float = 180.0
    draw: Callable[[], float] = random.random
    """A number from 0 to 1."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidSetting("attempts", self.attempts, "1 or more; 1 never asks again")
        for name in ("first_seconds", "most_seconds", "total_seconds"):
            if getattr(self, name) < 0:
                raise InvalidSetting(name, getattr(self, name), "0 or more")

    async def persist(
        self, ask: Callable[[], Awaitable[T]], *, on_retry: Callable[[ProviderFailed], None] = lambda _: None
    ) -> T:
        """The answer to `ask`, asked for as often as it takes and may take.

        Raises:
            ProviderFailed: it failed in a way that asking again does not mend.
            RetriesExhausted: it went on failing.
        """
        started, waited = self.clock(), 0.0
        for attempt in range(1, self.attempts + 1):
            try:
                return await ask()
            except ProviderFailed as failure:
                if not failure.retryable or self.attempts == 1:
                    raise
                pause = self._pause(attempt, failure.retry_after_seconds)
                late = self.clock() - started + pause > self.total_seconds
                if attempt == self.attempts or late:
                    raise RetriesExhausted(
                        failure.provider, failure.status, failure.problem, attempt, waited
                    ) from failure
                on_retry(failure)
            await self.sleep(pause)
            waited += pause
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int, asked_for: float | None) -> float:
        drawn: float = self.draw() * min(self.most_seconds, self.first_seconds * 2 ** (attempt - 1))
        return max(drawn, asked_for or 0.0)


async def retry_overflow(ask: Callable[[], Awaitable[T]], shorten: Callable[[ContextOverflow], object]) -> T:
    """Ask, and ask again with a shorter view while the provider finds the prompt too long.

    `shorten` makes the shorter view, and raises where there is none.

    Raises:
        ContextOverflow: the last attempt was too long, too.
    """
    for _ in range(OVERFLOW_ATTEMPTS - 1):
        try:
            return await ask()
        except ContextOverflow as overflow:
            shorten(overflow)
    return await ask()
