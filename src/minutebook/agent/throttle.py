"""Asking again when the provider is busy: never sooner than it says, never in step with others, never for ever."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from minutebook.errors import InvalidSetting, ProviderFailed, RetriesExhausted

T = TypeVar("T")


def unnoticed(_failure: ProviderFailed) -> None:
    """Nobody needs to know of a retry."""


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
        self, ask: Callable[[], Awaitable[T]], *, on_retry: Callable[[ProviderFailed], None] = unnoticed
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
