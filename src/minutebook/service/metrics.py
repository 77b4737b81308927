"""What the service counts, for Prometheus. Labels have few values and no ids: a metric is kept for every one of them."""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from minutebook.agent.usage import Usage
from minutebook.compaction.events import HistoryCompacted
from minutebook.service.pruned import HistoryPruned
from minutebook.service.redact import is_clean

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OTHER: Final = "other"
MOST_VALUES: Final = 50
"""The most values of a label; whatever comes after them is `other`."""
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ._:/@-]{0,63}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
M = TypeVar("M", Counter, Histogram)


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
        self._children: dict[tuple[Any, ...], Any] = {}
        self._make_history()
        self._make_http()

    def request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """A request was answered; `route` is its template, never its path."""
        method = method if method in _METHODS else OTHER
        route = route or "none"
        self._child(self._requests, method, route, str(status)).inc()
        self._child(self._request_seconds, method, route).observe(seconds)

    def first_token(self, seconds: float) -> None:
        """The first words of an answer came so long after they were asked for."""
        self._first_token.observe(seconds)

    def appended(self, seconds: float) -> None:
        """The store took so long for an append."""
        self._append.observe(seconds)

    def lock_waited(self, seconds: float) -> None:
        """A conversation was free after so long."""
        self._lock_wait.observe(seconds)

    def pruned(self, fact: HistoryPruned) -> None:
        """A request's history was pruned, or would have been."""
        policy = self._policies.of(fact.policy)
        self._child(self._decisions, fact.mode, policy).inc()
        self._child(self._messages, "loaded", policy).inc(fact.loaded)
        self._child(self._messages, "pruned", policy).inc(fact.pruned)
        self._child(self._tokens, "record").inc(fact.tokens_before)
        self._child(self._tokens, "sent").inc(fact.tokens_after if fact.mode == "on" else fact.tokens_before)
        self._saved.inc(fact.saved)

    def compacted(self, event: HistoryCompacted) -> None:
        """Old parts of a conversation were folded."""
        self._child(self._compactions, self._strategies.of(event.strategy)).inc()
        self._folded.inc(max(0, event.tokens_before - event.tokens_after))

    def usage(self, model: str, usage: Usage) -> None:
        """What the provider counted. Cached tokens are a part of the input, reasoning of the output."""
        model = self._models.of(model)
        for category, tokens in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            self._child(self._model_tokens, model, category).inc(tokens)

    def unrecorded(self) -> None:
        """An answer was given that is in no record."""
        self._unrecorded.inc()

    def bypassed(self, reason: str) -> None:
        """A request was sent whole, since its history could not be curated."""
        self._child(self._bypassed, self._reasons.of(reason)).inc()

    def watch_runs(self, active: Callable[[], float]) -> None:
        """Ask this for the number of answers in the making."""
        self._active.set_function(active)

    def render(self) -> bytes:
        """All of it, as Prometheus reads it: of the media type `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _child(self, metric: M, *labels: str) -> M:
        """The metric for these labels. It is asked for a dozen times a request, and Prometheus locks and builds each time."""
        known: M | None = self._children.get((metric, labels))
        if known is None:
            known = self._children[metric, labels] = metric.labels(*labels)
        return known

    def _make_history(self) -> None:
        into = self.registry
        self._append = Histogram(
            "minutebook_append_seconds", "How long appends to the record took.", buckets=_QUICK, registry=into
        )
        self._lock_wait = Histogram(
            "minutebook_lock_wait_seconds",
            "How long requests waited for a conversation.",
            buckets=_QUICK,
            registry=into,
        )
        self._tokens = Counter("minutebook_tokens", "Tokens in the record, and sent.", ["category"], registry=into)
        self._saved = Counter("minutebook_tokens_saved", "Tokens that were pruned from requests.", registry=into)
        self._folded = Counter("minutebook_tokens_folded", "Tokens that folds took from views.", registry=into)
        self._messages = Counter(
            "minutebook_messages", "Messages loaded for requests, and pruned.", ["category", "policy"], registry=into
        )
        self._decisions = Counter(
            "minutebook_prunings", "Decisions about what is sent.", ["mode", "policy"], registry=into
        )
        self._compactions = Counter(
            "minutebook_compactions", "Times that old parts were folded.", ["strategy"], registry=into
        )
        self._unrecorded = Counter("minutebook_unrecorded", "Answers that are in no record.", registry=into)
        self._bypassed = Counter("minutebook_bypassed", "Requests sent without curation.", ["reason"], registry=into)
        self._model_tokens = Counter(
            "minutebook_model_tokens", "Tokens as the provider counts them.", ["model", "category"], registry=into
        )

    def _make_http(self) -> None:
        into = self.registry
        self._requests = Counter(
            "minutebook_http_requests", "Requests answered.", ["method", "route", "status"], registry=into
        )
        self._request_seconds = Histogram(
            "minutebook_http_request_seconds",
            "How long requests took, to the end of their answer.",
            ["method", "route"],
            buckets=_SLOW,
            registry=into,
        )
        self._first_token = Histogram(
            "minutebook_first_token_seconds", "How long the first words took.", buckets=_SLOW, registry=into
        )
        self._active = Gauge("minutebook_active_runs", "Answers in the making.", registry=into)
