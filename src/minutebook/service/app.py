"""The ASGI application: built from the configuration, with its startup and shutdown.

The operations endpoints are here too: liveness, readiness, metrics and limits.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from minutebook import __version__
from minutebook.conversation.lease import renewal_counts
from minutebook.conversation.record_cache import RecordCache
from minutebook.conversation.requests import remove_requests
from minutebook.errors import ConversationBusy, InvalidSetting, MinutebookError, MissingSetting, StoreUnavailable
from minutebook.service.access.api_keys import ApiKeys, Caller
from minutebook.service.access.audit import AuditLog
from minutebook.service.access.limits import Limiter, TokenQuota
from minutebook.service.agent_tools import CurrentAgents
from minutebook.service.completions import routes as completions
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.conversations import context_routes, item_routes
from minutebook.service.conversations import routes as conversations
from minutebook.service.http.middleware import RequestMiddleware, install_error_handlers
from minutebook.service.http.openapi import install_openapi
from minutebook.service.http.requests import StrictRoute, require_scope
from minutebook.service.http.responses import JsonResponse, new_id
from minutebook.service.inspector.sign_in import ROOT as INSPECTOR_ROOT
from minutebook.service.inspector.sign_in import create_service_pages
from minutebook.service.observability.telemetry import CONTENT_TYPE, Metrics, ServiceTelemetry
from minutebook.service.responses import routes as responses
from minutebook.service.state import CurrentService, Service, counter_of
from minutebook.service.threads import routes as threads
from minutebook.service.upstream import Upstream
from minutebook.store.base import ConversationStore
from minutebook.store.encryption.marker import read_key
from minutebook.store.types import RESERVED_TENANT, ConversationHeader
from minutebook.store.url import open_store

FLUSH_SECONDS: Final = 5.0
"""How often the use of API keys and tokens is written to the store."""
_LOG: Final = logging.getLogger("minutebook.service")


@asynccontextmanager
async def flush_usage(keys: ApiKeys, limiter: Limiter, *, seconds: float = FLUSH_SECONDS) -> AsyncIterator[None]:
    """Write the use of API keys and tokens to the store regularly during this block, and at its end."""
    task = asyncio.create_task(_flush_forever(keys, limiter, seconds))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await _flush(keys, limiter, closing=True)


async def _flush_forever(keys: ApiKeys, limiter: Limiter, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _flush(keys, limiter)


async def _flush(keys: ApiKeys, limiter: Limiter, *, closing: bool = False) -> None:
    try:
        await keys.flush()
        await limiter.flush(closing=closing)
    except MinutebookError as error:
        _LOG.warning("cannot store the use of API keys and tokens: %s", type(error).__name__)


EXPIRY_SECONDS: Final = 3_600.0
"""How often expired conversations and old minutes are removed. Every server does it: removing them twice has no effect."""


@asynccontextmanager
async def remove_expired(service: Service, *, seconds: float = EXPIRY_SECONDS) -> AsyncIterator[None]:
    """Remove expired conversations and old minutes regularly during this block, if there is an age for them."""
    if service.store.expire_after is None and service.config.database.requests_age is None:
        yield
        return
    task = asyncio.create_task(_expire_forever(service, seconds))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _expire_forever(service: Service, seconds: float) -> None:
    while True:
        try:
            await expire_all_tenants(service)
        except MinutebookError as error:
            _LOG.warning("cannot remove expired conversations and minutes: %s", type(error).__name__)
        await asyncio.sleep(seconds)


async def expire_all_tenants(service: Service) -> int:
    """Remove the expired conversations of the configured tenant and of all tenants with API keys; return their number.

    Old minutes are removed first, because that adds their usage to the totals; removing a conversation does not.
    """
    tenants = {service.store.tenant} | {key.tenant for key in await service.keys.list()}
    requests_age, count, requests = service.config.database.requests_age, 0, 0
    for tenant in sorted(tenants):
        store = service.store.for_tenant(tenant)
        if requests_age is not None:
            requests += await remove_requests(store, store.backend.now() - requests_age)
        if store.expire_after is not None:
            count += (await store.expire()).conversations
    if count:
        _LOG.info("removed %d expired conversations", count)
    if requests:
        _LOG.info("removed the minutes of %d requests", requests)
    return count


STALE_SECONDS: Final = 3_600.0
"""How long cached API keys stay valid while an optional database is unavailable."""


def build_service(
    holder: ConfigHolder, *, store: ConversationStore | None = None, upstream: Upstream | None = None
) -> Service:
    """The service that the configuration describes. Nothing is opened yet.

    Raises:
        MissingSetting: the configuration has no database URL or no upstream URL.
        InvalidSetting: the environment variable with the provider's key is not set.
    """
    config = holder.current.config
    store = store or store_from(config)
    read_url = config.database.read_url
    optional = config.database.optional
    return Service(
        holder=holder,
        store=store,
        read_store=store if read_url is None else _open(config, read_url),
        upstream=upstream or upstream_from(config),
        keys=ApiKeys(store, stale_seconds=STALE_SECONDS if optional else 0.0),
        records=RecordCache(config.server.record_cache_bytes),
        limiter=Limiter(
            TokenQuota(store, optional=optional),
            requests_per_minute=config.limits.requests_per_minute,
            tokens_per_day=config.limits.tokens_per_day,
        ),
        audit=AuditLog(store),
        metrics=Metrics(),
        telemetry=ServiceTelemetry(),
    )


def store_from(config: ServiceConfig, *, queue_jobs: bool = True) -> ConversationStore:
    """The configured database. With `queue_jobs`, its appends queue jobs for the workers, if that is configured.

    Raises:
        MissingSetting: the configuration has no database URL.
        InvalidSetting: workers are configured, but the database has no queue.
    """
    if config.database.url is None:
        raise MissingSetting("database.url", "set it to a store URL such as sqlite:///chat.db")
    worker = config.worker
    if not worker.enabled or not queue_jobs:
        return _open(config, config.database.url)
    if not config.database.url.startswith("postgres"):
        raise InvalidSetting("worker.enabled", True, "false: only PostgreSQL has a queue of background jobs")
    return _open(config, config.database.url, lambda header: header.turns > worker.max_turns)


def _open(
    config: ServiceConfig, url: str, needs_job: Callable[[ConversationHeader], bool] | None = None
) -> ConversationStore:
    database = config.database
    key = None if database.encryption_key_file is None else read_key(database.encryption_key_file)
    return open_store(url, tenant=database.tenant, expire_after=database.age, encryption_key=key, needs_job=needs_job)


def upstream_from(config: ServiceConfig) -> Upstream:
    """The client for the configured provider.

    Raises:
        MissingSetting: the configuration has no upstream URL.
        InvalidSetting: the environment variable with the provider's key is not set.
    """
    upstream = config.upstream
    if upstream.url is None:
        raise MissingSetting("upstream.url", "set it to the provider's base URL, such as https://api.openai.com/v1")
    key = None if upstream.key_env is None else os.environ.get(upstream.key_env)
    if upstream.key_env is not None and not key:
        expected = "the name of an environment variable that contains the provider's API key"
        raise InvalidSetting("upstream.key_env", upstream.key_env, expected)
    return Upstream(upstream.url, key=key, timeout_seconds=upstream.timeout_seconds)


def _warm_up(service: Service) -> None:
    """Load the tokenizer vocabulary and the model table, so that the first request does not wait for them."""
    model = service.model_of(None)
    service.info_of(model)
    counter_of(model).count(model)


@asynccontextmanager
async def run_service(service: Service) -> AsyncIterator[None]:
    """Open the service for this block. At the end, answers in progress may finish before it is closed."""
    service.metrics.watch_runs(lambda: service.runs.active)
    try:
        await service.store.__aenter__()
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        _LOG.warning("the database is unavailable: answers are not recorded")
    if service.read_store is not service.store:
        try:
            await service.read_store.__aenter__()
        except StoreUnavailable as error:
            _LOG.warning("the database for reads is unavailable: %s", type(error).__name__)
    await asyncio.to_thread(_warm_up, service)
    try:
        async with flush_usage(service.keys, service.limiter), remove_expired(service):
            yield
            await service.runs.drain()
    finally:
        await service.upstream.close()
        await service.store.close()
        if service.read_store is not service.store:
            await service.read_store.close()


router = APIRouter(tags=["operations"], route_class=StrictRoute)


@router.get("/", include_in_schema=False)
async def open_inspector() -> Response:
    """The inspector."""
    return RedirectResponse(f"{INSPECTOR_ROOT}/", 307)


@router.get("/healthz")
async def check_liveness() -> dict[str, str]:
    """Liveness: the process responds."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The database cannot be reached."}})
