"""Prometheus metrics and OpenTelemetry traces of the service.

Labels have few values and no ids, because Prometheus stores a time series for every value. Without opentelemetry-api
there are no traces; everything else works.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from minutebook.agent.messages import Usage
from minutebook.agent.telemetry import Span, Telemetry
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.lease import RenewalCounts
from minutebook.conversation.minutes import HistoryPruned
from minutebook.service.observability.logs import needs_redaction, value_without_secrets
from minutebook.store.types import StoreStatistics

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OTHER: Final = "other"
MAX_LABEL_VALUES: Final = 50
"""Maximum number of values of a label; further values are counted as `other`."""
_LABEL_VALUE: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ._:/@-]{0,63}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FAST_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "minutebook_tokens": ("Tokens in the record and tokens sent.", ("category",)),
    "minutebook_tokens_saved": ("Tokens pruned from requests.", ()),
    "minutebook_tokens_folded": ("Tokens removed from views by folds.", ()),
    "minutebook_messages": ("Messages loaded for requests and messages pruned.", ("category", "policy")),
    "minutebook_prunings": ("Pruning decisions.", ("mode", "policy")),
    "minutebook_compactions": ("Compactions.", ("strategy",)),
    "minutebook_unrecorded": ("Answers that were not recorded.", ()),
    "minutebook_bypassed": ("Requests sent without curation.", ("reason",)),
    "minutebook_model_tokens": ("Tokens as counted by the provider.", ("model", "category")),
    "minutebook_tool_server_restarts": ("Restarts of MCP servers that ended.", ("server",)),
    "minutebook_http_requests": ("HTTP requests.", ("method", "route", "status")),
}
"""Name → description and labels."""
_HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]]] = {
    "minutebook_append_seconds": ("Duration of appends to the record.", (), _FAST_BUCKETS),
    "minutebook_lock_wait_seconds": ("Time that requests waited for a conversation's lease.", (), _FAST_BUCKETS),
    "minutebook_http_request_seconds": (
        "Duration of HTTP requests, to the end of the response.",
        ("method", "route"),
        _SLOW_BUCKETS,
    ),
    "minutebook_first_token_seconds": ("Time to the first token of an answer.", (), _SLOW_BUCKETS),
}
"""Name → description, labels and buckets."""


_STORE_METRICS: Final[Mapping[str, tuple[type[GaugeMetricFamily | CounterMetricFamily], str]]] = {
    "minutebook_waiting_writes": (GaugeMetricFamily, "Writes that wait for their transaction."),
    "minutebook_connections": (GaugeMetricFamily, "Open connections of the pool to the database."),
    "minutebook_idle_connections": (GaugeMetricFamily, "Connections of the pool that are not in use."),
    "minutebook_connection_waiters": (GaugeMetricFamily, "Operations that wait for a connection of the pool."),
    "minutebook_connection_requests": (CounterMetricFamily, "Operations that used a connection of the pool."),
    "minutebook_connection_wait_seconds": (CounterMetricFamily, "Time that operations waited for a connection."),
    "minutebook_queued_jobs": (GaugeMetricFamily, "Background jobs that wait for a worker, of all processes."),
    "minutebook_lease_renewals": (CounterMetricFamily, "Calls that renewed all leases of this process."),
    "minutebook_leases_renewed": (CounterMetricFamily, "Leases that were renewed."),
    "minutebook_leases_lost": (CounterMetricFamily, "Leases that another process had taken."),
}
"""Name → type and description."""


class _StoreCollector(Collector):
    """Shows the figures that the store has."""

    def __init__(self, figures: Mapping[str, float | None]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for name, (family, text) in _STORE_METRICS.items():
            value = self._figures.get(name)
            if value is not None:
                yield family(name, text, value=value)


class Label:
    """Limits the values of one label to `MAX_LABEL_VALUES` words that are not secrets."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def value_for(self, text: str | None) -> str:
        """The text as a label value, or `other`."""
        if text in self._values:
            return text
        if text is None or not _LABEL_VALUE.fullmatch(text) or needs_redaction(text):
            return OTHER
        if len(self._values) >= MAX_LABEL_VALUES:
            return OTHER
        self._values.add(text)
        return text


