"""From a model of a program to the adapter that asks it."""

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
from minutebook.errors import InvalidSetting

Adapters: TypeAlias = Callable[[ModelSpec], ProviderAdapter]

_NO_KEY: Final = "none"
"""What a server is sent where no key is set: the clients insist on one."""


def provider_adapters(
    *,
    base_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    retry_policy: RetryPolicy | None = None,
) -> Adapters:
    """What makes the adapter for each model of a program, by its provider.

    `openai` and `anthropic` are spoken to as such. Any other provider is taken for a server that speaks as OpenAI does:
    `ollama` is found by OLLAMA_BASE_URL, and gets the key in OLLAMA_API_KEY, if there is one. `base_url` is where all
    of them are looked for instead.
    """
    variables = os.environ if environment is None else environment

    def adapter(model: ModelSpec) -> ProviderAdapter:
        prefix = "".join(letter if letter.isalnum() else "_" for letter in model.provider.upper())
        url = base_url or variables.get(f"{prefix}_BASE_URL") or None
        key = variables.get(f"{prefix}_API_KEY") or None
        if model.provider in {"openai", "anthropic"}:
            if key is None and url is None:
                expected = f"one: export {prefix}_API_KEY=…, or give the address of a server that needs none"
                raise InvalidSetting(f"the API key for {model.provider}", None, expected)
        elif url is None:
            expected = f"one: export {prefix}_BASE_URL=…, where a server speaks as OpenAI's does"
            raise InvalidSetting(f"the address of provider {model.provider!r}", None, expected)
        if url is not None and not url.startswith(("http://", "https://")):
            raise InvalidSetting("the base URL", url, "an address that begins with http:// or https://")
        make = _anthropic if model.provider == "anthropic" else _openai
        return make(model, url, key or _NO_KEY, retry_policy)

    return adapter


def _openai(model: ModelSpec, url: str | None, key: str, retry_policy: RetryPolicy | None) -> ProviderAdapter:
    from minutebook.agent.providers.openai import OpenAIAdapter

    # OpenAI has another name for it since its models reason; those who speak like it mostly know the old one.
    limit = "max_completion_tokens" if model.provider == "openai" else "max_tokens"
    options = _given(temperature=model.temperature, **{limit: model.max_tokens})
    return OpenAIAdapter(model.model, base_url=url, api_key=key, options=options, retry_policy=retry_policy)


def _anthropic(model: ModelSpec, url: str | None, key: str, retry_policy: RetryPolicy | None) -> ProviderAdapter:
    from minutebook.agent.providers.anthropic import AnthropicAdapter

    return AnthropicAdapter(
        model.model,
        base_url=url and url.rstrip("/").removesuffix("/v1"),  # this client adds it itself
        api_key=key,
        options=_given(temperature=model.temperature),
        retry_policy=retry_policy,
        **_given(max_output_tokens=model.max_tokens),
    )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Patience(RetryPolicy):
    """Asks again as a retry policy says: as often, and after such waits, but never sooner than the provider allows."""

    backoff: Backoff = "exponential"

    def _wait_seconds(self, attempt: int, retry_after_seconds: float | None) -> float:
        match self.backoff:
            case "exponential":
                times: float = 2 ** (attempt - 1)
            case "linear":
                times = attempt
            case "fixed":
                times = 1
        return max(self.first_wait_seconds * times, retry_after_seconds or 0.0)


def patient(adapter: ProviderAdapter, retry: RetrySpec | None) -> ProviderAdapter:
    """The adapter as an agent with such a policy uses it; both share their connections."""
    if retry is None:
        return adapter
    own = copy.copy(adapter)
    own.retry_policy = Patience(
        attempts=retry.attempts,
        first_wait_seconds=retry.first_wait_seconds,
        max_wait_seconds=math.inf,
        total_seconds=math.inf,
        clock=adapter.retry_policy.clock,
        sleep=adapter.retry_policy.sleep,
        backoff=retry.backoff,
    )
    return own
