"""How many tokens a key has used today, over all replicas and restarts.

Every replica has a document of its own for each key and day, so nobody waits for another and nothing is overwritten. In
it the replica claims tokens ahead, a block at a time, and only then lets requests use them: the sum of the claims is
never less than what was used, whoever crashes. A claim is written before the others' are read, so two replicas that
claim the last tokens at one moment see each other. A write is made for a block, not for a request; blocks get smaller
as the day's tokens run out.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from minutebook.errors import ConversationNotFound, StoreUnavailable, VersionConflict
from minutebook.service.apikey import RESERVED_TENANT
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import NewDocument
from minutebook.store.rules import LARGEST_PAGE, now

_LOG: Final = logging.getLogger("minutebook.service")
_KIND: Final = "tally"
_SHARE: Final = 8
"""A block is this part of what is left, or one request if that is more."""


@dataclass(eq=False, slots=True)
class _Day:
    """One key's tokens on one day, as this replica knows them."""

    key_id: str
    date: str
    ends_at: datetime
    claimed: int = 0
    """What our document says; never less than what we used and have promised."""
    used: int = 0
    told: int = 0
    """What our document says we used."""
    promised: int = 0
    """What requests on their way may use at most."""
    others_claimed: int = 0
    others_used: int = 0
    quiet: bool = False
    """Whether nothing was promised since the last flush."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def ours(self) -> int:
        return self.used + self.promised


@dataclass(eq=False, slots=True)
class Promise:
    """Tokens that a request may use. What it used in truth is told once, with `settle`."""

    most: int
    _day: _Day | None

    def settle(self, tokens: int) -> None:
        """Say what was used."""
        if self._day is not None:
            self._day.promised -= self.most
            self._day.used += tokens
            self._day = None


@dataclass(frozen=True, slots=True)
class Spent:
    """Why no tokens can be promised."""

    retry_seconds: float
    for_today: bool
    """Whether they are used up; if not, requests on their way may still give some back."""


class Tally:
    """Tokens per key and day. With `optional` it counts on alone while the store is away."""

    def __init__(
        self, store: ConversationStore, *, clock: Callable[[], datetime] = now, optional: bool = False
    ) -> None:
        self._store = store.for_tenant(RESERVED_TENANT)
        self._clock, self._optional = clock, optional
        self._replica = uuid4().hex
        self._days: dict[str, _Day] = {}

    async def promise(self, key_id: str, limit: int, most: int) -> Promise | Spent:
        """Tokens for a request that uses `most` at most, if the day's limit is not reached.

        What the last one uses beyond the limit is all that goes beyond it, if requests keep within their `most`.
        """
        day = self._today(key_id)
        async with day.lock:
            if day.others_claimed + day.ours >= limit or day.ours + most > day.claimed:
                refused = await self._claim(day, limit, most)
                if refused is not None:
                    return refused
            day.promised += most
            day.quiet = False
            return Promise(most, day)

    async def used(self, key_id: str) -> int:
        """What was used today, by all replicas; the others' as they last wrote it."""
        day = self._today(key_id)
        await self._look(day)
        return day.others_used + day.used

    async def flush(self, *, closing: bool = False) -> None:
        """Write down what was used, and give back what was claimed and is not needed.

        It is called every few seconds and, with `closing`, at the end.
        """
        for day in list(self._days.values()):
            async with day.lock:
                try:
                    await self._settle(day, closing=closing)
                except StoreUnavailable:
                    _LOG.warning("tallies of tokens could not be written: the database cannot be reached")
                    return
        today = self._clock().astimezone(UTC).date().isoformat()
        self._days = {key: day for key, day in self._days.items() if day.date == today or day.promised}

    async def _settle(self, day: _Day, *, closing: bool) -> None:
        """Bring our document up to date, and what we know of the others' as well while requests come."""
        needed = day.ours if day.quiet or closing else max(day.claimed, day.ours)
        if (needed, day.used) != (day.claimed, day.told):
            await self._write(day, needed)
        if not day.quiet and not closing:
            await self._look(day)
        day.quiet = True

    async def _claim(self, day: _Day, limit: int, most: int) -> Spent | None:
        try:
            await self._look(day)
            if day.others_claimed + day.ours >= limit:
                return self._spent(day, limit)
            left = limit - day.others_claimed - day.ours
            before = day.claimed
            await self._write(day, day.ours + max(most, left // _SHARE))
            await self._look(day)
            if day.others_claimed + day.ours >= limit:  # somebody else claimed at the same moment
                await self._write(day, max(before, day.ours))
                return self._spent(day, limit)
        except StoreUnavailable:
            if not self._optional:
                raise
            day.claimed = max(day.claimed, day.ours + most)
            return self._spent(day, limit) if day.others_claimed + day.ours >= limit else None
        return None

    def _spent(self, day: _Day, limit: int) -> Spent:
        if day.others_used + day.used < limit:
            return Spent(1.0, for_today=False)
        return Spent(max(1.0, (day.ends_at - self._clock()).total_seconds()), for_today=True)

    async def _look(self, day: _Day) -> None:
        """Read what the other replicas claim, and what those claimed that are gone."""
        claimed = used = 0
        cursor: str | None = None
        while True:
            try:
                page = await self._store.documents(_room(day.key_id), _KIND, cursor=cursor, limit=LARGEST_PAGE)
            except ConversationNotFound:
                break
            others = [
                one.body for one in page.items if one.body["date"] == day.date and one.body["replica"] != self._replica
            ]
            claimed += sum(body["claimed"] for body in others)
            used += sum(body["used"] for body in others)
            cursor = page.cursor
            if cursor is None:
                break
        day.others_claimed, day.others_used = claimed, used

    async def _write(self, day: _Day, claimed: int) -> None:
        used = day.used
        body = {"date": day.date, "replica": self._replica, "claimed": claimed, "used": used}
        document = NewDocument(
            _KIND,
            f"{day.key_id}:{day.date}:{self._replica}",
            body,
            expires_at=day.ends_at + timedelta(days=1),
            replace=True,
        )
        try:
            await self._store.put_document(_room(day.key_id), document)
        except ConversationNotFound:
            with suppress(VersionConflict):
                await self._store.append(_room(day.key_id), [], expected_version=0)
            await self._store.put_document(_room(day.key_id), document)
        day.claimed, day.told = claimed, used

    def _today(self, key_id: str) -> _Day:
        at = self._clock().astimezone(UTC)
        date = at.date().isoformat()
        day = self._days.get(key_id)
        if day is None or day.date != date:
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            day = self._days[key_id] = _Day(key_id, date, midnight)
        return day


def _room(key_id: str) -> str:
    return f"tally:{key_id}"
