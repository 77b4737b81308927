"""A small app with the parts that guard one, asked without a socket; and what it logged, counted and traced."""

import asyncio
import io
import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated

import httpx2
from fastapi import FastAPI, Query, Request
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import StreamingResponse

from minutebook import MemoryStore
from minutebook.service.access.api_keys import ApiKeys, Caller
from minutebook.service.access.audit import AuditLog
from minutebook.service.access.limits import Limiter, TokenQuota
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.http.middleware import RequestMiddleware, install_error_handlers
from minutebook.service.http.requests import require_scope
from minutebook.service.http.responses import JsonResponse
from minutebook.service.observability.logs import write_logs_to
from minutebook.service.observability.telemetry import Metrics, ServiceTelemetry
from tests.service.clocks import Clock

MOST_BYTES = 1_000


@dataclass
class Watched:
    """What can be seen of an app from outside, besides its answers."""

    lines: io.StringIO = field(default_factory=io.StringIO)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def logged(self):
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def telemetry(self):
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        return ServiceTelemetry(tracers)


class Guarded:
    """An app with every kind of answer and of failure, behind the guard."""

    def __init__(self, **limits):
        self.watched = Watched()
        self.clock = Clock()
        store = MemoryStore()
        tally = TokenQuota(store, clock=self.clock.now)
        self.service = SimpleNamespace(
            config=ServiceConfig(),
            keys=ApiKeys(store, clock=self.clock.now, monotonic=self.clock.monotonic),
            limiter=Limiter(tally, clock=self.clock.monotonic, **limits),
            audit=AuditLog(store),
            metrics=Metrics(),
            telemetry=self.watched.telemetry(),
        )
        self.app = app_of(self.service)

    def ask(self, *requests, client=("127.0.0.1", 5000), **options):
        """The answers to some requests, each a method, a path and what httpx takes."""

        async def main():
            # An error that got through to the server is a failure of the guard, so none is let through here.
            transport = httpx2.ASGITransport(self.app, client=client)
            base = options.pop("base_url", "http://127.0.0.1:8000")
            async with httpx2.AsyncClient(transport=transport, base_url=base, trust_env=False, **options) as http:
                return [await http.request(method, path, **more) for method, path, more in requests]

        with self.logging():
            return asyncio.run(main())

    def get(self, path, **more):
        return self.ask(("GET", path, more))[0]

    def post(self, path, **more):
        return self.ask(("POST", path, more))[0]

    def key(self, **options):
        return asyncio.run(self.service.keys.create("phone", **{"tenant": "acme", **options}))

    @contextmanager
    def logging(self):
        with write_logs_to(self.watched.lines, level="DEBUG"):
            yield


def app_of(service):
    app = FastAPI(openapi_url=None)
    app.state.service = service
    app.add_middleware(
        RequestMiddleware, max_body_bytes=MOST_BYTES, metrics=service.metrics, telemetry=service.telemetry
    )
    install_error_handlers(app)

    @app.get("/open")
    async def opened(number: int = 0, word: Annotated[str, Query(pattern="^[a-z]+$")] = "a"):
        return JsonResponse({"number": number, "word": word})

    @app.get("/things/{thing}")
    async def read(thing: str, caller: Annotated[Caller, require_scope("read")]):
        return JsonResponse({"tenant": caller.tenant, "key": caller.key_id})

    @app.post("/things")
    async def write(request: Request, caller: Annotated[Caller, require_scope("write")]):
        body = await request.body()
        return JsonResponse({"bytes": len(body)})

    @app.post("/strict")
    async def strict(body: dict[str, int]):
        return JsonResponse(body)

    @app.post("/broken")
    async def broken(request: Request):
        raise KeyError((await request.body()).decode("latin-1"))

    @app.post("/logs")
    async def logs(request: Request):
        said = (await request.body()).decode()
        logging.getLogger("minutebook.service").warning(
            "careless: %s", said, extra={"authorization": said, "said": said}
        )
        return JsonResponse({})

    @app.get("/stream")
    async def stream(gate: str = "open"):
        async def pieces():
            for number in range(3):
                yield b"data: %d\n\n" % number
            if gate == "broken":
                raise ValueError("in the middle")

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return app
