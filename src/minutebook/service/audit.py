"""What was done to a service by those who look after it: a trail in which a changed or missing line is found.

The trail is a conversation of the reserved tenant, of which every entry holds the hash of the one before. The store only
appends, one writer at a time, so several replicas write one trail. Whoever can write to the database could write all of
it anew from some entry on: keep the hash of the last entry elsewhere, as the log does, and `verify` finds that, too.
"""

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal
from uuid import NAMESPACE_URL, uuid5

from minutebook.errors import ConversationNotFound, InvalidSetting, StoreDamaged, VersionConflict
from minutebook.record.entry import ConversationEntry
from minutebook.service.apikey import RESERVED_TENANT
from minutebook.service.caller import Caller
from minutebook.service.redact import redacted
from minutebook.store.contract import ConversationStore
from minutebook.store.rules import now
from minutebook.wire.chat import provider_message_to_entry

Act = Literal["key.create", "key.revoke", "key.rotate", "erase", "undo", "fork", "config.reload"]
_LOG: Final = logging.getLogger("minutebook.audit")
_TRAIL: Final = "audit"
_FIRST: Final = "0" * 64
_PAGE: Final = 500
_EVALUATION: Final = uuid5(NAMESPACE_URL, "minutebook:audit")
LONGEST_TARGET: Final = 512


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act: who did what to what, and when."""

    number: int
    """Counted from 0."""
    at: str
    act: str
    target: str
    tenant: str
    key_id: str | None
    """The API key it was done with; None for whoever has the database, or a service without keys."""
    previous: str
    """The hash of the entry before."""
    sha256: str = ""

    def digest(self) -> str:
        """What its hash must be."""
        facts = {name: value for name, value in asdict(self).items() if name != "sha256"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a trail is whole; false if it is not."""

    length: int
    """How many entries were found to be right, from the first on."""
    last: str
    """The hash of the last of them. Keep it where the database's owner cannot change it."""
    problem: str | None = None

    def __bool__(self) -> bool:
        return self.problem is None


class Audit:
    """The trail of administrative acts."""

    def __init__(self, store: ConversationStore, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store.for_tenant(RESERVED_TENANT)
        self._clock = clock

    async def note(self, caller: Caller, act: Act, target: str) -> AuditEntry:
        """Write down an act. Targets are ids and names; what looks like a secret is taken out.

        What was erased is written as its SHA-256: nobody reads the name of who was forgotten there, and whoever knows
        it can still see that it was done.
        """
        if len(target) > LONGEST_TARGET:
            raise InvalidSetting("target", target, f"an id or a name of up to {LONGEST_TARGET} characters")
        while True:
            entry = await self._next(caller, act, forgotten(target) if act == "erase" else redacted(target))
            try:
                await self._store.append(_TRAIL, [_stored(entry)], expected_version=entry.number)
            except VersionConflict:
                continue  # another replica was first: ours comes after theirs
            _LOG.info("audit", extra=asdict(entry))
            return entry

    async def entries(self, *, since: int = 0) -> AsyncIterator[AuditEntry]:
        """The acts, the oldest first, as they are stored; `verify` says whether they are true."""
        async for _, stored in self._stored(since):
            entry = _read(stored)
            if entry is not None:
                yield entry

    async def verify(self, *, last: str | None = None) -> Verdict:
        """Go through the whole trail. `last` is a hash that it once had at its end, and must still have somewhere."""
        try:
            return await self._verified(last)
        except (StoreDamaged, ValueError):  # bytes that are no text any more are a ValueError in some stores
            return Verdict(0, _FIRST, "the database cannot read its own rows any more")

    async def _verified(self, last: str | None) -> Verdict:
        previous, found, seen = _FIRST, 0, last is None
        async for position, stored in self._stored(0):
            entry = _read(stored)
            if entry is None or position != found:
                return Verdict(found, previous, f"entry {found} is missing or unreadable")
            right = entry.sha256 == entry.digest() and stored == _stored(entry)
            if not right or entry.number != found or entry.previous != previous:
                return Verdict(found, previous, f"entry {found} was changed, or one before it is missing")
            previous, found = entry.sha256, found + 1
            seen = seen or previous == last
        length = await self._length()
        if length != found:
            return Verdict(found, previous, f"there were {length} entries, and {found} are left")
        if not seen:
            return Verdict(
                found, previous, "the hash that was kept is none of this trail: its end was cut off or rewritten"
            )
        return Verdict(found, previous)

    async def _next(self, caller: Caller, act: Act, target: str) -> AuditEntry:
        length = await self._length()
        previous = _FIRST
        async for _, stored in self._stored(max(0, length - 1)):
            last = _read(stored)
            previous = previous if last is None else last.sha256
        at = self._clock().astimezone(UTC).isoformat()
        entry = AuditEntry(length, at, act, target, caller.tenant, caller.key_id, previous)
        return replace(entry, sha256=entry.digest())

    async def _length(self) -> int:
        try:
            return (await self._store.header(_TRAIL)).length
        except ConversationNotFound:
            return 0

    async def _stored(self, since: int) -> AsyncIterator[tuple[int, ConversationEntry]]:
        while True:
            try:
                loaded = await self._store.load(_TRAIL, since=since, limit=_PAGE)
            except ConversationNotFound:
                return
            for position, entry in zip(loaded.positions, loaded.entries, strict=True):
                yield position, entry
            if not loaded.entries:
                return
            since = loaded.positions[-1] + 1


def forgotten(target: str) -> str:
    """What the trail calls something that was erased."""
    return f"sha256:{hashlib.sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _stored(entry: AuditEntry) -> ConversationEntry:
    message = {"role": "user", "content": json.dumps(asdict(entry), sort_keys=True)}
    at = datetime.fromisoformat(entry.at)
    return provider_message_to_entry(message, evaluation_id=_EVALUATION, sequence=entry.number, created_at=at)


def _read(stored: ConversationEntry) -> AuditEntry | None:
    """The act that an entry of the trail holds; None if it holds none."""
    try:
        return AuditEntry(**json.loads(stored.content or ""))
    except (ValueError, TypeError):
        return None
