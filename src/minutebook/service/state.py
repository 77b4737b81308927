"""What all handlers of the service share."""

import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request

from minutebook.agent.openai import OpenAIAdapter
from minutebook.agent.summarizer import ModelSummarizer
from minutebook.compaction.summarizer import Summarizer
from minutebook.service.audit import Audit
from minutebook.service.caller import Caller
from minutebook.service.config import ServiceConfig
from minutebook.service.configfile import ConfigHolder
from minutebook.service.keys import Keys
from minutebook.service.limits import Limiter
from minutebook.service.logs import log_pruned
from minutebook.service.metrics import Metrics
from minutebook.service.policy import Policy, policy_named, summary_model
from minutebook.service.pruned import HistoryPruned
from minutebook.service.runs import Runs
from minutebook.service.telemetry import Telemetry
from minutebook.service.turns import heard
from minutebook.service.upstream import Upstream
from minutebook.store.contract import ConversationStore
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo, model_info

MOST_POLICIES: Final = 500
"""So many are remembered, one for each model and name."""


class Asked(Protocol):
    """A call of the model, whose view was made."""

    @property
    def pruned(self) -> HistoryPruned:
        """What the view left out."""
        ...

    @property
    def bypass(self) -> str | None:
        """Why the view was not used, where it could not be."""
        ...


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
    telemetry: Telemetry
    runs: Runs = field(default_factory=Runs)
    _policies: dict[tuple[str, str], Policy] = field(default_factory=dict)
    _policies_of: ServiceConfig | None = None

    @property
    def config(self) -> ServiceConfig:
        return self.holder.current.config

    @property
    def lease_seconds(self) -> float:
        return self.config.server.lease_seconds

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
                key[1], config, model=info_of(model), summarizer=self._summarizer(key[1], model), report=heard
            )
        return self._policies[key]

    def tell(self, asked: Asked) -> HistoryPruned:
        """Log and count what a call's view left out."""
        fact = asked.pruned
        self.metrics.pruned(fact)
        if asked.bypass is not None:
            self.metrics.bypassed(asked.bypass)
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


def adapter_of(service: Service, model: str, **options: Any) -> OpenAIAdapter:
    """An adapter for the provider behind the service."""
    return service.upstream.adapter(model, counter=counter_of(model), **options)