class Metrics:
    """The metrics of one process, in a separate registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = registry or CollectorRegistry()
        self._models, self._policies, self._strategies, self._reasons = Label(), Label(), Label(), Label()
        self._tool_servers = Label()
        self._metrics: dict[str, Counter | Histogram] = {
            **{name: Counter(name, text, labels, registry=registry) for name, (text, labels) in _COUNTERS.items()},
            **{
                name: Histogram(name, text, labels, buckets=buckets, registry=registry)
                for name, (text, labels, buckets) in _HISTOGRAMS.items()
            },
        }
        self._with_labels: dict[tuple[str, tuple[str, ...]], Any] = {}
        """Cache of `_metric`."""
        self._active = Gauge("minutebook_active_runs", "Answers in progress.", registry=registry)
        self._store_figures: dict[str, float | None] = {}
        registry.register(_StoreCollector(self._store_figures))

    def observe_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; `route` is its path template, never its path."""
        method = method if method in _METHODS else OTHER
        route = route or "none"
        self._count("http_requests", method, route, str(status))
        self._observe("http_request_seconds", seconds, method, route)

    def observe_first_token(self, seconds: float) -> None:
        """Observe the time to the first token of an answer."""
        self._observe("first_token_seconds", seconds)

    def observe_append(self, seconds: float) -> None:
        """Observe the duration of an append."""
        self._observe("append_seconds", seconds)

    def observe_lock_wait(self, seconds: float) -> None:
        """Observe the time that a request waited for a conversation's lease."""
        self._observe("lock_wait_seconds", seconds)

    def count_pruning(self, pruning: HistoryPruned) -> None:
        """Count a pruning decision, also if it was only a dry run."""
        policy = self._policies.value_for(pruning.policy)
        self._count("prunings", pruning.mode, policy)
        self._count("messages", "loaded", policy, by=pruning.loaded)
        self._count("messages", "pruned", policy, by=pruning.pruned)
        self._count("tokens", "record", by=pruning.tokens_before)
        self._count("tokens", "sent", by=pruning.tokens_after if pruning.mode == "on" else pruning.tokens_before)
        self._count("tokens_saved", by=pruning.saved)

    def count_compaction(self, event: HistoryCompacted) -> None:
        self._count("compactions", self._strategies.value_for(event.strategy))
        self._count("tokens_folded", by=max(0, event.tokens_before - event.tokens_after))

    def count_usage(self, model: str, usage: Usage) -> None:
        """Count the provider's usage. Cached tokens are part of the input tokens, reasoning tokens of the output."""
        model = self._models.value_for(model)
        for category in ("input", "output", "cached", "cache_write", "reasoning"):
            self._count("model_tokens", model, category, by=getattr(usage, f"{category}_tokens"))

    def count_unrecorded(self) -> None:
        """Count an answer that was not recorded."""
        self._count("unrecorded")

    def count_bypass(self, reason: str) -> None:
        """Count a request that was sent with its complete history because curation failed."""
        self._count("bypassed", self._reasons.value_for(reason))

    def count_tool_server_restart(self, server: str) -> None:
        """Count that an MCP server, named as in the configuration, is started again."""
        self._count("tool_server_restarts", self._tool_servers.value_for(server))

    def watch_runs(self, active: Callable[[], float]) -> None:
        """Report the result of `active` as the number of answers in progress."""
        self._active.set_function(active)

    def set_store(self, statistics: StoreStatistics, renewals: RenewalCounts) -> None:
        """Set the figures of the store that the next `render` shows."""
        self._store_figures.update(
            {
                "minutebook_waiting_writes": statistics.waiting_writes,
                "minutebook_connections": statistics.connections,
                "minutebook_idle_connections": statistics.idle_connections,
                "minutebook_connection_waiters": statistics.waiting_for_connection,
                "minutebook_connection_requests": statistics.connection_requests,
                "minutebook_connection_wait_seconds": statistics.connection_wait_seconds,
                "minutebook_queued_jobs": statistics.queued_jobs,
                "minutebook_lease_renewals": renewals.calls,
                "minutebook_leases_renewed": renewals.leases,
                "minutebook_leases_lost": renewals.lost,
            }
        )

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus, of media type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        self._metric(name, labels).inc(by)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        self._metric(name, labels).observe(seconds)

    def _metric(self, name: str, labels: tuple[str, ...]) -> Any:
        """The metric with these labels. Cached: every request needs a dozen, and `labels()` takes a lock each time."""
        metric = self._with_labels.get((name, labels))
        if metric is None:
            metric = self._metrics[f"minutebook_{name}"]
            metric = self._with_labels[name, labels] = metric.labels(*labels) if labels else metric
        return metric


