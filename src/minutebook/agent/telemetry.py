"""Spans for what a run does, by OpenTelemetry's conventions for generative AI.

What was said stays out of them unless `content=True`. The conventions still change: every name we use stands in one
table, here.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

from minutebook.agent.request import ModelReply, ModelRequest
from minutebook.errors import MissingExtra
from minutebook.record.entry import ToolCall
from minutebook.record.frozen import thawed

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

NAMES: Final = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "answered_by": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "finish": "gen_ai.response.finish_reasons",
    "agent": "gen_ai.agent.name",
    "conversation": "gen_ai.conversation.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "tool": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "arguments": "gen_ai.tool.call.arguments",
    "input_messages": "gen_ai.input.messages",
    "output_messages": "gen_ai.output.messages",
    "tokens_before": "minutebook.tokens.record",
    "tokens_after": "minutebook.tokens.view",
    "messages_before": "minutebook.messages.record",
    "messages_after": "minutebook.messages.view",
}


class CallSpan(Protocol):
    """The span of one call of the model, to which its answer is added."""

    def answered(self, reply: ModelReply) -> None: ...


class Telemetry(Protocol):
    """Who watches a run: `OpenTelemetry`, or nobody."""

    def evaluation(self, prompt_name: str, conversation: str, provider: str) -> AbstractContextManager[Any]:
        """Around a whole evaluation."""
        ...

    def call(
        self, provider: str, model: str, request: ModelRequest, sizes: Mapping[str, int]
    ) -> AbstractContextManager[CallSpan]:
        """Around one call of the model."""
        ...

    def tool(self, call: ToolCall) -> AbstractContextManager[Any]:
        """Around one tool."""
        ...


class Unwatched:
    """Nobody watches."""

    def evaluation(self, prompt_name: str, conversation: str, provider: str) -> AbstractContextManager[Any]:  # noqa: ARG002 - the protocol's names
        return nullcontext()

    def call(
        self,
        provider: str,  # noqa: ARG002 - the protocol's names
        model: str,  # noqa: ARG002
        request: ModelRequest,  # noqa: ARG002
        sizes: Mapping[str, int],  # noqa: ARG002
    ) -> AbstractContextManager[CallSpan]:
        return nullcontext(self)

    def tool(self, call: ToolCall) -> AbstractContextManager[Any]:  # noqa: ARG002 - the protocol's name
        return nullcontext()

    def answered(self, reply: ModelReply) -> None:
        pass


class OpenTelemetry:
    """Spans `invoke_agent`, `chat` and `execute_tool` for every evaluation of the adapter that is given this.

    Raises:
        MissingExtra: opentelemetry-api is not installed.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None, *, content: bool = False) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise MissingExtra("opentelemetry-api", "otel") from error
        self._tracer = trace.get_tracer("minutebook", tracer_provider=tracer_provider)
        self._client, self._internal = trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL
        self._content = content

    def evaluation(self, prompt_name: str, conversation: str, provider: str) -> AbstractContextManager[Any]:
        facts = {
            "operation": "invoke_agent",
            "agent": prompt_name,
            "conversation": conversation,
            "provider": provider,
        }
        return self._tracer.start_as_current_span(
            f"invoke_agent {prompt_name}", kind=self._internal, attributes=_named(facts)
        )

    @contextmanager
    def call(self, provider: str, model: str, request: ModelRequest, sizes: Mapping[str, int]) -> Iterator["_OpenSpan"]:
        facts: dict[str, Any] = {"operation": "chat", "provider": provider, "model": model, **sizes}
        if self._content:
            facts["input_messages"] = json.dumps(thawed(list(request.messages)))
        with self._tracer.start_as_current_span(f"chat {model}", kind=self._client, attributes=_named(facts)) as span:
            yield _OpenSpan(span, content=self._content)

    def tool(self, call: ToolCall) -> AbstractContextManager[Any]:
        facts = {"operation": "execute_tool", "tool": call.name, "call_id": call.id}
        if self._content:
            facts["arguments"] = call.arguments
        return self._tracer.start_as_current_span(
            f"execute_tool {call.name}", kind=self._internal, attributes=_named(facts)
        )


class _OpenSpan:
    def __init__(self, span: "Span", *, content: bool) -> None:
        self._span = span
        self._content = content

    def answered(self, reply: ModelReply) -> None:
        facts: dict[str, Any] = {
            "answered_by": reply.model,
            "response_id": reply.response_id,
            "finish": [reply.finish],
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "cached_tokens": reply.usage.cached_tokens,
            "output_messages": json.dumps([reply.message]) if self._content else None,
        }
        self._span.set_attributes(_named(facts))


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES[key]: value for key, value in facts.items() if value is not None}
