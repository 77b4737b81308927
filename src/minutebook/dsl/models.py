"""The provider adapters for the models of a program."""

import copy
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.retry import RetryPolicy
from minutebook.dsl.spec import ModelSpec, RetrySpec
from minutebook.dsl.syntax import Backoff
from minutebook.errors import InvalidSetting, MissingSetting

Adapters: TypeAlias = Callable[[ModelSpec], ProviderAdapter]

_NO_KEY: Final = "none"
"""The API key for a server if no key is set: the clients require one."""


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
    variables = os.environ if environment is None else environment

    def create_adapter(model: ModelSpec) -> ProviderAdapter:
        prefix = "".join(character if character.isalnum() else "_" for character in model.provider.upper())
        url = base_url or variables.get(f"{prefix}_BASE_URL") or None
        key = variables.get(f"{prefix}_API_KEY") or None
        if model.provider in {"openai", "anthropic"}:
            if key is None and url is None:
                how_to_set = f"export {prefix}_API_KEY=…, or set the base URL of a server that needs no key"
                raise MissingSetting(f"the API key for {model.provider}", how_to_set)
        elif url is None:
            how_to_set = f"export {prefix}_BASE_URL=…, the address of a server with OpenAI's API"
            raise MissingSetting(f"the base URL of provider {model.provider!r}", how_to_set)
        if url is not None and not url.startswith(("http://", "https://")):
            raise InvalidSetting("base URL", url, "an http:// or https:// URL")
        create = _create_anthropic_adapter if model.provider == "anthropic" else _create_openai_adapter
        return create(model, url, key or _NO_KEY, retry_policy)

    return create_adapter


def _create_openai_adapter(
    model: ModelSpec, url: str | None, key: str, retry_policy: RetryPolicy | None
) -> ProviderAdapter:
    from minutebook.agent.providers.openai import OpenAIAdapter

    # OpenAI renamed the parameter with its reasoning models; most compatible servers only know the old name.
    limit_name = "max_completion_tokens" if model.provider == "openai" else "max_tokens"
    options = _without_none(temperature=model.temperature, **{limit_name: model.max_tokens})
    return OpenAIAdapter(model.model, base_url=url, api_key=key, options=options, retry_policy=retry_policy)


def _create_anthropic_adapter(
    model: ModelSpec, url: str | None, key: str, retry_policy: RetryPolicy | None
) -> ProviderAdapter:
    from minutebook.agent.providers.anthropic import AnthropicAdapter

    return AnthropicAdapter(
        model.model,
        base_url=url and url.rstrip("/").removesuffix("/v1"),  # this client adds it itself
        api_key=key,
        options=_without_none(temperature=model.temperature),
        retry_policy=retry_policy,
        **_without_none(max_output_tokens=model.max_tokens),
    )


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


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
