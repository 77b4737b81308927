"""What all handlers of the service share."""

import asyncio
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final

from fastapi import Depends, Request

from minutebook.agent.summarizer import ModelSummarizer
from minutebook.compaction.summarizer import Summarizer
from minutebook.conversation.minutes import HistoryPruned, SentRequest
from minutebook.conversation.policy import Policy, policy_named, summary_model
from minutebook.service.access.api_keys import Caller, Keys
from minutebook.service.access.audit import Audit
from minutebook.service.access.limits import Limiter
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.observability.logs import log_pruned
from minutebook.service.observability.telemetry import Metrics, ServiceTelemetry
from minutebook.service.runs import Run, Runs
from minutebook.service.upstream import Upstream
from minutebook.store.base import ConversationStore
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo, model_info

MOST_POLICIES: Final = 500
"""So many are remembered, one for each model and name."""


@dataclass(eq=False, slots=True, kw_only=True)
class Service:
    """The parts of a running service."""

    holder: ConfigHolder
    store: ConversationStore
    upstream: Upstream
    keys: Keys
    limiter: Limiter
    audit: Audit
    metrics: Metrics
    telemetry: ServiceTelemetry
    runs: Runs = field(default_factory=Runs)
    _policies: dict[tuple[str, str], Policy] = field(default_factory=dict)
    _policies_of: ServiceConfig | None = None

    @property
    def config(self) -> ServiceConfig:
        return self.holder.current.config

    @property
    def lease_seconds(self) -> float:
        return self.config.server.lease_seconds

    def max_body_bytes(self) -> int:
        return self.config.limits.body_bytes

    def reload(self) -> bool:
        """Read the configuration again; whether it holds now. One that is wrong leaves everything as it is.

        Where it listens, its database and its provider stay as they were: they need a restart.
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
        """The conversations that a caller sees."""
        return self.store.for_tenant(caller.tenant)

    def model_of(self, name: str | None) -> str:
        """The model that a request means."""
        return name or self.config.upstream.model or "default"

    def policy(self, model: str, name: str | None = None) -> Policy:
        """The policy for requests to a model: the configured one, or another by name.

        Raises:
            InvalidSetting: there is none of that name.
        """
        config = self.config
        if config is not self._policies_of or len(self._policies) > MOST_POLICIES:  # reloaded, or asked for by anybody
            self._policies.clear()
            self._policies_of = config
        key = model, name or config.conversation.policy
        if key not in self._policies:
            self._policies[key] = policy_named(
                key[1], config, model=info_of(model), summarizer=self._summarizer(key[1], model)
            )
        return self._policies[key]

    def report(self, request: SentRequest) -> HistoryPruned:
        """Log and count what a request's view left out."""
        fact = request.pruned
        self.metrics.pruned(fact)
        if request.bypass is not None:
            self.metrics.bypassed(request.bypass)
        log_pruned(fact)
        return fact

    def _summarizer(self, policy: str, model: str) -> Summarizer | None:
        """A model writes summaries where the policy names one; else they are extracts."""
        wanted = summary_model(policy, self.config)
        if wanted is None:
            return None
        return ModelSummarizer(self.upstream.adapter(wanted, counter=counter_of(model)))


@lru_cache(maxsize=256)
def counter_of(model: str) -> TokenCounter:
    """Counts the tokens of a model."""
    return counter_for(model)


@lru_cache(maxsize=256)
def info_of(model: str) -> ModelInfo:
    """What is known of a model. Of one that nobody knows, nothing is made up: it has no limit that we could keep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model_info(model)


async def service_of(request: Request) -> Service:
    """The service that a request came to. Were it not async, every request would change threads for it."""
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]
"""A handler's parameter: the service."""


def watch_connection(service: Service, request: Request, run: Run) -> None:
    """Stop an answer when its client is gone, where that is wanted."""
    if request.query_params.get("on_disconnect", service.config.server.on_disconnect) == "cancel":
        run.watcher = asyncio.create_task(_stop_when_gone(service, request, run))


async def _stop_when_gone(service: Service, request: Request, run: Run) -> None:
    """Of an idle stream, and of an answer that is to come whole, only the connection says that nobody waits for it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    await service.runs.cancel(run)
