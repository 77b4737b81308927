"""Spans by OpenTelemetry's conventions for generative AI: of what a run does here, of what the service does above.

What was said stays out of them unless `content=True`, and so do the messages of errors, which may quote it: an error is
told by its type. The conventions still change: every name we use stands in one table, here.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from minutebook.agent.messages import ModelRequest, Usage
from minutebook.errors import MissingExtra
from minutebook.record.entry import ToolCall
from minutebook.record.message import Message, thawed

if TYPE_CHECKING:
    from opentelemetry import trace

Kind = Literal["internal", "client", "server"]
NAMES: Final = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "answered_by": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "finish": "gen_ai.response.finish_reasons",
    "agent": "gen_ai.agent.name",
    "conversation": "gen_ai.conversation.id",
    "compacted": "gen_ai.conversation.compacted",
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
    "trigger": "minutebook.compaction.trigger",
    "compaction_before": "minutebook.compaction.tokens_before",
    "compaction_after": "minutebook.compaction.tokens_after",
}
"""A fact → the attribute that holds it."""


class Span:
    """An open span; `span` is None where nothing is traced."""

    def __init__(self, telemetry: "Telemetry", span: "trace.Span | None" = None) -> None:
        self._telemetry, self._span = telemetry, span

    def set(self, **facts: Any) -> None:
        """Add facts, by their names in `NAMES`; those that are None are left out."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes(self._telemetry.attributes(facts))

    def rename(self, name: str) -> None:
        if self._span is not None:
            self._span.update_name(name)

    def fail(self) -> None:
        """Mark the span as an error."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR))

    def answered(
        self,
        usage: Usage | None = None,
        *,
        finish: str | None = None,
        model: str | None = None,
        response_id: str | None = None,
        message: Message | None = None,
    ) -> None:
        """Say what the provider said of its answer; what it did not count is left out."""
        self.set(finish=None if finish is None else [finish], answered_by=model, response_id=response_id)
        if usage is not None:
            self.set(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                cache_write_tokens=usage.cache_write_tokens or None,
                reasoning_tokens=usage.reasoning_tokens or None,
            )
        if message is not None and self._telemetry.content:
            self.set(output_messages=json.dumps([thawed(message)]))


class Telemetry:
    """Opens spans around what happens. This one opens none; `OpenTelemetry` does."""

    content = False
    """Whether spans hold what was said."""
    span_type: type[Span] = Span

    def tracer(self) -> "trace.Tracer | None":
        """Who opens the spans; None where nobody collects them."""
        return None

    def attributes(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {NAMES[name]: value for name, value in facts.items() if value is not None}

    @contextmanager
    def span(self, name: str, kind: Kind = "internal", *, context: Any = None, **facts: Any) -> Iterator[Any]:
        """A span around a block, as a `span_type`; an error in the block marks it."""
        tracer = self.tracer()
        if tracer is None:
            yield self.span_type(self)
            return
        from opentelemetry.trace import SpanKind

        with tracer.start_as_current_span(
            name,
            context=context,
            kind=SpanKind[kind.upper()],
            attributes=self.attributes(facts),
            record_exception=self.content,
            set_status_on_exception=False,
        ) as opened:
            span = self.span_type(self, opened)
            try:
                yield span
            except BaseException as error:
                span.set(error=type(error).__name__)
                span.fail()
                raise

    def evaluation(self, prompt_name: str, conversation: str, provider: str) -> AbstractContextManager[Span]:
        """Around a whole evaluation."""
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
        """Around one call of the model."""
        said = json.dumps(thawed(list(request.messages))) if self.content else None
        return self.span(
            f"chat {model}", "client", operation="chat", provider=provider, model=model, input_messages=said, **sizes
        )

    def tool(self, call: ToolCall) -> AbstractContextManager[Span]:
        """Around one tool."""
        arguments = call.arguments if self.content else None
        return self.span(
            f"execute_tool {call.name}", operation="execute_tool", tool=call.name, call_id=call.id, arguments=arguments
        )


class OpenTelemetry(Telemetry):
    """Spans `invoke_agent`, `chat` and `execute_tool` for every evaluation of the adapter that is given this.

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
