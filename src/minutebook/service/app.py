"""The service from its configuration to its ASGI application, and its life from the first request to the last.

The endpoints for whoever operates it (whether it lives, can work, what it counts and allows) are here too.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.responses import PlainTextResponse, Response

from minutebook import __version__
from minutebook.errors import InvalidSetting, MinutebookError, StoreUnavailable
from minutebook.service.access.api_keys import Caller, Keys
from minutebook.service.access.audit import Audit
from minutebook.service.access.limits import Limiter, Tally
from minutebook.service.completions import routes as completions
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.conversations import context_routes, item_routes
from minutebook.service.conversations import routes as conversations
from minutebook.service.http.middleware import Guard, install_handlers
from minutebook.service.http.openapi import describe
from minutebook.service.http.requests import StrictRoute, needs
from minutebook.service.http.responses import Json
from minutebook.service.observability.telemetry import CONTENT_TYPE, Metrics, ServiceTelemetry
from minutebook.service.responses import routes as responses
from minutebook.service.state import Here, Service, counter_of, info_of
from minutebook.service.threads import routes as threads
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
            await service.runs.drain()
    finally:
        await service.upstream.close()
        await service.store.close()


router = APIRouter(tags=["operations"], route_class=StrictRoute)


@router.get("/healthz")
async def is_alive() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The database cannot be reached."}})
async def is_ready(service: Here) -> Response:
    """Whether it can work: whether the database answers."""
    try:
        await service.store.list(limit=1)
    except MinutebookError as error:
        ready = service.config.database.optional
        return Json(
            {"status": "unrecorded" if ready else "unready", "database": type(error).__name__}, 200 if ready else 503
        )
    return Json({"status": "ok", "database": "ok", "active_runs": service.runs.active})


@router.get("/metrics", dependencies=[needs("read")], response_class=PlainTextResponse)
async def tell_metrics(service: Here) -> Response:
    """What is counted, for Prometheus."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE)


@router.get("/v1/limits")
async def tell_limits(service: Here, caller: Annotated[Caller, needs("read")]) -> dict[str, Any]:
    """What is too much, for this caller."""
    return {
        "object": "limits",
        **service.config.limits.model_dump(),
        **service.limiter.limits_of(caller),
        "runs_per_conversation": 1,
        "tokens_used_today": await service.limiter.tokens_used(caller),
    }


_OWN: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
"""What is told of a request we tell ourselves: FastAPI's own would quote what came in, in exceptions and their traces."""


def create_app(service: Service) -> FastAPI:
    """The application of a service."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = FastAPI(
        title="minutebook",
        version=__version__,
        summary="Chat with a kept history: every conversation whole in the record, and what fits of it to the model.",
        lifespan=lifespan,
        docs_url=None,  # its pages would load scripts from elsewhere
        redoc_url=None,
        telemetry=_OWN,
    )
    app.state.service = service
    install_handlers(app)
    app.add_middleware(
        Guard,
        max_body_bytes=service.max_body_bytes,
        metrics=service.metrics,
        telemetry=service.telemetry,
    )
    # The route that is asked most is not in a router of its own: FastAPI searches each included router on every request.
    app.router.routes += completions.router.routes
    for part in (responses, conversations, item_routes, context_routes):
        app.include_router(part.router)
    for each in (conversations.recipients, threads.router, router):
        app.include_router(each)
    describe(app)
    return app
