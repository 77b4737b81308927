"""API keys of the service, stored in its database so that all replicas share them.

A token is shown once, when its key is created. Only its SHA-256 is stored. A slow hash would add nothing, because 32
random bytes cannot be guessed, and it would delay every request.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from minutebook.errors import (
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    InvalidSetting,
    RequestRefused,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.service.http.responses import iterate_pages
from minutebook.store.base import ConversationStore
from minutebook.store.rules import MAX_PAGE_ITEMS, now
from minutebook.store.types import RESERVED_TENANT, Document, NewDocument, require_name

Scope = Literal["chat", "read", "write", "admin", "metrics"]
SCOPES: Final[tuple[Scope, ...]] = ("chat", "read", "write", "admin", "metrics")
"""Call models, read conversations, change conversations; `admin` includes these three.

`metrics` is the only scope that reads figures of all tenants. `admin` does not include it: a key belongs to one tenant.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated client of a request."""

    tenant: str
    key_id: str | None = None
    """The API key of the request; None if the service has no keys."""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    recipient: str | None = None
    """The only recipient whose conversations the caller may access; None for all recipients of the tenant."""
    requests_per_minute: int | None = None
    """The limit of this key; None for the configured limit."""
    tokens_per_day: int | None = None

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes or (scope != "metrics" and "admin" in self.scopes)


MAX_NAME_CHARACTERS: Final = 200
_TOKEN: Final = re.compile(r"mb_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")

State = Literal["active", "ending", "ended", "expired"]
"""`ending`: the key was rotated and still works until `ends_at`. `ended`: it was revoked, or `ends_at` has passed."""
Scopes = Annotated[
    frozenset[Scope],
    Field(min_length=1),
    PlainSerializer(lambda scopes: [scope for scope in SCOPES if scope in scopes]),
]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Timestamp = Annotated[AwareDatetime, PlainSerializer(datetime.isoformat)]
_EXPECTED: Final = {
    "name": f"1 to {MAX_NAME_CHARACTERS} printable characters",
    "scopes": f"one or more of {', '.join(SCOPES)}",
    "expires_at": "a time in the future with a time zone",
    "requests_per_minute": "a whole number, 1 or more",
    "tokens_per_day": "a whole number, 1 or more",
}


class ApiKey(BaseModel):
    """An API key without its token."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    tenant: str
    sha256: str = Field(repr=False)
    last4: str
    """The last four characters of the token, to tell keys apart in a list."""
    scopes: Scopes
    recipient: str | None = None
    """The only recipient whose conversations the key may access; None for all recipients of the tenant."""
    requests_per_minute: PositiveInt | None = None
    """The limit of this key; None for the configured limit."""
    tokens_per_day: PositiveInt | None = None
    created_at: Timestamp
    expires_at: Timestamp | None = None
    ends_at: Timestamp | None = None
    """When the key stops working because it was revoked or rotated."""
    last_used_at: Timestamp | None = None
    """Written every few seconds, not with every request."""

    def state(self, at: datetime) -> State:
        if self.ends_at is not None and self.ends_at <= at:
            return "ended"
        if self.expires_at is not None and self.expires_at <= at:
            return "expired"
        return "active" if self.ends_at is None else "ending"

    def caller(self) -> Caller:
        """The caller of a request with this key."""
        return Caller(self.tenant, self.id, self.scopes, self.recipient, self.requests_per_minute, self.tokens_per_day)

    def to_json(self) -> dict[str, Any]:
        """The key as JSON, without its hash."""
        return self.model_dump(mode="json", exclude={"sha256"})


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just created."""

    key: ApiKey
    token: str = field(repr=False)
    """The secret that clients send. It is not stored: if it is lost, create another key."""


def new_key(at: datetime, **settings: Any) -> NewKey:
    """A new key, created at that time; `settings` are fields of `ApiKey`.

    Raises:
        InvalidSetting: a field is invalid.
    """
    if key_id_of(settings["name"]) is not None:
        raise InvalidSetting("name", "mb_…", "a description of its use, not a token")
    if not settings["name"].isprintable():
        raise InvalidSetting("name", settings["name"], _EXPECTED["name"])
    require_tenant(settings["tenant"])
    if settings["recipient"] is not None:
        require_name("recipient", settings["recipient"])
    key_id = secrets.token_hex(6)
    token = f"mb_{key_id}_{secrets.token_urlsafe(32)}"
    try:
        key = ApiKey(id=key_id, sha256=digest_of(token), last4=token[-4:], created_at=at, **settings)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InvalidSetting(name, settings[name], _EXPECTED[name]) from None
    if key.expires_at is not None and key.expires_at <= at:
        raise InvalidSetting("expires_at", key.expires_at, _EXPECTED["expires_at"])
    return NewKey(key, token)


def key_id_of(token: str) -> str | None:
    """The key id in a token; None if it is not a token of this service."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def require_tenant(tenant: str) -> str:
    """Return the tenant if it is a valid name and not the reserved one.

    Raises:
        InvalidSetting: the name is invalid or reserved.
    """
    if require_name("tenant", tenant) == RESERVED_TENANT:
        raise InvalidSetting("tenant", tenant, "another name: this one is reserved for the service's API keys")
    return tenant


