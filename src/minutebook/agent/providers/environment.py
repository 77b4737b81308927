"""Access to a provider: the base URL and the API key from the environment, and the adapters that use them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.providers.anthropic import AnthropicAdapter
from minutebook.agent.providers.openai import OpenAIAdapter
from minutebook.agent.retry import RetryPolicy
from minutebook.errors import InvalidSetting, MissingSetting

OFFICIAL_PROVIDERS: Final = ("openai", "anthropic")
"""The providers whose own base URL is known. Any other must be a server with OpenAI's API."""
_NO_KEY: Final = "none"
"""The API key for a server if no key is set: the clients require one."""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """A provider, its base URL and its key."""

    provider: str
    base_url: str | None
    """None for the provider's own."""
    api_key: str | None = field(repr=False)
    auth_token: str | None = field(default=None, repr=False)
    """The token that Anthropic accepts instead of an API key."""

    def adapter(
        self,
        model: str,
        *,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> ProviderAdapter:
        """Create the adapter for a model. None keeps the adapter's default.

        Raises:
            MissingExtra: the provider's client is not installed.
        """
        options = _without_none(temperature=temperature)
        if self.provider == "anthropic":
            return AnthropicAdapter(
                model,
                base_url=self.base_url and self.base_url.rstrip("/").removesuffix("/v1"),  # this client adds it itself
                api_key=self.api_key,
                auth_token=self.auth_token,
                options=options,
                retry_policy=retry_policy,
                **_without_none(max_output_tokens=max_output_tokens),
            )
        # OpenAI renamed the parameter with its reasoning models; most compatible servers only know the old name.
        limit_name = "max_completion_tokens" if self.provider == "openai" else "max_tokens"
        options |= _without_none(**{limit_name: max_output_tokens})
        return OpenAIAdapter(
            model, base_url=self.base_url, api_key=self.api_key, options=options, retry_policy=retry_policy
        )


def provider_access(
    provider: str, base_url: str | None = None, *, environment: Mapping[str, str] | None = None
) -> ProviderAccess:
    """The access to a provider. The base URL and the key of `ollama`, for example, are OLLAMA_BASE_URL and OLLAMA_API_KEY.

    Raises:
        InvalidSetting: the base URL is not a URL.
        MissingSetting: the API key or the base URL of the provider is not set.
    """
    variables = os.environ if environment is None else environment
    prefix = variable_prefix(provider)
    name, url = f"{prefix}_BASE_URL", variables.get(f"{prefix}_BASE_URL") or None
    if base_url is not None:
        name, url = "base URL", base_url
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidSetting(name, url, "a URL that starts with http:// or https://")
    key = variables.get(f"{prefix}_API_KEY") or None
    token = variables.get("ANTHROPIC_AUTH_TOKEN") or None if provider == "anthropic" and key is None else None
    if url is None and provider not in OFFICIAL_PROVIDERS:
        how_to_set = f"export {prefix}_BASE_URL=…, the address of a server with OpenAI's API"
        raise MissingSetting(f"the base URL of provider {provider!r}", how_to_set)
    if url is None and key is None and token is None:
        how_to_set = f"export {prefix}_API_KEY=…, or {prefix}_BASE_URL=… for a server that needs no key"
        raise MissingSetting(f"the API key for {provider}", how_to_set)
    return ProviderAccess(provider, url, key if key or token else _NO_KEY, token)


def variable_prefix(provider: str) -> str:
    """The start of the names of a provider's environment variables."""
    return "".join(character if character.isalnum() else "_" for character in provider.upper())


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
