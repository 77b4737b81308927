"""An API key: what is kept of it, and what it opens.

The key itself is shown once, to whoever made it. What is kept is its SHA-256: 32 random bytes cannot be guessed, so a
slow hash would protect nothing and would cost every request.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, cast

from minutebook.errors import InvalidSetting
from minutebook.service.caller import SCOPES, Caller, Scope
from minutebook.store.rules import require_name

RESERVED_TENANT: Final = "_minutebook"
"""Whose conversations hold keys, tallies and the audit trail. No key and no configuration may name it."""
LONGEST_NAME: Final = 200
_TOKEN: Final = re.compile(r"mb_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")

State = Literal["active", "ending", "ended", "expired"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its owner sees it: everything but the secret."""

    id: str
    name: str
    """What its owner calls it."""
    tenant: str
    sha256: str = field(repr=False)
    last4: str
    """The end of the secret, by which people tell two keys apart."""
    created_at: datetime
    scopes: frozenset[Scope] = frozenset({"chat", "read", "write"})
    recipient: str | None = None
    """The only recipient whose conversations it opens; None for all of the tenant's."""
    expires_at: datetime | None = None
    requests_per_minute: int | None = None
    """Its own limit; None for the one that holds for all keys."""
    tokens_per_day: int | None = None
    ends_at: datetime | None = None
    """When it was revoked, or will have been replaced by the one it was rotated to."""
    last_used_at: datetime | None = None
    """To the minute or so."""

    def state(self, at: datetime) -> State:
        """Whether it opens anything at that time."""
        if self.ends_at is not None and self.ends_at <= at:
            return "ended"
        if self.expires_at is not None and self.expires_at <= at:
            return "expired"
        return "active" if self.ends_at is None else "ending"

    def caller(self) -> Caller:
        """Whoever comes with it."""
        return Caller(self.tenant, self.id, self.scopes, self.recipient, self.requests_per_minute, self.tokens_per_day)

    def to_json(self) -> dict[str, Any]:
        """Itself without its hash, for whoever lists keys."""
        return {
            "id": self.id,
            "name": self.name,
            "tenant": self.tenant,
            "last4": self.last4,
            "scopes": [scope for scope in SCOPES if scope in self.scopes],
            "recipient": self.recipient,
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_day": self.tokens_per_day,
            "created_at": self.created_at.isoformat(),
            "expires_at": _text(self.expires_at),
            "ends_at": _text(self.ends_at),
            "last_used_at": _text(self.last_used_at),
        }

    def to_document(self) -> dict[str, Any]:
        """What is stored of it; when it ends and was used is stored beside it."""
        body = self.to_json() | {"sha256": self.sha256}
        return {name: value for name, value in body.items() if name not in {"ends_at", "last_used_at"}}


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made."""

    key: ApiKey
    token: str = field(repr=False)
    """What a client sends. It is not kept: whoever loses it makes another key."""


def new_token() -> tuple[str, str]:
    """A key's id, and the key."""
    key_id = secrets.token_hex(6)
    return key_id, f"mb_{key_id}_{secrets.token_urlsafe(32)}"


def id_of(token: str) -> str | None:
    """The id that a token claims to have; None if it is no token of ours."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def key_from(
    body: Mapping[str, Any], *, ends_at: datetime | None = None, last_used_at: datetime | None = None
) -> ApiKey:
    """The key that a document holds."""
    expires_at = body["expires_at"]
    return ApiKey(
        id=body["id"],
        name=body["name"],
        tenant=body["tenant"],
        sha256=body["sha256"],
        last4=body["last4"],
        created_at=datetime.fromisoformat(body["created_at"]),
        scopes=frozenset(body["scopes"]),
        recipient=body["recipient"],
        expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
        requests_per_minute=body["requests_per_minute"],
        tokens_per_day=body["tokens_per_day"],
        ends_at=ends_at,
        last_used_at=last_used_at,
    )


def require_key(key: ApiKey, *, at: datetime) -> ApiKey:
    """A key, if there can be such a one.

    Raises:
        InvalidSetting: there cannot.
    """
    if not 0 < len(key.name) <= LONGEST_NAME or not key.name.isprintable():
        raise InvalidSetting("name", key.name, f"1 to {LONGEST_NAME} printable characters")
    if id_of(key.name) is not None:
        raise InvalidSetting("name", "a key", "a name that says what the key is for")
    require_tenant(key.tenant)
    if key.recipient is not None:
        require_name("recipient", key.recipient)
    if not key.scopes or not key.scopes <= set(SCOPES):
        raise InvalidSetting("scopes", sorted(key.scopes), f"one or more of {', '.join(SCOPES)}")
    if key.expires_at is not None and (key.expires_at.tzinfo is None or key.expires_at <= at):
        raise InvalidSetting("expires_at", key.expires_at, "a time that is still to come, with its zone")
    for name in ("requests_per_minute", "tokens_per_day"):
        value = getattr(key, name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidSetting(name, value, "a whole number, 1 or more")
    return key


def require_tenant(tenant: str) -> str:
    """A tenant, if it is not the one that the service keeps for itself.

    Raises:
        InvalidSetting: it is.
    """
    if require_name("tenant", tenant) == RESERVED_TENANT:
        raise InvalidSetting("tenant", tenant, "another name: the service keeps its keys under this one")
    return tenant


def require_scopes(names: frozenset[str]) -> frozenset[Scope]:
    """Scopes from words.

    Raises:
        InvalidSetting: one of them is none.
    """
    if not names or not names <= set(SCOPES):
        raise InvalidSetting("scopes", sorted(names), f"one or more of {', '.join(SCOPES)}")
    return frozenset(cast("Scope", name) for name in names)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
