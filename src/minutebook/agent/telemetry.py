"""OpenTelemetry spans, named by its conventions for generative AI. The service adds its own spans to these.

Spans contain no message texts unless `content=True`. Error texts may quote messages, so an error is recorded by its type
only. The conventions still change, so all attribute names are in one table, `ATTRIBUTE_NAMES`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from minutebook.agent.messages import ModelRequest, Usage
from minutebook.errors import MissingExtra
from minutebook.record.entry import ToolCall
from minutebook.record.message import Message, plain_copy

if TYPE_CHECKING:
    from opentelemetry import trace

Kind = Literal["internal", "client", "server"]
ATTRIBUTE_NAMES: Final = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "finish": "gen_ai.response.finish_reasons",
    "agent": "gen_ai.agent.name",
    "conversation": "gen_ai.conversation.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "tool": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "arguments": "gen_ai.tool.call.arguments",
    "input_messages": "gen_ai.input.messages",
    "output_messages": "gen_ai.output.messages",
    "error": "error.type",
    "session": "session.id",
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "tokens_before": "minutebook.tokens.record",
    "tokens_after": "minutebook.tokens.view",
    "messages_before": "minutebook.messages.record",
    "messages_after": "minutebook.messages.view",
    "strategy": "minutebook.strategy",
    "mode": "minutebook.mode",
    "record_items": "minutebook.record.items",
    "record_tokens": "minutebook.record.tokens",
    "sent_items": "minutebook.sent.items",
    "sent_tokens": "minutebook.sent.tokens",
    "dropped": "minutebook.dropped.items",
    "stripped": "minutebook.stripped.tool_payloads",
    "stable": "minutebook.prefix.stable",
    "reconcile": "minutebook.reconcile",
    "budget": "minutebook.budget",
    "source": "minutebook.tokens.source",
    "bypass": "minutebook.bypass",
    "compaction": "minutebook.compaction.id",
    "compaction_before": "minutebook.compaction.tokens_before",
    "compaction_after": "minutebook.compaction.tokens_after",
}
"""Keyword argument of `Span.set` and `Telemetry.span` → name of the span attribute.

Agents set the sizes `tokens_before`, `tokens_after`, `messages_before` and `messages_after`. The service sets `record_items`,
`record_tokens`, `sent_items` and `sent_tokens` instead. `reconcile` is how the client's messages were matched with the
record."""


class Span:
    """An open span. Without tracing `_span` is None, and every method does nothing."""

    def __init__(self, telemetry: "Telemetry", span: "trace.Span | None" = None) -> None:
        self._telemetry, self._span = telemetry, span

    def set(self, **values: Any) -> None:
        """Set attributes, by their keywords in `ATTRIBUTE_NAMES`. A value of None is skipped."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes(self._telemetry.attributes(values))

    def rename(self, name: str) -> None:
        if self._span is not None:
            self._span.update_name(name)

    def fail(self) -> None:
        """Mark the span as an error."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR))

    def set_answer(
        self,
        usage: Usage | None = None,
        *,
        finish: str | None = None,
        model: str | None = None,
        response_id: str | None = None,
        message: Message | None = None,
    ) -> None:
        """Set the attributes of the model's answer. Missing values are skipped."""
        self.set(finish=None if finish is None else [finish], response_model=model, response_id=response_id)
        if usage is not None:
            self.set(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                cache_write_tokens=usage.cache_write_tokens or None,
                reasoning_tokens=usage.reasoning_tokens or None,
            )
        if message is not None and self._telemetry.content:
            self.set(output_messages=json.dumps([plain_copy(message)]))


class Telemetry:
    """Opens spans around evaluations, model calls and tools. This base class traces nothing; use `OpenTelemetry`."""

    content = False
    """Whether spans contain message texts and tool arguments."""
    span_type: type[Span] = Span

    def tracer(self) -> "trace.Tracer | None":
        """The tracer that opens the spans; None turns tracing off."""
        return None

    def attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The span attributes of the values, by their keywords. Values that are None are skipped."""
        return {ATTRIBUTE_NAMES[name]: value for name, value in values.items() if value is not None}

    @contextmanager
    def span(self, name: str, kind: Kind = "internal", *, context: Any = None, **values: Any) -> Iterator[Any]:
        """Open a span for a block, and yield it as a `span_type`. An error in the block marks the span as failed."""
        tracer = self.tracer()
        if tracer is None:
            yield self.span_type(self)
            return
        from opentelemetry.trace import SpanKind

        with tracer.start_as_current_span(
            name,
            context=context,
            kind=SpanKind[kind.upper()],
            attributes=self.attributes(values),
            record_exception=self.content,
            set_status_on_exception=False,
        ) as trace_span:
            span = self.span_type(self, trace_span)
            try:
                yield span
            except BaseException as error:
                span.set(error=type(error).__name__)
                span.fail()
                raise

    def evaluation(self, prompt_name: str, conversation: str, provider: str) -> AbstractContextManager[Span]:
        """A span for a whole evaluation."""
        return self.span(
            f"invoke_agent {prompt_name}",
            operation="invoke_agent",
            agent=prompt_name,
            conversation=conversation,
            provider=provider,
        )

    def call(
        self, provider: str, model: str, request: ModelRequest, sizes: Mapping[str, int]
    ) -> AbstractContextManager[Span]:
        """A span for one model call; `sizes` are further attributes, such as `tokens_before`."""
        messages = json.dumps(plain_copy(list(request.messages))) if self.content else None
        return self.span(
            f"chat {model}",
            "client",
            operation="chat",
            provider=provider,
            model=model,
            input_messages=messages,
            **sizes,
        )

    def tool(self, call: ToolCall) -> AbstractContextManager[Span]:
        """A span for one tool call."""
        arguments = call.arguments if self.content else None
        return self.span(
            f"execute_tool {call.name}", operation="execute_tool", tool=call.name, call_id=call.id, arguments=arguments
        )


class OpenTelemetry(Telemetry):
    """Opens the spans `invoke_agent`, `chat` and `execute_tool` for every evaluation of an adapter.

    Raises:
        MissingExtra: opentelemetry-api is not installed.
    """

    def __init__(self, tracer_provider: "trace.TracerProvider | None" = None, *, content: bool = False) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise MissingExtra("opentelemetry-api", "otel") from error
        self._tracer = trace.get_tracer("minutebook", tracer_provider=tracer_provider)
        self.content = content

    def tracer(self) -> "trace.Tracer | None":
        return self._tracer
