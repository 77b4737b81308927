"""Holds and renews the lease of one conversation for the duration of a block."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import ConversationBusy, LeaseLost, StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease

_POLL_SECONDS: Final = 0.1
_LOG: Final = logging.getLogger("minutebook.service")


@asynccontextmanager
async def hold_lease(
    store: ConversationStore, conversation: str, holder: str, *, seconds: float, wait: bool = False
) -> AsyncIterator["RenewedLease"]:
    """Hold the conversation's lease for this block. It is renewed after every third of its duration.

    If another holder takes the lease over, the current task is cancelled and the block raises `LeaseLost`. With `wait`,
    a lease that expires within `seconds` is waited for: its holder may have crashed.

    Raises:
        ConversationBusy: another holder has the lease.
        LeaseLost: the lease expired and another holder took it.
    """
    if wait:
        await _wait_for_crashed_holder(store, conversation, holder, seconds=seconds)
    renewed_lease = RenewedLease(store, await store.acquire_lease(conversation, holder, seconds=seconds), seconds)
    renewed_lease.schedule_renewal(asyncio.current_task())
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


@dataclass(slots=True)
class RenewedLease:
    """A lease that renews itself until it is released."""

    store: ConversationStore
    lease: Lease
    seconds: float
    lost: LeaseLost | None = None
    """Set when another holder has taken the lease."""
    is_released: bool = False
    _timer: asyncio.TimerHandle | None = None
    """Starts the next renewal. A timer is cheaper than a task, and most answers finish before the first renewal."""
    _renewal: "asyncio.Task[None] | None" = None

    def schedule_renewal(self, owner: "asyncio.Task[Any] | None") -> None:
        """Renew the lease after a third of its duration. If another holder has taken it, cancel `owner`."""
        self._timer = asyncio.get_running_loop().call_later(self.seconds / 3, self._start_renewal, owner)

    def _start_renewal(self, owner: "asyncio.Task[Any] | None") -> None:
        self._renewal = asyncio.create_task(self._renew(owner))

    async def _renew(self, owner: "asyncio.Task[Any] | None") -> None:
        try:
            self.lease = await self.store.renew_lease(self.lease, seconds=self.seconds)
        except LeaseLost as lost:
            _LOG.warning("the lease was lost to another holder; the run is cancelled")
            self.lost = lost
            if owner is not None:
                owner.cancel()
            return
        except StoreUnavailable:
            _LOG.warning("a lease could not be renewed: the database is unavailable")
        self.schedule_renewal(owner)

    @asynccontextmanager
    async def release_on_append(self) -> AsyncIterator[None]:
        """Wrap an append that releases the lease if it succeeds. The lease is not renewed meanwhile."""
        await self._stop_renewal()
        yield
        self.is_released = True

    async def _stop_renewal(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
            # Awaiting the task itself would raise its CancelledError, which looks like a cancellation of the caller.
            await asyncio.wait({self._renewal})

    async def release(self) -> None:
        """Stop the renewal and release the lease."""
        try:
            await self._stop_renewal()
        finally:
            if not self.is_released:
                await self._release_in_store()

    async def _release_in_store(self) -> None:
        try:
            await asyncio.shield(self.store.release_lease(self.lease))
        except StoreUnavailable:
            _LOG.warning("a lease could not be released: the database is unavailable; it will expire")
