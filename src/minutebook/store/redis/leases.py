"""Leases in Redis: keys that go by themselves, by the clock of the server.

A lease is where the tenant's ids are; what it protects is where its recipient's keys are, maybe on another server. So a
new holder shows its fence there before it has the lease: from then on who is slower finds it, however late.
"""

from dataclasses import replace

from minutebook.errors import ConversationBusy, ConversationErased, LeaseLost
from minutebook.store.codec import moment
from minutebook.store.redis.connection import Value
from minutebook.store.redis.keys import Claim
from minutebook.store.redis.tenant import VOID_MILLISECONDS, Shelf
from minutebook.store.types import Lease


async def acquire(shelf: Shelf, conversation: str, holder: str, seconds: float) -> Lease:
    """Take a lease, or have it for longer."""
    mark, keys = shelf.mark(conversation), shelf.keys
    place, _, erased = keys.catalogue()
    places = [keys.lease(mark), keys.fence(), erased, place]
    reply = await shelf.engine.script("acquire_lease", places, [mark, conversation, holder, _milliseconds(seconds)])
    if reply[0] == b"erased":
        raise ConversationErased(conversation)
    if reply[0] == b"busy":
        raise ConversationBusy(conversation, moment(int(reply[1]) * 1000))
    if reply[3]:
        claim = Claim.read(reply[3])
        shown = await shelf.engine.script(
            "check_lease", keys.conversation(claim.recipient, conversation), [mark, int(reply[1]), VOID_MILLISECONDS]
        )
        if shown[0] == b"erased":
            raise ConversationErased(conversation)
    return Lease(conversation, holder, int(reply[1]), moment(int(reply[2]) * 1000))


async def renew(shelf: Shelf, lease: Lease, seconds: float) -> Lease:
    """Have a lease for longer."""
    reply = await _ask(shelf, lease, "renew", _milliseconds(seconds))
    return replace(lease, until=moment(int(reply[1]) * 1000))


async def release(shelf: Shelf, lease: Lease) -> None:
    """Give a lease back, if it stands."""
    await _ask(shelf, lease, "release", 0)


async def require(shelf: Shelf, lease: Lease) -> None:
    """Raises `LeaseLost` unless the lease stands."""
    await _ask(shelf, lease, "look", 0)


async def _ask(shelf: Shelf, lease: Lease, what: str, milliseconds: int) -> list[bytes]:
    mark, keys = shelf.mark(lease.conversation), shelf.keys
    args: list[Value] = [mark, str(lease.fence), lease.holder, what, milliseconds]
    reply: list[bytes] = await shelf.engine.script(
        "renew_or_release_lease", [keys.lease(mark), keys.catalogue()[2]], args
    )
    if reply[0] == b"erased":
        raise ConversationErased(lease.conversation)
    if reply[0] == b"lost":
        raise LeaseLost(lease.conversation, lease.holder, lease.fence)
    return reply


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