CACHE_SECONDS: Final = 5.0
"""How long a replica caches a key, so the longest time until a revocation is effective everywhere."""
OVERLAP_SECONDS: Final = 86_400.0
"""How long a rotated key still works by default."""
MAX_CACHED_KEYS: Final = 10_000
_CONVERSATION: Final = "keys"
"""The conversation of the reserved tenant that holds the documents of all keys."""
_KEY, _END, _USE = "key", "key end", "key use"
"""Document kinds. The end of a key is a separate document, so that a concurrent write to the key cannot undo it."""
_COPIED_FIELDS: Final = {"name", "tenant", "scopes", "recipient", "expires_at", "requests_per_minute", "tokens_per_day"}
"""The fields that the replacement of a rotated key copies."""
_NO_DIGEST: Final = "0" * 64
"""Compared with the token's digest if the key is unknown, so that both cases take the same time."""
_CHALLENGE: Final = (("www-authenticate", 'Bearer realm="minutebook"'),)


class ApiKeys:
    """Creates, verifies, rotates and revokes the keys of a service.

    `stale_seconds` is how long cached keys stay valid while the store is unavailable. Use 0 if the
    service cannot work without its store.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        cache_seconds: float = CACHE_SECONDS,
        stale_seconds: float = 0.0,
        clock: Callable[[], datetime] = now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store.for_tenant(RESERVED_TENANT).with_expiry(None)
        self._cache_seconds, self._stale_seconds = cache_seconds, stale_seconds
        self._clock, self._monotonic = clock, monotonic
        self._cache: dict[str, tuple[ApiKey | None, float]] = {}
        """Key id → the key (None if it does not exist) and when it was read."""
        self._uses: dict[str, datetime] = {}
        """Key id → its last use, for keys used since the last `flush`."""
        self._any_exist: tuple[bool, float] | None = None
        """The last result of `any` and when it was read."""

    async def create(
        self,
        name: str,
        *,
        tenant: str,
        scopes: Iterable[str] = ("chat", "read", "write"),
        recipient: str | None = None,
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
        tokens_per_day: int | None = None,
    ) -> NewKey:
        """Create a key.

        Raises:
            InvalidSetting: an argument is invalid.
        """
        created = new_key(
            self._now(),
            name=name,
            tenant=tenant,
            scopes=sorted(set(scopes)),
            recipient=recipient,
            expires_at=expires_at,
            requests_per_minute=requests_per_minute,
            tokens_per_day=tokens_per_day,
        )
        with suppress(VersionConflict):
            await self._store.append(_CONVERSATION, [], expected_version=0)
        body = created.key.model_dump(mode="json", exclude={"ends_at", "last_used_at"})
        await self._store.put_document(_CONVERSATION, NewDocument(_KEY, created.key.id, body))
        self._any_exist = None
        return created

    async def list(self) -> list[ApiKey]:
        """Every key, oldest first, including revoked and expired ones."""
        ends = {document.id: document async for document in self._documents(_END)}
        uses = {document.id: document async for document in self._documents(_USE)}
        return [_key_from(key, ends.get(key.id), uses.get(key.id)) async for key in self._documents(_KEY)]

    async def get(self, key_id: str) -> ApiKey:
        """The key with that id.

        Raises:
            DocumentNotFound: there is no such key.
        """
        document = await self._store.document(_KEY, key_id)
        return _key_from(document, await self._find(_END, key_id), await self._find(_USE, key_id))

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key, effective here immediately and on other replicas within `CACHE_SECONDS`.

        The key stays in the list. Revoking the last key does not make the service accept requests without a key.

        Raises:
            DocumentNotFound: there is no such key.
        """
        key = await self.get(key_id)
        at = self._now()
        if key.state(at) != "ended":
            await self._store.put_document(
                _CONVERSATION, NewDocument(_END, key_id, {"at": at.isoformat()}, replace=True)
            )
        self._cache.pop(key_id, None)
        return await self.get(key_id)

    async def rotate(self, key_id: str, *, overlap_seconds: float = OVERLAP_SECONDS) -> NewKey:
        """Create a key with the same rights, and let the old one end after the overlap.

        If the old key has an `expires_at`, the new one gets the same lifetime, counted from now.

        Raises:
            DocumentNotFound: there is no such key.
            InvalidSetting: the key was revoked or rotated before, or has expired.
        """
        if not 0 <= overlap_seconds < float("inf"):
            raise InvalidSetting("overlap_seconds", overlap_seconds, "0 or more")
        old_key = await self.get(key_id)
        at = self._now()
        if old_key.state(at) != "active":
            raise InvalidSetting("key", key_id, "a key that was not revoked or rotated before and has not expired")
        settings = old_key.model_dump(include=_COPIED_FIELDS)
        if old_key.expires_at is not None:
            settings["expires_at"] = at + (old_key.expires_at - old_key.created_at)
        replacement = await self.create(**settings)
        ends_at = at + timedelta(seconds=overlap_seconds)
        try:
            # No replace=True: a concurrent revocation or rotation of the key wins.
            end = {"at": ends_at.isoformat(), "rotated_to": replacement.key.id}
            await self._store.put_document(_CONVERSATION, NewDocument(_END, key_id, end))
        except DocumentExists:
            await self._store.delete_document(_KEY, replacement.key.id)
            raise InvalidSetting("key", key_id, "a key that is not being revoked or rotated concurrently") from None
        self._cache.pop(key_id, None)
        return replacement

    async def verify(self, token: str) -> Caller:
        """The caller with this token.

        Raises:
            RequestRefused: the token is unknown, revoked or expired.
        """
        key_id = key_id_of(token)
        key = None if key_id is None else await self._read_cached(key_id)
        matches = hmac.compare_digest(digest_of(token), _NO_DIGEST if key is None else key.sha256)
        if key is None or not matches:
            raise unauthorized("Unknown API key.")
        return self._use(key)

    async def caller(self, key_id: str) -> Caller:
        """The caller with this key, for a client that sent its token before.

        Raises:
            RequestRefused: the key is unknown, revoked or expired.
        """
        key = await self._read_cached(key_id)
        if key is None:
            raise unauthorized("Unknown API key.")
        return self._use(key)

    def _use(self, key: ApiKey) -> Caller:
        at = self._now()
        state = key.state(at)
        if state == "ended":
            raise unauthorized("This API key was revoked or replaced.")
        if state == "expired":
            raise unauthorized("This API key has expired.")
        self._uses[key.id] = at
        return key.caller()

    @property
    def was_read(self) -> bool:
        """Whether keys were read from the store since the service was started."""
        return self._any_exist is not None or bool(self._cache)

    async def any(self) -> bool:
        """Whether a key was ever created. A service that has had keys never accepts requests without one again."""
        cached = self._any_exist
        if cached is not None and (cached[0] or self._is_fresh(cached[1], self._cache_seconds)):
            return cached[0]
        try:
            page = await self._store.documents(_CONVERSATION, _KEY, limit=1)
            exist = bool(page.items)
        except ConversationNotFound:
            exist = False
        except StoreUnavailable:
            if cached is None or not self._is_fresh(cached[1], self._stale_seconds):
                raise
            return cached[0]
        self._any_exist = exist, self._monotonic()
        return exist

    async def flush(self) -> None:
        """Store when keys were last used. Called every few seconds and at shutdown, not with every request."""
        uses, self._uses = self._uses, {}
        for key_id, at in uses.items():
            document = NewDocument(_USE, key_id, {"at": at.isoformat()}, replace=True)
            with suppress(StoreUnavailable):
                await self._store.put_document(_CONVERSATION, document)

    async def _read_cached(self, key_id: str) -> ApiKey | None:
        cached = self._cache.get(key_id)
        if cached is not None and self._is_fresh(cached[1], self._cache_seconds):
            return cached[0]
        try:
            document = await self._find(_KEY, key_id)
            key = None if document is None else _key_from(document, await self._find(_END, key_id), None)
        except StoreUnavailable:
            if cached is None or not self._is_fresh(cached[1], self._stale_seconds):
                raise
            return cached[0]
        if len(self._cache) >= MAX_CACHED_KEYS:  # a client is guessing ids: evict the oldest half
            for old_id in list(self._cache)[: MAX_CACHED_KEYS // 2]:
                del self._cache[old_id]
        self._cache.pop(key_id, None)
        self._cache[key_id] = key, self._monotonic()
        return key

    async def _find(self, kind: str, key_id: str) -> Document | None:
        try:
            return await self._store.document(kind, key_id)
        except DocumentNotFound:
            return None

    async def _documents(self, kind: str) -> AsyncIterator[Document]:
        with suppress(ConversationNotFound):  # no key was created yet
            async for document in iterate_pages(
                lambda cursor: self._store.documents(_CONVERSATION, kind, cursor=cursor, limit=MAX_PAGE_ITEMS)
            ):
                yield document

    def _is_fresh(self, read_at: float, seconds: float) -> bool:
        return self._monotonic() - read_at < seconds

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)


def unauthorized(problem: str) -> RequestRefused:
    """The error for a request without a valid API key."""
    return RequestRefused(401, problem, "invalid_api_key", None, _CHALLENGE)


def _key_from(key: Document, end: Document | None, use: Document | None) -> ApiKey:
    times = {} if end is None else {"ends_at": end.body["at"]}
    if use is not None:
        times["last_used_at"] = use.body["at"]
    return ApiKey.model_validate({**key.body, **times})
