"""Adapters of providers, with the API key and base URL from the environment or the command line."""

import os
from dataclasses import dataclass
from typing import Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.providers.anthropic import AnthropicAdapter
from minutebook.agent.providers.openai import OpenAIAdapter
from minutebook.cli.exits import print_error
from minutebook.cli.screen import one_line
from minutebook.errors import InvalidSetting, MissingSetting, ProviderFailed, RetriesExhausted

ADAPTERS: Final = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}
API_KEYS: Final = {"openai": ("OPENAI_API_KEY",), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")}
"""Environment variables from which the official clients read the API key."""
BASE_URLS: Final = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""Environment variables from which the official clients read the base URL."""
NO_KEY: Final = "none"
"""The key sent to another server if none is set: the clients require a key."""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """A provider, its base URL, and whether an API key is set."""

    provider: str
    base_url: str | None
    """None for the provider's own."""
    has_key: bool

    @property
    def server(self) -> str:
        """The base URL, or the name of the provider if it is the provider's own."""
        return self.base_url or self.provider

    def adapter(self, model: str) -> ProviderAdapter:
        """Create the adapter for this model.

        Raises:
            MissingExtra: the provider's client is not installed.
        """
        api_key = None if self.has_key else NO_KEY
        adapter: ProviderAdapter = ADAPTERS[self.provider](model, base_url=self.base_url, api_key=api_key)
        return adapter

    def print_error(self, error: Exception) -> None:
        """Print the error to stderr, with advice for this provider."""
        if not isinstance(error, ProviderFailed):
            print_error(error)
            return
        # The problem is shortened to one line, without the details that `RetriesExhausted` adds.
        retryable = error.retryable or isinstance(error, RetriesExhausted)
        failure = ProviderFailed(error.provider, error.status, one_line(error.problem), retryable=retryable)
        print_error(failure, advice=self._advice(failure))

    def _advice(self, failure: ProviderFailed) -> str:
        key = API_KEYS[self.provider][0]
        match failure.status:
            case None:
                return (
                    f"check that a server runs at {self.base_url}" if self.base_url else "check the network connection"
                )
            case 401:
                return f"check {key}"
            case 403:
                return f"check {key} and whether it may use this model"
            case _ if failure.retryable:
                return "retry later"
            case _:
                return "check -m, --provider and --base-url"


def provider_access(provider: str, base_url: str | None) -> ProviderAccess:
    """The access to a provider, from the arguments and the environment.

    Raises:
        InvalidSetting: the provider is unknown, or the base URL is invalid.
        MissingSetting: there is neither an API key nor a base URL.
    """
    if provider not in ADAPTERS:
        raise InvalidSetting("--provider", provider, f"one of {', '.join(ADAPTERS)}")
    url = base_url or os.environ.get(BASE_URLS[provider]) or None
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidSetting("--base-url", url, "a URL that starts with http:// or https://")
    has_key = any(os.environ.get(name) for name in API_KEYS[provider])
    if not has_key and url is None:
        variable = API_KEYS[provider][0]
        how_to_set = f"export {variable}=…, or use --base-url with a server that needs no key"
        raise MissingSetting(f"the API key for {provider}", how_to_set)
    return ProviderAccess(provider, url, has_key)