async def check_readiness(service: CurrentService, agents: CurrentAgents) -> Response:
    """Readiness: the database can be written, or is optional.

    Tool servers are reported but do not count: one that has ended is started again by its next call.
    """
    tool_servers = {"tool_servers": states} if (states := agents.tool_server_states()) else {}
    store = service.store.for_tenant(RESERVED_TENANT)
    try:
        await store.release_lease(await store.acquire_lease("readyz", new_id("readyz"), seconds=1))
    except ConversationBusy:
        pass  # another replica has just written it
    except MinutebookError as error:
        is_ready = service.config.database.optional
        return JsonResponse(
            {"status": "unrecorded" if is_ready else "unready", "database": type(error).__name__, **tool_servers},
            200 if is_ready else 503,
        )
    return JsonResponse({"status": "ok", "database": "ok", "active_runs": service.runs.active, **tool_servers})


@router.get("/metrics", dependencies=[require_scope("metrics")], response_class=PlainTextResponse)
async def get_metrics(service: CurrentService) -> Response:
    """The metrics of all tenants in Prometheus format. A key needs the scope `metrics`."""
    with suppress(StoreUnavailable):  # the other metrics are needed most while the database is unavailable
        service.metrics.set_store(await service.store.statistics(), renewal_counts(service.store))
    return Response(service.metrics.render(), media_type=CONTENT_TYPE)


