"""The service as an ASGI application: every part that handles requests, put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from minutebook import __version__
from minutebook.service import health
from minutebook.service.completions import routes as completions
from minutebook.service.conversations import context_routes, item_routes, recipient_routes
from minutebook.service.conversations import routes as conversations
from minutebook.service.http.middleware import Guard, install_handlers
from minutebook.service.http.openapi import describe
from minutebook.service.lifespan import running
from minutebook.service.responses import routes as responses
from minutebook.service.state import Service
from minutebook.service.threads import message_routes
from minutebook.service.threads import routes as threads

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
        max_body_bytes=lambda: service.config.limits.body_bytes,
        metrics=service.metrics,
        telemetry=service.telemetry,
    )
    # The route that is asked most is not in a router of its own: FastAPI searches each included router on every request.
    app.router.routes += completions.router.routes
    for part in (
        responses,
        conversations,
        item_routes,
        context_routes,
        recipient_routes,
        threads,
        message_routes,
        health,
    ):
        app.include_router(part.router)
    describe(app)
    return app
