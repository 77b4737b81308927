"""Who may come in: the API keys of a service, kept in its store so that every replica knows the same ones."""

import hmac
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from minutebook.errors import (
    ConversationNotFound,
    DocumentExists,
    DocumentNotFound,
    InvalidSetting,
    RequestRefused,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.service.apikey import (
    RESERVED_TENANT,
    ApiKey,
    NewKey,
    digest_of,
    id_of,
    key_from,
    new_token,
    require_key,
    require_scopes,
)
from minutebook.service.caller import Caller
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document, NewDocument
from minutebook.store.rules import LARGEST_PAGE, now

CACHE_SECONDS: Final = 5.0
"""What is known of a key is believed for so long: a revocation holds everywhere after at most this time."""
OVERLAP_SECONDS: Final = 86_400.0
"""How long a rotated key goes on working beside the new one, unless another time is asked for."""
MOST_CACHED: Final = 10_000
_ROOM: Final = "keys"
_KEY, _END, _USE = "key", "key end", "key use"
"""When a key ends is a document of its own: then nothing that is written to the key at the same time undoes it."""
_NOBODY: Final = "0" * 64
_CHALLENGE: Final = (("www-authenticate", 'Bearer realm="minutebook"'),)


@dataclass(frozen=True, slots=True)
class _Seen:
    key: ApiKey | None
    at: float


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
        self._seen: dict[str, _Seen] = {}
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
        key_id, token = new_token()
        at = self._now()
        key = ApiKey(
            id=key_id,
            name=name,
            tenant=tenant,
            sha256=digest_of(token),
            last4=token[-4:],
            created_at=at,
            scopes=require_scopes(frozenset(scopes)),
            recipient=recipient,
            expires_at=expires_at,
            requests_per_minute=requests_per_minute,
            tokens_per_day=tokens_per_day,
        )
        require_key(key, at=at)
        await self._make_room()
        await self._store.put_document(_ROOM, NewDocument(_KEY, key_id, key.to_document()))
        self._seen.pop(key_id, None)
        self._any = None
        return NewKey(key, token)

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
        made = await self.create(
            old.name,
            tenant=old.tenant,
            scopes=old.scopes,
            recipient=old.recipient,
            expires_at=None if old.expires_at is None else at + (old.expires_at - old.created_at),
            requests_per_minute=old.requests_per_minute,
            tokens_per_day=old.tokens_per_day,
        )
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
        if seen is not None and self._fresh(seen.at, self._cache_seconds):
            return seen.key
        try:
            key = await self._read(key_id)
        except StoreUnavailable:
            if seen is None or not self._fresh(seen.at, self._stale_seconds):
                raise
            return seen.key
        if len(self._seen) >= MOST_CACHED:  # somebody tries ids: forget the oldest half rather than grow
            for old in list(self._seen)[: MOST_CACHED // 2]:
                del self._seen[old]
        self._seen.pop(key_id, None)
        self._seen[key_id] = _Seen(key, self._monotonic())
        return key

    async def _read(self, key_id: str) -> ApiKey | None:
        found = await self._find(_KEY, key_id)
        return None if found is None else _whole(found, await self._find(_END, key_id), None)

    async def _find(self, kind: str, key_id: str) -> Document | None:
        try:
            return await self._store.document(kind, key_id)
        except DocumentNotFound:
            return None

    async def _documents(self, kind: str) -> AsyncIterator[Document]:
        cursor: str | None = None
        while True:
            try:
                page = await self._store.documents(_ROOM, kind, cursor=cursor, limit=LARGEST_PAGE)
            except ConversationNotFound:
                return
            for one in page.items:
                yield one
            cursor = page.cursor
            if cursor is None:
                return

    async def _make_room(self) -> None:
        with suppress(VersionConflict):
            await self._store.append(_ROOM, [], expected_version=0)

    def _fresh(self, at: float, seconds: float) -> bool:
        return self._monotonic() - at < seconds

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)


def refused(problem: str) -> RequestRefused:
    """What is answered to whoever may not come in."""
    return RequestRefused(401, problem, "invalid_api_key", None, _CHALLENGE)


def _whole(document: Document, end: Document | None, use: Document | None) -> ApiKey:
    ends_at = None if end is None else datetime.fromisoformat(end.body["at"])
    last_used_at = None if use is None else datetime.fromisoformat(use.body["at"])
    return key_from(document.body, ends_at=ends_at, last_used_at=last_used_at)
