"""Providers by name: the adapter, with the key and the address that the official client would take."""

import os
from dataclasses import dataclass
from typing import Final

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.providers.anthropic import AnthropicAdapter
from minutebook.agent.providers.openai import OpenAIAdapter
from minutebook.cli.exits import complain
from minutebook.cli.screen import one_line
from minutebook.errors import InvalidSetting, ProviderFailed, RetriesExhausted

ADAPTERS: Final = {"openai": OpenAIAdapter, "anthropic": AnthropicAdapter}
KEYS: Final = {"openai": ("OPENAI_API_KEY",), "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")}
"""The variables that the clients take a key from."""
ADDRESSES: Final = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""The variables that the clients take another address from."""
NO_KEY: Final = "none"
"""What a server of one's own is sent where no key is set: the clients insist on one."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a provider is reached."""

    provider: str
    base_url: str | None
    """None is the provider's own."""
    has_key: bool

    @property
    def where(self) -> str:
        return self.base_url or self.provider

    def adapter(self, model: str) -> ProviderAdapter:
        """The adapter that asks this model.

        Raises:
            MissingExtra: the provider's client is not installed.
        """
        made: ProviderAdapter = ADAPTERS[self.provider](
            model, base_url=self.base_url, api_key=None if self.has_key else NO_KEY
        )
        return made

    def complain(self, error: Exception) -> None:
        """Say on stderr what went wrong, and what to do about it here."""
        if not isinstance(error, ProviderFailed):
            complain(error)
            return
        # One line, whatever the provider says; what `RetriesExhausted` adds to it is for programs.
        again = error.retryable or isinstance(error, RetriesExhausted)
        failure = ProviderFailed(error.provider, error.status, one_line(error.problem), retryable=again)
        complain(failure, advice=self._advice(failure))

    def _advice(self, failure: ProviderFailed) -> str:
        key = KEYS[self.provider][0]
        match failure.status:
            case None:
                return f"check that a server runs at {self.base_url}" if self.base_url else "check that you are online"
            case 401:
                return f"check {key}"
            case 403:
                return f"check {key}, and that it may use this model"
            case _ if failure.retryable:
                return "try again later"
            case _:
                return "check -m, --provider and --base-url"


def access_to(provider: str, base_url: str | None) -> Access:
    """The way to a provider, by what the command and the environment say.

    Raises:
        InvalidSetting: there is no such provider, the address is none, or there is neither a key nor an address.
    """
    if provider not in ADAPTERS:
        raise InvalidSetting("--provider", provider, f"one of {', '.join(ADAPTERS)}")
    url = base_url or os.environ.get(ADDRESSES[provider]) or None
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidSetting("--base-url", url, "an address that begins with http:// or https://")
    has_key = any(os.environ.get(name) for name in KEYS[provider])
    if not has_key and url is None:
        expected = f"one: export {KEYS[provider][0]}=…, or use --base-url with a server that needs none"
        raise InvalidSetting(f"the API key for {provider}", None, expected)
    return Access(provider, url, has_key)
