"""Who asks."""

from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["chat", "read", "write", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("chat", "read", "write", "admin")
"""Ask a model, read conversations, change them, look after keys. `admin` may do all of it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever a request comes from: whose conversations it sees, and what it may do."""

    tenant: str
    key_id: str | None = None
    """The API key it came with; None where the service asks for none."""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    recipient: str | None = None
    """The only recipient whose conversations it may touch; None for all of the tenant's."""
    requests_per_minute: int | None = None
    """Its key's own limit; None for the one that holds for all keys."""
    tokens_per_day: int | None = None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes
