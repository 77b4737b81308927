"""The whole service, behind a real port, with secrets in everything that clients and the provider send."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from minutebook import MemoryStore
from minutebook.service.app import build_service, create_app
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.observability.logs import write_logs_to
from minutebook.testing import LoopbackProvider, ScriptedModel, fail
from tests.service.endpoints import BODIES, asked, names_in, operations
from tests.service.guarded import Watched
from tests.service.secrets import leaks, places, secrets
from tests.service.serving import Served, listening
from tests.service.test_tenants import bearer, keys_for

PLANTED = secrets()
EACH = 2
"""How many endpoints see each secret."""


@contextmanager
def watched_service(model):
    """A running service of which everything is kept that it logs and traces, and a key for it."""
    watched, store = Watched(), MemoryStore()
    token = keys_for(store, owner={"tenant": "acme"})["owner"]
    with LoopbackProvider(model) as provider, write_logs_to(watched.lines, level="DEBUG"):
        environment = {"MINUTEBOOK_DB": "memory:", "MINUTEBOOK_UPSTREAM_URL": provider.base_url}
        service = build_service(ConfigHolder(environment=environment), store=store)
        service.telemetry = watched.telemetry()
        with listening(create_app(service)) as url:
            yield watched, Served(url, service, provider), token


def poisoned(path, secret, number):
    """A body that is right but for the secret in it, or one that is wrong everywhere."""
    _, wrong = places(secret)
    right = {**BODIES.get(path, {}), "metadata": {"note": secret}}
    if "messages" in right:
        right["messages"] = [{"role": "user", "content": f"My key is {secret}."}]
    if "input" in right:
        right["input"] = f"My key is {secret}."
    if "items" in right:
        right["items"] = [{"type": "message", "role": "user", "content": f"My key is {secret}."}]
    return wrong if number % 3 == 0 else {**right, "conversation": secret} if number % 3 == 1 else right


def planted(http, token, document):
    """The answers to requests that carry the secrets to every endpoint."""
    every, answers = operations(document), []
    for number, secret in enumerate(PLANTED):
        headers, _ = places(secret)
        headers = headers if number % 4 == 0 else headers | bearer(token)
        if number % 2:
            del headers["if-match"]  # an invalid one is refused before anything else happens
        for step in range(EACH):
            method, path = every[(number * EACH + step) % len(every)]
            ids = dict.fromkeys(names_in(path), secret)
            options = (
                {"json": poisoned(path, secret, number)} if method in {"post", "put"} else {"params": {"after": secret}}
            )
            answers.append(asked(http, method, path, ids, headers=headers, **options))
    path = "/v1/chat/completions"
    headers = bearer(token) | {"x-conversation-id": "a"}
    return [*answers, asked(http, "post", path, {}, headers=headers, json=poisoned(path, PLANTED[0], 2))]


PROVIDERS = {
    "that answers": ScriptedModel(otherwise="Yes."),
    "that refuses and quotes": ScriptedModel(otherwise=fail(400, f"no good: {' '.join(PLANTED)}", retryable=False)),
    "that fails and quotes": ScriptedModel(otherwise=fail(500, f"oops: {' '.join(PLANTED)}", retryable=False)),
}


@pytest.mark.parametrize("model", PROVIDERS.values(), ids=PROVIDERS)
def test_no_secret_gets_into_logs_traces_metrics_or_errors(model):
    with watched_service(model) as (watched, running, token):
        with running.http() as http:
            answers = planted(http, token, http.get("/openapi.json").json())
        metrics = running.service.metrics.render()

    refused = [answer for answer in answers if answer.status_code >= 400]
    found = leaks(
        PLANTED,
        logs=watched.lines.getvalue(),
        spans=watched.spans.get_finished_spans(),
        metrics=metrics,
        bodies=[answer.text + repr(answer.headers) for answer in refused],
    )
    assert found == []
    assert {answer.status_code for answer in refused} >= {400, 401, 404}
    assert [answer.url.path for answer in answers if answer.status_code == 500] == []
    assert any(answer.status_code == 200 for answer in answers)
    assert "pruned" in watched.lines.getvalue()


BESIDE = """
import asyncio, json
import httpx2
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, logs, meters = InMemorySpanExporter(), InMemoryLogRecordExporter(), InMemoryMetricReader()
tracers, loggers = TracerProvider(), LoggerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
trace.set_tracer_provider(tracers)
_logs.set_logger_provider(loggers)
metrics.set_meter_provider(MeterProvider([meters]))

from minutebook.service.app import create_app
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.app import build_service, run_service

async def main():
    environment = {"MINUTEBOOK_DB": "memory:", "MINUTEBOOK_UPSTREAM_URL": "http://127.0.0.1:9/v1"}
    service = build_service(ConfigHolder(environment=environment))
    async with run_service(service):
        transport = httpx2.ASGITransport(create_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", trust_env=False) as http:
            for path in ("/v1/chat/completions", "/v1/responses", "/v1/conversations/secretword/items?a=secretword"):
                for body in ({"messages": "secretword"}, {"messages": [{"role": "user", "content": "secretword"}]}):
                    await http.post(path, json=body)

asyncio.run(main())
collected = "".join(span.to_json() for span in spans.get_finished_spans())
collected += "".join(record.log_record.to_json() if hasattr(record.log_record, "to_json") else str(record.log_record)
                for record in logs.get_finished_logs())
collected += meters.get_metrics_data().to_json() if meters.get_metrics_data() is not None else ""
scopes = {span.instrumentation_scope.name for span in spans.get_finished_spans()}
print(json.dumps([sorted(scopes), len(logs.get_finished_logs()), "secretword" in collected]))
"""


def test_only_the_spans_of_the_service_are_collected():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", BESIDE], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["minutebook"], 0, False]
