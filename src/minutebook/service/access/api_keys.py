"""The API keys of a service, kept in its store so that every replica knows the same ones; the caller a key stands for.

The key itself is shown once, to whoever made it. What is kept is its SHA-256: 32 random bytes cannot be guessed, so a
slow hash would protect nothing and would cost every request.
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
from minutebook.service.http.responses import each_item
from minutebook.store.base import ConversationStore
from minutebook.store.rules import LARGEST_PAGE, now
from minutebook.store.types import Document, NewDocument, require_name

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


RESERVED_TENANT: Final = "_minutebook"
"""Whose conversations hold keys, tallies and the audit log. No key and no configuration may name it."""
LONGEST_NAME: Final = 200
_TOKEN: Final = re.compile(r"mb_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")

State = Literal["active", "ending", "ended", "expired"]


Scopes = Annotated[
    frozenset[Scope], Field(min_length=1), PlainSerializer(lambda scopes: [one for one in SCOPES if one in scopes])
]
Count = Annotated[int, Field(ge=1, strict=True)]
Moment = Annotated[AwareDatetime, PlainSerializer(datetime.isoformat)]
_EXPECTED: Final = {
    "name": f"1 to {LONGEST_NAME} printable characters",
    "scopes": f"one or more of {', '.join(SCOPES)}",
    "expires_at": "a time that is still to come, with its zone",
    "requests_per_minute": "a whole number, 1 or more",
    "tokens_per_day": "a whole number, 1 or more",
}


class ApiKey(BaseModel):
    """A key as its owner sees it: everything but the secret."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    """What its owner calls it."""
    tenant: str
    sha256: str = Field(repr=False)
    last4: str
    """The end of the secret, by which people tell two keys apart."""
    scopes: Scopes
    recipient: str | None = None
    """The only recipient whose conversations it opens; None for all of the tenant's."""
    requests_per_minute: Count | None = None
    """Its own limit; None for the one that holds for all keys."""
    tokens_per_day: Count | None = None
    created_at: Moment
    expires_at: Moment | None = None
    ends_at: Moment | None = None
    """When it was revoked, or will have been replaced by the one it was rotated to."""
    last_used_at: Moment | None = None
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
        return self.model_dump(mode="json", exclude={"sha256"})


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made."""

    key: ApiKey
    token: str = field(repr=False)
    """What a client sends. It is not kept: whoever loses it makes another key."""


def new_key(at: datetime, **terms: Any) -> NewKey:
    """A key on these terms, which are fields of `ApiKey`.

    Raises:
        InvalidSetting: there cannot be such a one.
    """
    if id_of(terms["name"]) is not None:
        raise InvalidSetting("name", "a key", "a name that says what the key is for")
    if not terms["name"].isprintable():
        raise InvalidSetting("name", terms["name"], _EXPECTED["name"])
    require_tenant(terms["tenant"])
    if terms["recipient"] is not None:
        require_name("recipient", terms["recipient"])
    key_id = secrets.token_hex(6)
    token = f"mb_{key_id}_{secrets.token_urlsafe(32)}"
    try:
        key = ApiKey(id=key_id, sha256=digest_of(token), last4=token[-4:], created_at=at, **terms)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InvalidSetting(name, terms[name], _EXPECTED[name]) from None
    if key.expires_at is not None and key.expires_at <= at:
        raise InvalidSetting("expires_at", key.expires_at, _EXPECTED["expires_at"])
    return NewKey(key, token)


def id_of(token: str) -> str | None:
    """The id that a token claims to have; None if it is no token of ours."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def require_tenant(tenant: str) -> str:
    """A tenant, if it is not the one that the service keeps for itself.

    Raises:
        InvalidSetting: it is.
    """
    if require_name("tenant", tenant) == RESERVED_TENANT:
        raise InvalidSetting("tenant", tenant, "another name: the service keeps its keys under this one")
    return tenant


CACHE_SECONDS: Final = 5.0
"""What is known of a key is believed for so long: a revocation holds everywhere after at most this time."""
OVERLAP_SECONDS: Final = 86_400.0
"""How long a rotated key goes on working beside the new one, unless another time is asked for."""
MOST_CACHED: Final = 10_000
_ROOM: Final = "keys"
_KEY, _END, _USE = "key", "key end", "key use"
"""When a key ends is a document of its own: then nothing that is written to the key at the same time undoes it."""
_TERMS: Final = {"name", "tenant", "scopes", "recipient", "expires_at", "requests_per_minute", "tokens_per_day"}
"""What a key that is rotated passes on."""
_NOBODY: Final = "0" * 64
_CHALLENGE: Final = (("www-authenticate", 'Bearer realm="minutebook"'),)


