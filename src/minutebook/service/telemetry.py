"""Spans of what the service does: the request, what was chosen from the history, the call of the model, compactions.

No span holds what was said, and none holds an error's message, which may quote it: an error is told by its type. Without
opentelemetry-api nothing is traced, and nothing else is different.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from minutebook.agent.telemetry import NAMES
from minutebook.agent.usage import Usage
from minutebook.compaction.events import HistoryCompacted
from minutebook.service.metrics import Label
from minutebook.service.pruned import HistoryPruned
from minutebook.service.redact import cleaned

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

SERVICE_NAMES: Final = {
    **NAMES,
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "error": "error.type",
    "session": "session.id",
    "compacted": "gen_ai.conversation.compacted",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
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
"""What is said → the attribute it is said in: the conventions still change, and change here."""


class Telemetry:
    """Traces what the service does, to OpenTelemetry's own provider unless it is given another."""

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        self._tracer: Tracer | None = None
        self._models = Label()
        self._given = tracer_provider is not None
        try:
            from opentelemetry import trace
        except ImportError:
            return
        self._tracer = trace.get_tracer("minutebook", tracer_provider=tracer_provider)
        self._provider, self._stand_in = trace.get_tracer_provider, trace.ProxyTracerProvider

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator["RequestSpan"]:
        """Around a whole request; the trace that its headers name goes on."""
        if not self._is_heard():
            yield RequestSpan(None)
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        # The state that comes with a trace is text of the client's choice: it is left behind.
        carried = {name: headers[name] for name in ("traceparent",) if name in headers}
        with self._span(method, SpanKind.SERVER, {"method": method}, context=extract(carried)) as span:
            yield RequestSpan(span)

    @contextmanager
    def prepare(self, conversation: str | None) -> Iterator["PrepareSpan"]:
        """Around choosing what is sent."""
        with self._inner("history.prepare", {"conversation": conversation, "session": conversation}) as span:
            yield PrepareSpan(span)

    @contextmanager
    def chat(
        self, model: str, conversation: str | None, *, provider: str = "openai", compacted: bool = False
    ) -> Iterator["ChatSpan"]:
        """Around one call of the model, to the end of its answer."""
        model = self._models.of(model)
        facts = {
            "operation": "chat",
            "provider": provider,
            "model": model,
            "conversation": conversation,
            "session": conversation,
            "compacted": compacted or None,
        }
        if not self._is_heard():
            yield ChatSpan(None)
            return
        from opentelemetry.trace import SpanKind

        with self._span(f"chat {model}", SpanKind.CLIENT, facts) as span:
            yield ChatSpan(span)

    @contextmanager
    def compact(self, conversation: str | None, *, trigger: str = "auto") -> Iterator["CompactSpan"]:
        """Around a compaction; `trigger` is auto, manual or overflow."""
        with self._inner("compact", {"operation": "compact", "conversation": conversation, "trigger": trigger}) as span:
            yield CompactSpan(span)

    @contextmanager
    def _inner(self, name: str, facts: Mapping[str, Any]) -> Iterator["Span | None"]:
        if not self._is_heard():
            yield None
            return
        from opentelemetry.trace import SpanKind

        with self._span(name, SpanKind.INTERNAL, facts) as span:
            yield span

    @contextmanager
    def _span(self, name: str, kind: "SpanKind", facts: Mapping[str, Any], context: Any = None) -> Iterator["Span"]:
        assert self._tracer is not None
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=_named(facts),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute(SERVICE_NAMES["error"], type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    def _is_heard(self) -> bool:
        """Whether anybody collects spans; OpenTelemetry's own provider only stands in for one that may be set later."""
        if self._tracer is None:
            return False
        return self._given or not isinstance(self._provider(), self._stand_in)


class _Told:
    """A span that facts are added to; none, where nothing is traced."""

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    def _tell(self, facts: Mapping[str, Any]) -> None:
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes(_named(facts))


class RequestSpan(_Told):
    """The span of a request."""

    def answered(self, method: str, route: str | None, status: int) -> None:
        """Say how it was answered."""
        self._tell({"route": route, "status": status})
        if self._span is None:
            return
        self._span.update_name(f"{method} {route}" if route else method)
        if status >= 500:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR))


class PrepareSpan(_Told):
    """The span of choosing what is sent."""

    def pruned(self, fact: HistoryPruned) -> None:
        """Say what was chosen."""
        self._tell(
            {
                "strategy": fact.policy,
                "mode": fact.mode,
                "record_items": fact.loaded,
                "record_tokens": fact.tokens_before,
                "sent_items": fact.sent,
                "sent_tokens": fact.tokens_after if fact.mode == "on" else fact.tokens_before,
                "dropped": fact.pruned - fact.stripped,
                "stripped": fact.stripped,
                "stable": fact.prefix_stable,
                "reconcile": fact.reconcile,
                "budget": fact.budget,
                "source": fact.tokens_source,
            }
        )

    def bypassed(self, reason: str) -> None:
        """Say why nothing was chosen."""
        self._tell({"bypass": reason})


class ChatSpan(_Told):
    """The span of one call of the model."""

    def answered(
        self,
        usage: Usage | None = None,
        *,
        finish: str | None = None,
        model: str | None = None,
        response_id: str | None = None,
    ) -> None:
        """Say what the provider said of its answer; what it did not count is not told."""
        facts: dict[str, Any] = {
            "finish": None if finish is None else [finish],
            "answered_by": model,
            "response_id": response_id,
        }
        if usage is not None:
            facts |= {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": usage.cache_write_tokens or None,
                "reasoning_tokens": usage.reasoning_tokens or None,
            }
        self._tell(facts)


class CompactSpan(_Told):
    """The span of a compaction."""

    def compacted(self, event: HistoryCompacted) -> None:
        """Say what was folded."""
        self._tell(
            {
                "strategy": event.strategy,
                "compaction": event.folds[-1] if event.folds else None,
                "compaction_before": event.tokens_before,
                "compaction_after": event.tokens_after,
            }
        )


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes; a client names its conversations, and may name one after a key."""
    return {SERVICE_NAMES[key]: cleaned(value) for key, value in facts.items() if value is not None}
