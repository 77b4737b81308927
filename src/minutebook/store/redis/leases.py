"""Leases in Redis: keys that expire some time after the lease, by the clock of the server.

A lease is in the tenant's keys; the conversation that it protects is in the recipient's keys, possibly on another server.
So a new holder writes its fence to the conversation before the lease is returned to it. From then on the conversation
rejects appends under an older lease, however late they are.
"""

from dataclasses import replace
from typing import Final, Literal

from minutebook.errors import ConversationBusy, ConversationErased, LeaseLost
from minutebook.store.codec import moment
from minutebook.store.redis.connection import Value
from minutebook.store.redis.keys import IdClaim
from minutebook.store.redis.tenant import VOID_MILLISECONDS, TenantIndex
from minutebook.store.types import LEASE_GRACE, Lease

_GRACE_MILLISECONDS: Final = int(LEASE_GRACE.total_seconds() * 1000)


async def acquire(index: TenantIndex, conversation: str, holder: str, seconds: float) -> Lease:
    """Acquire a lease, or extend the one that the holder has."""
    id_hash, keys = index.id_hash(conversation), index.keys
    script_keys = [keys.lease(id_hash), keys.last_fence(), keys.index.erased, keys.index.claims]
    args: list[Value] = [id_hash, conversation, holder, _milliseconds(seconds), _GRACE_MILLISECONDS]
    reply = await index.engine.run_script("acquire_lease", script_keys, args)
    if reply[0] == b"erased":
        raise ConversationErased(conversation)
    if reply[0] == b"busy":
        raise ConversationBusy(conversation, moment(int(reply[1]) * 1000))
    fence, until, claim = int(reply[1]), moment(int(reply[2]) * 1000), reply[3]
    if claim:
        conversation_keys = keys.script_keys(IdClaim.parse(claim).recipient, conversation)
        reply = await index.engine.run_script("raise_fence", conversation_keys, [id_hash, fence, VOID_MILLISECONDS])
        if reply[0] == b"erased":
            raise ConversationErased(conversation)
    return Lease(conversation, holder, fence, until, index.tenant)


async def renew(index: TenantIndex, lease: Lease, seconds: float) -> Lease | None:
    """Extend a lease; None if it is lost."""
    try:
        reply = await _run_script(index, lease, "renew", _milliseconds(seconds))
    except (ConversationErased, LeaseLost):
        return None
    return replace(lease, until=moment(int(reply[1]) * 1000))


async def release(index: TenantIndex, lease: Lease) -> None:
    """Release a lease; do nothing if another holder has it."""
    await _run_script(index, lease, "release")


async def require(index: TenantIndex, lease: Lease) -> None:
    """Raise `LeaseLost` if the lease was released or another holder has it."""
    await _run_script(index, lease, "check")


async def _run_script(
    index: TenantIndex, lease: Lease, action: Literal["renew", "release", "check"], milliseconds: int = 0
) -> list[bytes]:
    id_hash, keys = index.id_hash(lease.conversation), index.keys
    args: list[Value] = [id_hash, str(lease.fence), lease.holder, action, milliseconds, _GRACE_MILLISECONDS]
    reply: list[bytes] = await index.engine.run_script(
        "renew_or_release_lease", [keys.lease(id_hash), keys.index.erased], args
    )
    if reply[0] == b"erased":
        raise ConversationErased(lease.conversation)
    if reply[0] == b"lost":
        raise LeaseLost(lease.conversation, lease.holder, lease.fence)
    return reply


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