class Keys:
    """The keys of a service.

    `stale_seconds` is how long a key that was seen before is still believed while the store is away; 0 for a service
    that does not answer without its store either.
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
        self._store = store.for_tenant(RESERVED_TENANT)
        self._cache_seconds, self._stale_seconds = cache_seconds, stale_seconds
        self._clock, self._monotonic = clock, monotonic
        self._seen: dict[str, tuple[ApiKey | None, float]] = {}
        self._uses: dict[str, datetime] = {}
        self._any: tuple[bool, float] | None = None

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
        """Make a key.

        Raises:
            InvalidSetting: there cannot be such a one.
        """
        made = new_key(
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
            await self._store.append(_ROOM, [], expected_version=0)
        body = made.key.model_dump(mode="json", exclude={"ends_at", "last_used_at"})
        await self._store.put_document(_ROOM, NewDocument(_KEY, made.key.id, body))
        self._any = None
        return made

    async def list(self) -> list[ApiKey]:
        """Every key there ever was, the oldest first."""
        ends = {one.id: one async for one in self._documents(_END)}
        uses = {one.id: one async for one in self._documents(_USE)}
        return [_whole(one, ends.get(one.id), uses.get(one.id)) async for one in self._documents(_KEY)]

    async def get(self, key_id: str) -> ApiKey:
        """The key of that id.

        Raises:
            DocumentNotFound: there is none.
        """
        found = await self._store.document(_KEY, key_id)
        return _whole(found, await self._find(_END, key_id), await self._find(_USE, key_id))

    async def revoke(self, key_id: str) -> ApiKey:
        """Have a key open nothing any more: here at once, elsewhere within `CACHE_SECONDS`.

        It stays in the list. Revoking the last key does not open the service to everybody.

        Raises:
            DocumentNotFound: there is none of that id.
        """
        key = await self.get(key_id)
        at = self._now()
        if key.state(at) != "ended":
            await self._store.put_document(_ROOM, NewDocument(_END, key_id, {"at": at.isoformat()}, replace=True))
        self._seen.pop(key_id, None)
        return await self.get(key_id)

    async def rotate(self, key_id: str, *, overlap_seconds: float = OVERLAP_SECONDS) -> NewKey:
        """Make a key that opens the same, and have the old one end after a while.

        A key that expires is followed by one that lives as long as it was meant to.

        Raises:
            DocumentNotFound: there is none of that id.
            InvalidSetting: it was revoked, rotated or has expired.
        """
        if not 0 <= overlap_seconds < float("inf"):
            raise InvalidSetting("overlap_seconds", overlap_seconds, "0 or more")
        old = await self.get(key_id)
        at = self._now()
        if old.state(at) != "active":
            raise InvalidSetting("key", key_id, "one that was not revoked or rotated before, and has not expired")
        terms = old.model_dump(include=_TERMS)
        if old.expires_at is not None:
            terms["expires_at"] = at + (old.expires_at - old.created_at)
        made = await self.create(**terms)
        ends_at = at + timedelta(seconds=overlap_seconds)
        try:
            # Not replaced: if somebody revokes or rotates the key at this moment, theirs stands.
            end = {"at": ends_at.isoformat(), "rotated_to": made.key.id}
            await self._store.put_document(_ROOM, NewDocument(_END, key_id, end))
        except DocumentExists:
            await self._store.delete_document(_KEY, made.key.id)
            raise InvalidSetting("key", key_id, "one that nobody else revokes or rotates just now") from None
        self._seen.pop(key_id, None)
        return made

    async def verify(self, token: str) -> Caller:
        """Whoever comes with this token.

        Raises:
            RequestRefused: it opens nothing.
        """
        key_id = id_of(token)
        key = None if key_id is None else await self._known(key_id)
        matches = hmac.compare_digest(digest_of(token), _NOBODY if key is None else key.sha256)
        if key is None or not matches:
            raise refused("This API key is not known here.")
        at = self._now()
        state = key.state(at)
        if state == "ended":
            raise refused("This API key was revoked.")
        if state == "expired":
            raise refused("This API key has expired.")
        self._uses[key.id] = at
        return key.caller()

    async def any(self) -> bool:
        """Whether there is a key, or was one: what has had keys is never open to everybody again."""
        if self._any is not None and (self._any[0] or self._fresh(self._any[1], self._cache_seconds)):
            return self._any[0]
        try:
            page = await self._store.documents(_ROOM, _KEY, limit=1)
            found = bool(page.items)
        except ConversationNotFound:
            found = False
        except StoreUnavailable:
            if self._any is None or not self._fresh(self._any[1], self._stale_seconds):
                raise
            return self._any[0]
        self._any = found, self._monotonic()
        return found

    async def flush(self) -> None:
        """Write down which keys were used. It is called every few seconds and at the end, not with every request."""
        uses, self._uses = self._uses, {}
        for key_id, at in uses.items():
            document = NewDocument(_USE, key_id, {"at": at.isoformat()}, replace=True)
            with suppress(StoreUnavailable):
                await self._store.put_document(_ROOM, document)

    async def _known(self, key_id: str) -> ApiKey | None:
        seen = self._seen.get(key_id)
        if seen is not None and self._fresh(seen[1], self._cache_seconds):
            return seen[0]
        try:
            found = await self._find(_KEY, key_id)
            key = None if found is None else _whole(found, await self._find(_END, key_id), None)
        except StoreUnavailable:
            if seen is None or not self._fresh(seen[1], self._stale_seconds):
                raise
            return seen[0]
        if len(self._seen) >= MOST_CACHED:  # somebody tries ids: forget the oldest half rather than grow
            for old in list(self._seen)[: MOST_CACHED // 2]:
                del self._seen[old]
        self._seen.pop(key_id, None)
        self._seen[key_id] = key, self._monotonic()
        return key

    async def _find(self, kind: str, key_id: str) -> Document | None:
        try:
            return await self._store.document(kind, key_id)
        except DocumentNotFound:
            return None

    async def _documents(self, kind: str) -> AsyncIterator[Document]:
        with suppress(ConversationNotFound):  # no key was made yet
            async for document in each_item(
                lambda cursor: self._store.documents(_ROOM, kind, cursor=cursor, limit=LARGEST_PAGE)
            ):
                yield document

    def _fresh(self, at: float, seconds: float) -> bool:
        return self._monotonic() - at < seconds

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)


def refused(problem: str) -> RequestRefused:
    """What is answered to whoever may not come in."""
    return RequestRefused(401, problem, "invalid_api_key", None, _CHALLENGE)


def _whole(document: Document, end: Document | None, use: Document | None) -> ApiKey:
    times = {name: found.body["at"] for name, found in (("ends_at", end), ("last_used_at", use)) if found is not None}
    return ApiKey.model_validate({**document.body, **times})
