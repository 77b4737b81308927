"""The running service: the parts that all request handlers share."""

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final

from fastapi import Depends, Request

from minutebook.agent.summarizer import ModelSummarizer
from minutebook.compaction.manager import HistoryCompacted
from minutebook.compaction.summarizer import Summarizer
from minutebook.conversation.minutes import HistoryPruned, SentRequest
from minutebook.conversation.policy import Policy, policy_named, summary_model
from minutebook.conversation.record_cache import RecordCache
from minutebook.errors import RequestRefused
from minutebook.service.access.api_keys import ApiKeys, Caller
from minutebook.service.access.audit import AuditLog
from minutebook.service.access.limits import Limiter
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.observability.logs import log_pruning
from minutebook.service.observability.telemetry import Metrics, ServiceTelemetry
from minutebook.service.runs import Run, Runs
from minutebook.service.upstream import Upstream
from minutebook.store.base import ConversationStore
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo, info_without_warning

MAX_CACHED: Final = 1000
"""Maximum number of cached policies and models together. Clients choose the names of both, so the number is limited."""


@dataclass(eq=False, slots=True, kw_only=True)
class Service:
    """The parts of a running service."""

    holder: ConfigHolder
    store: ConversationStore
    read_store: ConversationStore
    """For reads that may be stale. The same as `store`, unless `database.read_url` is set."""
    upstream: Upstream
    keys: ApiKeys
    limiter: Limiter
    audit: AuditLog
    metrics: Metrics
    telemetry: ServiceTelemetry
    records: RecordCache
    """The records of conversations between requests."""
    runs: Runs = field(default_factory=Runs)
    _policies: dict[tuple[str, str], Policy] = field(default_factory=dict)
    _infos: dict[str, ModelInfo] = field(default_factory=dict)
    _cached_config: ServiceConfig | None = None
    """The configuration of the cached policies and models."""

    @property
    def config(self) -> ServiceConfig:
        return self.holder.current.config

    @property
    def lease_seconds(self) -> float:
        return self.config.server.lease_seconds

    def max_body_bytes(self) -> int:
        return self.config.limits.body_bytes

    def reload(self) -> bool:
        """Reload the configuration, and return whether it is valid. An invalid one changes nothing.

        Address, database and provider are not reloaded: changing them needs a restart.
        """
        if self.holder.reload() is not None:
            return False
        limits = self.config.limits
        self.limiter.requests_per_minute, self.limiter.tokens_per_day = (
            limits.requests_per_minute,
            limits.tokens_per_day,
        )
        return True

    def store_of(self, caller: Caller) -> ConversationStore:
        """The store, restricted to the caller's tenant."""
        return self.store.for_tenant(caller.tenant)

    def read_store_of(self, caller: Caller) -> ConversationStore:
        """The store for reads that may be stale (lists, searches, exports), restricted to the caller's tenant."""
        return self.read_store.for_tenant(caller.tenant)

    def model_of(self, name: str | None) -> str:
        """The model of a request: the one it names, else the configured default."""
        return name or self.config.upstream.model or "default"

    def policy(self, model: str, name: str | None = None) -> Policy:
        """The policy for requests to a model: the named one, else the configured one.

        Raises:
            InvalidSetting: no policy has this name.
        """
        config = self.config
        self._clear_outdated_caches()
        key = model, name or config.conversation.policy
        if key not in self._policies:
            self._policies[key] = policy_named(
                key[1], config, model=self.info_of(model), summarizer=self._summarizer(key[1], model)
            )
        return self._policies[key]

    def info_of(self, model: str) -> ModelInfo:
        """The model's context window and limits, cached. An unknown model gets a small default, without a warning."""
        self._clear_outdated_caches()
        if model not in self._infos:
            self._infos[model] = info_without_warning(model, own=self.config.models)
        return self._infos[model]

    def _clear_outdated_caches(self) -> None:
        if self.config is not self._cached_config or len(self._policies) + len(self._infos) > MAX_CACHED:
            self._policies.clear()
            self._infos.clear()
            self._cached_config = self.config

    def report(self, request: SentRequest) -> HistoryPruned:
        """Log and count the messages that a request's view leaves out."""
        pruned = request.pruned
        self.metrics.count_pruning(pruned)
        if request.bypass is not None:
            self.metrics.count_bypass(request.bypass)
        log_pruning(pruned)
        return pruned

    def report_compaction(self, conversation: str, event: HistoryCompacted) -> None:
        """Count and trace a compaction."""
        self.metrics.count_compaction(event)
        self.telemetry.add_compaction(conversation, event)

    def _summarizer(self, policy: str, model: str) -> Summarizer | None:
        """The summarizer of a policy that names a summary model; None if summaries are extracts."""
        summarizer_model = summary_model(policy, self.config)
        if summarizer_model is None:
            return None
        return ModelSummarizer(self.upstream.openai_adapter(summarizer_model, counter=counter_of(model)))


@lru_cache(maxsize=256)
def counter_of(model: str) -> TokenCounter:
    """The model's token counter, cached."""
    return counter_for(model)


async def service_of(request: Request) -> Service:
    """The service of this app. It is async because FastAPI runs sync dependencies in a thread pool."""
    service: Service = request.app.state.service
    return service


CurrentService = Annotated[Service, Depends(service_of)]
"""Type of a handler parameter that receives the service."""


def cancels_on_disconnect(service: Service, request: Request) -> bool:
    """Whether an answer ends when its client disconnects: by the query parameter, else by the configuration.

    Raises:
        RequestRefused: the parameter has an unknown value.
    """
    value = request.query_params.get("on_disconnect", service.config.server.on_disconnect)
    if value not in {"cancel", "continue"}:
        raise RequestRefused(400, "on_disconnect must be continue or cancel.", "invalid_on_disconnect", "on_disconnect")
    return value == "cancel"


def watch_connection(service: Service, request: Request, run: Run, *, cancels: bool) -> None:
    """With `cancels`, cancel the run when its client disconnects."""
    if cancels:
        run.watcher = asyncio.create_task(_cancel_after_disconnect(service, request, run))


async def _cancel_after_disconnect(service: Service, request: Request, run: Run) -> None:
    # While nothing is sent (an idle stream, an answer without streaming), only ASGI's message reports a disconnect.
    while (await request.receive())["type"] != "http.disconnect":
        pass
    await service.runs.cancel(run)
