import asyncio
import contextlib
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from minutebook import Session
from minutebook.agent import OpenTelemetry, RetryPolicy
from minutebook.errors import MissingExtra, ProviderFailed
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail, say
from tests.agent.parts import adapter_for, prompt_of


def spans_of(model, *, content=False, **options):
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    session = Session()

    async def evaluate(provider):
        telemetry = OpenTelemetry(tracers, content=content)
        async with adapter_for(provider, telemetry=telemetry, **options) as adapter:
            await adapter.evaluate(prompt_of(), session=session)

    with LoopbackProvider(model) as provider, contextlib.suppress(ProviderFailed):
        asyncio.run(evaluate(provider))
    return session, exporter.get_finished_spans()


SCRIPT = (call("read", path="secret.txt"), say("The secret is out."))


def test_a_run_is_a_span_with_one_for_every_call_and_every_tool():
    session, spans = spans_of(ScriptedModel(*SCRIPT))

    by_name = {span.name: span for span in spans}
    assert [span.name for span in spans] == ["chat gpt-4o", "execute_tool read", "chat gpt-4o", "invoke_agent worker"]
    root = by_name["invoke_agent worker"]
    assert root.attributes["gen_ai.conversation.id"] == str(session.session_id)
    assert all(span.parent.span_id == root.context.span_id for span in spans[:-1])
    assert by_name["chat gpt-4o"].attributes["gen_ai.usage.input_tokens"] > 0
    assert by_name["chat gpt-4o"].attributes["minutebook.messages.view"] == 3
    assert by_name["execute_tool read"].attributes["gen_ai.tool.name"] == "read"


def test_spans_contain_no_message_texts_by_default():
    _, spans = spans_of(ScriptedModel(*SCRIPT))

    assert "secret" not in str([(span.name, dict(span.attributes)) for span in spans])


def test_with_content_spans_contain_message_texts():
    _, spans = spans_of(ScriptedModel(*SCRIPT), content=True)

    attributes = str([dict(span.attributes) for span in spans])
    assert "secret.txt" in attributes
    assert "The secret is out." in attributes


def test_a_failure_marks_its_spans():
    _, spans = spans_of(ScriptedModel(fail(500)), retry_policy=RetryPolicy(attempts=1))

    assert [span.status.is_ok for span in spans] == [False, False]


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(MissingExtra, match=r"minutebook\[otel\]"):
        OpenTelemetry()
