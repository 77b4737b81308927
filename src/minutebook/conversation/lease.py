"""The lease of one conversation, held and renewed for as long as a block takes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import LeaseLost, StoreUnavailable
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease

_LOG: Final = logging.getLogger("minutebook.service")


@asynccontextmanager
async def held(store: ConversationStore, conversation: str, holder: str, *, seconds: float) -> AsyncIterator["Hold"]:
    """Be the only one who answers in a conversation, for as long as this block takes.

    Raises:
        ConversationBusy: somebody else is.
        LeaseLost: somebody else is by now, since this took longer than the lease and it could not be renewed.
    """
    hold = Hold(store, await store.acquire_lease(conversation, holder, seconds=seconds), seconds)
    hold.keep_for(asyncio.current_task())
    try:
        yield hold
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if hold.lost is None or task is None:
            raise
        task.uncancel()  # it was us, not somebody from outside
        raise hold.lost from None
    finally:
        await hold.let_go()


@dataclass(slots=True)
class Hold:
    """A lease that is renewed while it is needed."""

    store: ConversationStore
    lease: Lease
    seconds: float
    lost: LeaseLost | None = None
    """Set when somebody else has the conversation."""
    is_over: bool = False
    """Whether it was given back."""
    _due: asyncio.TimerHandle | None = None
    """When it is renewed. Most answers are made before that, and need no task for it."""
    _renewal: "asyncio.Task[None] | None" = None

    def keep_for(self, owner: "asyncio.Task[Any] | None") -> None:
        """Renew it from time to time, until it is let go; whoever needs it is cancelled where that cannot be done."""
        self._due = asyncio.get_running_loop().call_later(self.seconds / 3, self._begin, owner)

    def _begin(self, owner: "asyncio.Task[Any] | None") -> None:
        self._renewal = asyncio.create_task(self._renew(owner))

    async def _renew(self, owner: "asyncio.Task[Any] | None") -> None:
        try:
            self.lease = await self.store.renew_lease(self.lease, seconds=self.seconds)
        except LeaseLost as lost:
            _LOG.warning("a run lost its conversation to another one and is stopped")
            self.lost = lost
            if owner is not None:
                owner.cancel()
            return
        except StoreUnavailable:
            _LOG.warning("a lease could not be renewed: the database cannot be reached")
        self.keep_for(owner)

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Around what gives the lease back itself, if it succeeds: it must not be renewed meanwhile."""
        await self._stop()
        yield
        self.is_over = True

    async def _stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})  # and not the task itself: a cancellation of ours must not be lost

    async def let_go(self) -> None:
        """Stop renewing it, and give it back."""
        try:
            await self._stop()
        finally:
            if not self.is_over:
                await self._release()

    async def _release(self) -> None:
        try:
            await asyncio.shield(self.store.release_lease(self.lease))
        except StoreUnavailable:
            _LOG.warning("a lease could not be given back; it runs out by itself")
