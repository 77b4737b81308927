import subprocess
import sys
from datetime import UTC, datetime

import pytest

from minutebook.agent.messages import Usage
from minutebook.compaction.manager import HistoryCompacted
from minutebook.service.observability.telemetry import ServiceTelemetry
from tests.service.guarded import Guarded, Watched
from tests.service.observability.test_logs import FACT
from tests.service.secrets import told_by

COMPACTED = HistoryCompacted("turns", ("f1",), 500, 100, None, datetime.now(UTC))


@pytest.fixture
def watched():
    return Watched()


def spans_of(watched):
    return {span.name: span for span in watched.spans.get_finished_spans()}


def test_a_request_is_a_server_span_that_continues_the_clients_trace():
    guarded = Guarded()
    trace = "0af7651916cd43dd8448eb211c80319c"
    guarded.get("/things/7", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})

    (span,) = guarded.watched.spans.get_finished_spans()
    assert span.name == "GET /things/{thing}"
    assert f"{span.context.trace_id:032x}" == trace
    assert span.kind.name == "SERVER"
    assert dict(span.attributes) == {
        "http.request.method": "GET",
        "http.route": "/things/{thing}",
        "http.response.status_code": 200,
    }


@pytest.mark.parametrize(("path", "status", "is_error"), [("/nowhere", 404, False), ("/broken", 500, True)])
def test_only_a_failure_of_the_server_is_an_error(path, status, is_error):
    guarded = Guarded()
    guarded.post(path, content=b"x")

    (span,) = guarded.watched.spans.get_finished_spans()
    assert span.attributes["http.response.status_code"] == status
    assert (span.status.status_code.name == "ERROR") is is_error


def test_a_whole_turn_is_one_trace(watched):
    telemetry = watched.telemetry()
    with telemetry.request("POST", {}) as request:
        with telemetry.prepare("conv_1") as prepare:
            telemetry.add_compaction("conv_1", COMPACTED)
            prepare.set_pruning(FACT)
        with telemetry.chat("gpt-4o", "conv_1") as chat:
            chat.set_answer(Usage(100, 20, 60), finish="stop", model="gpt-4o-2024", response_id="resp_1")
        request.set_response("POST", "/v1/chat/completions", 200)

    spans = spans_of(watched)
    root = spans["POST /v1/chat/completions"]
    assert {span.context.trace_id for span in spans.values()} == {root.context.trace_id}
    assert spans["chat gpt-4o"].parent.span_id == root.context.span_id
    assert spans["compact"].parent.span_id == spans["history.prepare"].context.span_id
    assert spans["chat gpt-4o"].kind.name == "CLIENT"
    assert dict(spans["chat gpt-4o"].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.conversation.id": "conv_1",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "session.id": "conv_1",
    }
    prepared = spans["history.prepare"].attributes
    assert prepared["minutebook.strategy"] == "retention"
    assert (prepared["minutebook.record.items"], prepared["minutebook.sent.items"]) == (40, 10)
    assert (prepared["minutebook.record.tokens"], prepared["minutebook.sent.tokens"]) == (9_000, 1_200)
    assert prepared["minutebook.dropped.items"] == 30
    assert spans["compact"].attributes["minutebook.compaction.id"] == "f1"
    assert spans["compact"].attributes["minutebook.compaction.tokens_before"] == 500


def test_a_span_has_the_type_of_an_error_and_not_its_message(watched):
    telemetry = watched.telemetry()
    for opened in (telemetry.prepare("c"), telemetry.chat("gpt-4o", "c")):
        with pytest.raises(ValueError, match="alice"), opened:
            raise ValueError("what alice said")

    spans = watched.spans.get_finished_spans()
    assert {span.attributes["error.type"] for span in spans} == {"ValueError"}
    assert all(span.status.status_code.name == "ERROR" for span in spans)
    assert "alice" not in "".join(map(told_by, spans))


def test_a_model_with_an_unusual_name_is_traced_as_other(watched):
    with watched.telemetry().chat("sk-proj-" + "a1" * 20, None):
        pass

    assert list(spans_of(watched)) == ["chat other"]


def test_a_secret_in_a_conversation_id_is_not_traced(watched):
    with watched.telemetry().prepare("sk-proj-" + "a1" * 20):
        pass

    assert spans_of(watched)["history.prepare"].attributes["gen_ai.conversation.id"] == "[redacted]"


def test_without_opentelemetry_nothing_is_traced(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    telemetry = ServiceTelemetry()
    with telemetry.request("GET", {}) as request, telemetry.prepare("c") as prepare:
        prepare.set_pruning(FACT)
        prepare.set(bypass="CannotFit")
        telemetry.add_compaction("c", COMPACTED)
        with telemetry.chat("gpt-4o", "c") as chat:
            chat.set_answer(Usage(1, 1))
        request.set_response("GET", "/open", 500)


def test_a_tracer_provider_that_is_set_later_gets_the_spans():
    """In a process of its own: it can be set once."""
    code = """
from minutebook.service.observability.telemetry import ServiceTelemetry
telemetry = ServiceTelemetry()
with telemetry.prepare("unheard"):
    pass
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with telemetry.prepare("heard"):
    pass
print(*(span.attributes["gen_ai.conversation.id"] for span in kept.get_finished_spans()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout == "heard\n"
