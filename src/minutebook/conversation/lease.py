"""Holds the lease of a conversation for the duration of a block. All leases of a process are renewed together."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import ConversationBusy, LeaseLost, StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, LeasedConversation, LoadedConversation

_POLL_SECONDS: Final = 0.1
_LOG: Final = logging.getLogger("minutebook.conversation")


@asynccontextmanager
async def hold_lease(
    store: ConversationStore,
    conversation: str,
    holder: str,
    *,
    seconds: float,
    wait: bool = False,
    load: bool = False,
    folded: bool = False,
    since: int | None = None,
) -> AsyncIterator["RenewedLease"]:
    """Hold the conversation's lease for this block. It is renewed after every third of its duration.

    If another holder takes the lease over, the current task is cancelled and the block raises `LeaseLost`. With `wait`,
    a lease that expires within `seconds` is waited for: its holder may have crashed. With `load`, the conversation is
    loaded together with the lease; `folded` and `since` are those of `ConversationStore.load`.

    Raises:
        ConversationBusy: another holder has the lease.
        LeaseLost: the lease expired and another holder took it.
    """
    if wait:
        await _wait_for_crashed_holder(store, conversation, holder, seconds=seconds)
    if load:
        leased = await store.acquire_and_load(conversation, holder, seconds=seconds, folded=folded, since=since)
    else:
        leased = LeasedConversation(await store.acquire_lease(conversation, holder, seconds=seconds), None)
    renewed_lease = RenewedLease(store, leased.lease, seconds, asyncio.current_task(), leased.loaded)
    renewed_lease.start_renewal()
    try:
        yield renewed_lease
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if renewed_lease.lost is None or task is None:
            raise
        task.uncancel()  # the renewal cancelled the task, not its owner
        raise renewed_lease.lost from None
    finally:
        await renewed_lease.release()


async def _wait_for_crashed_holder(store: ConversationStore, conversation: str, holder: str, *, seconds: float) -> None:
    """Acquire the lease, or wait until its holder releases it or would have lost it; at most for `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            await store.acquire_lease(conversation, holder, seconds=seconds)
        except ConversationBusy:
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return


@dataclass(slots=True, eq=False)
class RenewedLease:
    """A lease that is renewed until it is released."""

    store: ConversationStore
    lease: Lease
    seconds: float
    owner: "asyncio.Task[Any] | None"
    """Cancelled if another holder takes the lease."""
    loaded: LoadedConversation | None = None
    """The conversation when the lease was acquired; None if it did not exist, or was not loaded."""
    lost: LeaseLost | None = None
    """Set when another holder has taken the lease, or the conversation was erased."""
    is_released: bool = False

    @asynccontextmanager
    async def release_on_append(self) -> AsyncIterator[None]:
        """Wrap an append that releases the lease if it succeeds. The lease is not renewed meanwhile."""
        self._stop_renewal()
        yield
        self.is_released = True

    def on_renewal(self, lease: Lease | None) -> None:
        """Note the result of a renewal: the renewed lease, or None if the lease is lost."""
        if lease is not None:
            self.lease = lease
            return
        _LOG.warning("the lease was lost to another holder; the run is cancelled")
        self.lost = LeaseLost(self.lease.conversation, self.lease.holder, self.lease.fence)
        self._stop_renewal()
        if self.owner is not None:
            self.owner.cancel()

    def start_renewal(self) -> None:
        """Renew the lease, together with all other leases that this event loop holds in the store."""
        key = (LeaseRenewer, asyncio.get_running_loop(), self.seconds)
        self.store.shared.setdefault(key, LeaseRenewer(self.store, self.seconds)).add(self)

    def _stop_renewal(self) -> None:
        key = (LeaseRenewer, asyncio.get_running_loop(), self.seconds)
        renewer: LeaseRenewer | None = self.store.shared.get(key)
        if renewer is not None and renewer.remove(self):
            del self.store.shared[key]

    async def release(self) -> None:
        """Stop the renewal and release the lease."""
        self._stop_renewal()
        if not self.is_released:
            await self._release_in_store()

    async def _release_in_store(self) -> None:
        try:
            await asyncio.shield(self.store.release_lease(self.lease))
        except StoreUnavailable:
            _LOG.warning("a lease could not be released: the database is unavailable; it will expire")


@dataclass(slots=True)
class RenewalCounts:
    """Renewals of leases by one process, since its start, for metrics."""

    calls: int = 0
    """Calls that renewed all leases of a duration."""
    leases: int = 0
    lost: int = 0
    """Leases that another holder had taken, or whose conversation was erased."""


def renewal_counts(store: ConversationStore) -> RenewalCounts:
    """The counts of all handles on a store."""
    counts: RenewalCounts = store.shared.setdefault(RenewalCounts, RenewalCounts())
    return counts


class LeaseRenewer:
    """Renews all leases of one duration that an event loop holds in a store, of all tenants, with one call.

    It does so after every third of the duration, so a lease is renewed in time whenever it was acquired.
    """

    def __init__(self, store: ConversationStore, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self._leases: set[RenewedLease] = set()
        self._timer: asyncio.TimerHandle | None = None
        """Starts the next renewal. A timer is cheaper than a task, and most answers finish before the first renewal."""
        self._renewal: asyncio.Task[None] | None = None

    def add(self, lease: RenewedLease) -> None:
        self._leases.add(lease)
        if self._timer is None:
            self._schedule()

    def remove(self, lease: RenewedLease) -> bool:
        """Remove a lease; return whether it was the last one, so that the renewal ends."""
        self._leases.discard(lease)
        if self._leases:
            return False
        if self._timer is not None:
            self._timer.cancel()
        return True

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds / 3, self._start)

    def _start(self) -> None:
        self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        leases = list(self._leases)
        try:
            results = await self._store.renew_leases([lease.lease for lease in leases], seconds=self._seconds)
        except StoreUnavailable:
            _LOG.warning("the leases could not be renewed: the database is unavailable")
        else:
            counts = renewal_counts(self._store)
            counts.calls += 1
            counts.leases += len(leases)
            counts.lost += sum(result is None for result in results)
            for lease, result in zip(leases, results, strict=True):
                if lease in self._leases:  # not released meanwhile
                    lease.on_renewal(result)
        if self._leases:
            self._schedule()
