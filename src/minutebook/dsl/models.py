"""The provider adapters for the models of a program."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.providers.environment import provider_access
from minutebook.agent.retry import RetryPolicy
from minutebook.dsl.spec import ModelSpec, RetrySpec
from minutebook.dsl.syntax import Backoff

Adapters: TypeAlias = Callable[[ModelSpec], ProviderAdapter]


def provider_adapters(
    *,
    base_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    retry_policy: RetryPolicy | None = None,
) -> Adapters:
    """The function that creates the adapter for each model of a program.

    Any provider other than `openai` and `anthropic` must be a server with OpenAI's API. The address of `ollama`, for example,
    is read from OLLAMA_BASE_URL, and its key, if it needs one, from OLLAMA_API_KEY. `base_url` replaces the addresses of all providers.

    The function raises:
        MissingSetting: the API key or the address of the provider is not set.
        InvalidSetting: the address is not a URL.
    """

    def create_adapter(model: ModelSpec) -> ProviderAdapter:
        return provider_access(model.provider, base_url, environment=environment).adapter(
            model.model,
            temperature=model.temperature,
            max_output_tokens=model.max_tokens,
            retry_policy=retry_policy,
        )

    return create_adapter


@dataclass(frozen=True, slots=True)
class BackoffPolicy(RetryPolicy):
    """The retry policy of a program, without jitter. A wait is never shorter than the provider requests."""

    backoff: Backoff = "exponential"

    def _wait_seconds(self, attempt: int, retry_after_seconds: float | None) -> float:
        match self.backoff:
            case "exponential":
                factor: float = 2 ** (attempt - 1)
            case "linear":
                factor = attempt
            case "fixed":
                factor = 1
        return max(self.first_wait_seconds * factor, retry_after_seconds or 0.0)


def with_retry_policy(adapter: ProviderAdapter, retry: RetrySpec | None) -> ProviderAdapter:
    """A copy of the adapter with a retry policy, or the adapter itself without one. Both share their connections."""
    if retry is None:
        return adapter
    adapter_copy = copy.copy(adapter)
    adapter_copy.retry_policy = BackoffPolicy(
        attempts=retry.attempts,
        first_wait_seconds=retry.first_wait_seconds,
        max_wait_seconds=math.inf,
        total_seconds=math.inf,
        clock=adapter.retry_policy.clock,
        sleep=adapter.retry_policy.sleep,
        backoff=retry.backoff,
    )
    return adapter_copy
