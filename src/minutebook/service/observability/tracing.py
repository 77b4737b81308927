"""Spans of what the service does: the request, what was chosen from the history, the call of the model, compactions.

Without opentelemetry-api nothing is traced, and nothing else is different.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from minutebook.agent.telemetry import Span, Telemetry
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.minutes import HistoryPruned
from minutebook.service.observability.logs import cleaned
from minutebook.service.observability.metrics import Label

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


class ServiceSpan(Span):
    """A span of the service."""

    def responded(self, method: str, route: str | None, status: int) -> None:
        """Say how a request was answered."""
        self.set(route=route, status=status)
        self.rename(f"{method} {route}" if route else method)
        if status >= 500:
            self.fail()

    def pruned(self, fact: HistoryPruned) -> None:
        """Say what was chosen from the history."""
        self.set(
            strategy=fact.policy,
            mode=fact.mode,
            record_items=fact.loaded,
            record_tokens=fact.tokens_before,
            sent_items=fact.sent,
            sent_tokens=fact.tokens_after if fact.mode == "on" else fact.tokens_before,
            dropped=fact.pruned - fact.stripped,
            stripped=fact.stripped,
            stable=fact.prefix_stable,
            reconcile=fact.reconcile,
            budget=fact.budget,
            source=fact.tokens_source,
        )

    def compacted(self, event: HistoryCompacted) -> None:
        """Say what was folded."""
        self.set(
            strategy=event.strategy,
            compaction=event.folds[-1] if event.folds else None,
            compaction_before=event.tokens_before,
            compaction_after=event.tokens_after,
        )


class ServiceTelemetry(Telemetry):
    """Traces what the service does, to OpenTelemetry's own provider unless it is given another."""

    span_type = ServiceSpan

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

    def tracer(self) -> "Tracer | None":
        """None, too, while OpenTelemetry's own provider only stands in for one that may be set later."""
        if self._tracer is None or (not self._given and isinstance(self._provider(), self._stand_in)):
            return None
        return self._tracer

    def attributes(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """A client names its conversations, and may name one after a key."""
        return {name: cleaned(value) for name, value in super().attributes(facts).items()}

    def request(self, method: str, headers: Mapping[str, str]) -> AbstractContextManager[ServiceSpan]:
        """Around a whole request; the trace that its headers name goes on."""
        context = None
        if self.tracer() is not None:
            from opentelemetry.propagate import extract

            # The state that comes with a trace is text of the client's choice: it is left behind.
            context = extract({name: headers[name] for name in ("traceparent",) if name in headers})
        return self.span(method, "server", context=context, method=method)

    def prepare(self, conversation: str | None) -> AbstractContextManager[ServiceSpan]:
        """Around choosing what is sent."""
        return self.span("history.prepare", conversation=conversation, session=conversation)

    def chat(
        self, model: str, conversation: str | None, *, provider: str = "openai", compacted: bool = False
    ) -> AbstractContextManager[ServiceSpan]:
        """Around one call of the model, to the end of its answer."""
        model = self._models.of(model)
        facts = {"operation": "chat", "provider": provider, "model": model, "compacted": compacted or None}
        return self.span(f"chat {model}", "client", conversation=conversation, session=conversation, **facts)

    def compact(self, conversation: str | None, *, trigger: str = "auto") -> AbstractContextManager[ServiceSpan]:
        """Around a compaction; `trigger` is auto, manual or overflow."""
        return self.span("compact", operation="compact", conversation=conversation, trigger=trigger)
