"""A service from its configuration, and its life from the first request to the last.

What a running service does on the side: write down, every few seconds, what it does not write with every request.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from minutebook.errors import InvalidSetting, MinutebookError, StoreUnavailable
from minutebook.service.access.api_keys import Keys
from minutebook.service.access.audit import Audit
from minutebook.service.access.limits import Limiter, Tally
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.observability.metrics import Metrics
from minutebook.service.observability.tracing import ServiceTelemetry
from minutebook.service.state import Service, counter_of, info_of
from minutebook.service.upstream import Upstream
from minutebook.store.base import ConversationStore
from minutebook.store.url import open_store

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


DRAIN_SECONDS: Final = 30.0
"""How long a service that is told to stop waits for the answers that are being made."""
STALE_SECONDS: Final = 3_600.0
"""How long keys are believed while the database is away, where the service is to answer all the same."""


def service_from(
    holder: ConfigHolder, *, store: ConversationStore | None = None, upstream: Upstream | None = None
) -> Service:
    """The parts that a configuration describes, put together. Nothing is opened yet.

    Raises:
        InvalidSetting: there is no database or no upstream, or its key is not in the environment.
    """
    config = holder.current.config
    store = store or _store_from(config)
    optional = config.database.optional
    return Service(
        holder=holder,
        store=store,
        upstream=upstream or upstream_from(config),
        keys=Keys(store, stale_seconds=STALE_SECONDS if optional else 0.0),
        limiter=Limiter(
            Tally(store, optional=optional),
            requests_per_minute=config.limits.requests_per_minute,
            tokens_per_day=config.limits.tokens_per_day,
        ),
        audit=Audit(store),
        metrics=Metrics(),
        telemetry=ServiceTelemetry(),
    )


def _store_from(config: ServiceConfig) -> ConversationStore:
    if config.database.url is None:
        raise InvalidSetting("database.url", None, "where conversations are kept, such as sqlite:///chat.db")
    return open_store(config.database.url, tenant=config.database.tenant)


def upstream_from(config: ServiceConfig) -> Upstream:
    """The provider that a configuration names.

    Raises:
        InvalidSetting: it names none, or the variable with its key is empty.
    """
    told = config.upstream
    if told.url is None:
        raise InvalidSetting("upstream.url", None, "the base of a provider's API, such as https://api.openai.com/v1")
    key = None if told.key_env is None else os.environ.get(told.key_env)
    if told.key_env is not None and not key:
        raise InvalidSetting("upstream.key_env", told.key_env, "a variable that is set, to the provider's key")
    return Upstream(told.url, key=key, timeout_seconds=told.timeout_seconds)


def _warm_up(model: str) -> None:
    """Load what the first request would have to wait for: vocabularies and the table of models."""
    info_of(model)
    counter_of(model).count(model)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Around the life of a service. At its end, answers that are being made may come to theirs."""
    service.metrics.watch_runs(lambda: service.runs.active)
    try:
        await service.store.__aenter__()
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        _LOG.warning("the database cannot be reached: answers are given, and not recorded")
    await asyncio.to_thread(_warm_up, service.model_of(None))
    try:
        async with upkeep(service.keys, service.limiter):
            yield
            await service.runs.drain(DRAIN_SECONDS)
    finally:
        await service.upstream.close()
        await service.store.close()