@router.get("/v1/limits")
async def get_limits(service: CurrentService, caller: Annotated[Caller, require_scope("read")]) -> dict[str, Any]:
    """The limits of this caller, and the tokens it has used today."""
    return {
        "object": "limits",
        **service.config.limits.model_dump(),
        **service.limiter.limits_of(caller),
        "runs_per_conversation": 1,
        "tokens_used_today": await service.limiter.tokens_used(caller),
    }


_NO_TELEMETRY: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
"""FastAPI's telemetry is off, because its exceptions and traces quote request content. The service has its own."""


_EXPOSED_HEADERS: Final = (
    *("x-request-id", "x-conversation-id", "x-conversation-branch", "retry-after", "retry-after-ms", "etag"),
    *("x-history", "x-history-request", "x-history-tokens", "x-history-reconcile", "x-history-bypass"),
    "idempotent-replayed",
)
"""Response headers that scripts of other origins may read."""


def create_app(service: Service) -> FastAPI:
    """The ASGI application of a service."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with run_service(service):
            yield

    app = FastAPI(
        title="minutebook",
        version=__version__,
        summary="Chat with stored history: the record has every conversation in full, models get the part that fits.",
        lifespan=lifespan,
        docs_url=None,  # the page would load scripts from a CDN
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
    )
    app.state.service = service
    install_error_handlers(app)
    app.add_middleware(
        RequestMiddleware,
        max_body_bytes=service.max_body_bytes,
        max_header_bytes=lambda: service.config.limits.header_bytes,
        metrics=service.metrics,
        telemetry=service.telemetry,
    )
    if service.config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.config.server.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    # The most used routes are added directly: FastAPI searches each included router on every request.
    app.router.routes += completions.router.routes
    for module in (responses, conversations, item_routes, context_routes):
        app.include_router(module.router)
    for included in (conversations.recipients, threads.router, router):
        app.include_router(included)
    app.mount(INSPECTOR_ROOT, create_service_pages(service))
    install_openapi(app)
    return app
