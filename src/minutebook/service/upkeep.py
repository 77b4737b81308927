"""What a running service does on the side: write down, every few seconds, what it does not write with every request."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from minutebook.errors import MinutebookError
from minutebook.service.keys import Keys
from minutebook.service.limits import Limiter

UPKEEP_SECONDS: Final = 5.0
_LOG: Final = logging.getLogger("minutebook.service")


@asynccontextmanager
async def upkeep(keys: Keys, limiter: Limiter, *, seconds: float = UPKEEP_SECONDS) -> AsyncIterator[None]:
    """Around the life of a service: its lifespan."""
    task = asyncio.create_task(_flush_forever(keys, limiter, seconds))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await _flush(keys, limiter, closing=True)


async def _flush_forever(keys: Keys, limiter: Limiter, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _flush(keys, limiter)


async def _flush(keys: Keys, limiter: Limiter, *, closing: bool = False) -> None:
    try:
        await keys.flush()
        await limiter.flush(closing=closing)
    except MinutebookError as error:
        _LOG.warning("what was used could not be written down: %s", type(error).__name__)