class ServiceSpan(Span):
    """A span with attributes that only the service sets."""

    def set_response(self, method: str, route: str | None, status: int) -> None:
        """Set how the request was answered, and name the span after its route."""
        self.set(route=route, status=status)
        self.rename(f"{method} {route}" if route else method)
        if status >= 500:
            self.fail()

    def set_pruning(self, pruning: HistoryPruned) -> None:
        """Set how much of the history was sent."""
        self.set(
            strategy=pruning.policy,
            mode=pruning.mode,
            record_items=pruning.loaded,
            record_tokens=pruning.tokens_before,
            sent_items=pruning.sent,
            sent_tokens=pruning.tokens_after if pruning.mode == "on" else pruning.tokens_before,
            dropped=pruning.pruned - pruning.stripped,  # the others are sent without their tool payload
            stripped=pruning.stripped,
            stable=pruning.prefix_stable,
            reconcile=pruning.reconcile,
            budget=pruning.budget,
            source=pruning.tokens_source,
        )


class ServiceTelemetry(Telemetry):
    """Traces requests, curation, model calls and compactions. The default is OpenTelemetry's global tracer provider."""

    span_type = ServiceSpan

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        self._tracer: Tracer | None = None
        self._models = Label()
        self._has_own_provider = tracer_provider is not None
        try:
            from opentelemetry import trace
        except ImportError:
            return
        self._tracer = trace.get_tracer("minutebook", tracer_provider=tracer_provider)
        self._global_provider, self._placeholder_type = trace.get_tracer_provider, trace.ProxyTracerProvider

    def tracer(self) -> "Tracer | None":
        """The tracer; None without opentelemetry-api, and until the application has set a global tracer provider."""
        if self._tracer is None:
            return None
        if not self._has_own_provider and isinstance(self._global_provider(), self._placeholder_type):
            return None
        return self._tracer

    def attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values as redacted attributes: clients choose conversation ids, which may contain a secret."""
        return {name: value_without_secrets(value) for name, value in super().attributes(values).items()}

    def request(self, method: str, headers: Mapping[str, str]) -> AbstractContextManager[ServiceSpan]:
        """The span of an HTTP request. It continues the trace in the `traceparent` header."""
        context = None
        if self.tracer() is not None:
            from opentelemetry.propagate import extract

            # `tracestate` is ignored: it can contain any text.
            context = extract({name: headers[name] for name in ("traceparent",) if name in headers})
        return self.span(method, "server", context=context, method=method)

    def prepare(self, conversation: str | None) -> AbstractContextManager[ServiceSpan]:
        """The span of building a view."""
        return self.span("history.prepare", conversation=conversation, session=conversation)

    def chat(
        self, model: str, conversation: str | None, *, provider: str = "openai"
    ) -> AbstractContextManager[ServiceSpan]:
        """The span of one model call, to the end of its answer."""
        model = self._models.value_for(model)
        values = {"operation": "chat", "provider": provider, "model": model}
        return self.span(f"chat {model}", "client", conversation=conversation, session=conversation, **values)

    def add_compaction(self, conversation: str, event: HistoryCompacted) -> None:
        """Add the span of a compaction that is done, with its last fold and its tokens."""
        with self.span(
            "compact",
            operation="compact",
            conversation=conversation,
            strategy=event.strategy,
            compaction=event.folds[-1] if event.folds else None,
            compaction_before=event.tokens_before,
            compaction_after=event.tokens_after,
        ):
            pass
