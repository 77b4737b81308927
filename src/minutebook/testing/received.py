"""A request as the loopback provider received it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from minutebook.record.message import Provider, text_of

SECRET_HEADERS: Final = frozenset({"authorization", "x-api-key", "proxy-authorization", "cookie"})


@dataclass(slots=True)
class ReceivedRequest:
    """What a client sent, and what became of it.

    The provider fills in `status` and `problem` before the first byte of the answer leaves, so a client that has an
    answer sees them.
    """

    number: int
    """Requests count from 1, in the order in which they arrived."""
    provider: Provider
    path: str
    headers: Mapping[str, str]
    """Names in lower case, without the ones that hold keys."""
    body: Mapping[str, Any]
    """Empty where the body was no JSON object."""
    status: int | None = None
    problem: str | None = None
    """Why it was refused, or why the script could not answer it."""

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        messages = self.body.get("messages")
        return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        """The text of the last message, which is what most scripts that react look at."""
        return text_of(self.messages[-1]) if self.messages else ""


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in SECRET_HEADERS}
