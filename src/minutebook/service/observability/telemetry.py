"""Metrics for Prometheus, and spans of what the service does for OpenTelemetry.

Labels have few values and no ids: a metric is kept for every one of them. Without opentelemetry-api nothing is traced,
and nothing else is different.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from minutebook.agent.messages import Usage
from minutebook.agent.telemetry import Span, Telemetry
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.minutes import HistoryPruned
from minutebook.service.observability.logs import cleaned, is_clean

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OTHER: Final = "other"
MOST_VALUES: Final = 50
"""The most values of a label; whatever comes after them is `other`."""
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ._:/@-]{0,63}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "minutebook_tokens": ("Tokens in the record, and sent.", ("category",)),
    "minutebook_tokens_saved": ("Tokens that were pruned from requests.", ()),
    "minutebook_tokens_folded": ("Tokens that folds took from views.", ()),
    "minutebook_messages": ("Messages loaded for requests, and pruned.", ("category", "policy")),
    "minutebook_prunings": ("Decisions about what is sent.", ("mode", "policy")),
    "minutebook_compactions": ("Times that old parts were folded.", ("strategy",)),
    "minutebook_unrecorded": ("Answers that are in no record.", ()),
    "minutebook_bypassed": ("Requests sent without curation.", ("reason",)),
    "minutebook_model_tokens": ("Tokens as the provider counts them.", ("model", "category")),
    "minutebook_http_requests": ("Requests answered.", ("method", "route", "status")),
}
"""Name → what it counts, and its labels."""
_HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]]] = {
    "minutebook_append_seconds": ("How long appends to the record took.", (), _QUICK),
    "minutebook_lock_wait_seconds": ("How long requests waited for a conversation.", (), _QUICK),
    "minutebook_http_request_seconds": (
        "How long requests took, to the end of their answer.",
        ("method", "route"),
        _SLOW,
    ),
    "minutebook_first_token_seconds": ("How long the first words took.", (), _SLOW),
}
"""Name → what it measures, its labels and its buckets."""


class Label:
    """The values of one label, held to a few dozen words that are no secrets."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, value: str | None) -> str:
        """The value, or `other`."""
        if value in self._known:
            return value
        if value is None or len(self._known) >= MOST_VALUES or not _WORD.fullmatch(value) or not is_clean(value):
            return OTHER
        self._known.add(value)
        return value


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._models, self._policies, self._strategies, self._reasons = Label(), Label(), Label(), Label()
        into = self.registry
        self._metrics: dict[str, Counter | Histogram] = {
            **{name: Counter(name, about, labels, registry=into) for name, (about, labels) in _COUNTERS.items()},
            **{
                name: Histogram(name, about, labels, buckets=buckets, registry=into)
                for name, (about, labels, buckets) in _HISTOGRAMS.items()
            },
        }
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._active = Gauge("minutebook_active_runs", "Answers in the making.", registry=into)

    def request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """A request was answered; `route` is its template, never its path."""
        method = method if method in _METHODS else OTHER
        route = route or "none"
        self._count("http_requests", method, route, str(status))
        self._observe("http_request_seconds", seconds, method, route)

    def first_token(self, seconds: float) -> None:
        """The first words of an answer came so long after they were asked for."""
        self._observe("first_token_seconds", seconds)

    def appended(self, seconds: float) -> None:
        """The store took so long for an append."""
        self._observe("append_seconds", seconds)

    def lock_waited(self, seconds: float) -> None:
        """A conversation was free after so long."""
        self._observe("lock_wait_seconds", seconds)

    def pruned(self, fact: HistoryPruned) -> None:
        """A request's history was pruned, or would have been."""
        policy = self._policies.of(fact.policy)
        self._count("prunings", fact.mode, policy)
        self._count("messages", "loaded", policy, by=fact.loaded)
        self._count("messages", "pruned", policy, by=fact.pruned)
        self._count("tokens", "record", by=fact.tokens_before)
        self._count("tokens", "sent", by=fact.tokens_after if fact.mode == "on" else fact.tokens_before)
        self._count("tokens_saved", by=fact.saved)

    def compacted(self, event: HistoryCompacted) -> None:
        """Old parts of a conversation were folded."""
        self._count("compactions", self._strategies.of(event.strategy))
        self._count("tokens_folded", by=max(0, event.tokens_before - event.tokens_after))

    def usage(self, model: str, usage: Usage) -> None:
        """What the provider counted. Cached tokens are a part of the input, reasoning of the output."""
        model = self._models.of(model)
        for category in ("input", "output", "cached", "cache_write", "reasoning"):
            self._count("model_tokens", model, category, by=getattr(usage, f"{category}_tokens"))

    def unrecorded(self) -> None:
        """An answer was given that is in no record."""
        self._count("unrecorded")

    def bypassed(self, reason: str) -> None:
        """A request was sent whole, since its history could not be curated."""
        self._count("bypassed", self._reasons.of(reason))

    def watch_runs(self, active: Callable[[], float]) -> None:
        """Ask this for the number of answers in the making."""
        self._active.set_function(active)

    def render(self) -> bytes:
        """All of it, as Prometheus reads it: of the media type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        self._child(name, labels).inc(by)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        self._child(name, labels).observe(seconds)

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        """The metric for these labels. It is asked for a dozen times a request, and Prometheus locks and builds each time."""
        known = self._children.get((name, labels))
        if known is None:
            metric = self._metrics[f"minutebook_{name}"]
            known = self._children[name, labels] = metric.labels(*labels) if labels else metric
        return known


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
