"""Leases as rows, found by a hash of tenant and id: a conversation need not exist to be leased.

A commit that only changes leases does not wait for the disk. Other processes see it immediately. It may be lost in a power
cut, after which no holder is running. An append under a lease does wait for the disk, and the log is written in order, so
if the append is on disk, the lease is too.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from minutebook.store.codec import microseconds, moment
from minutebook.store.rules import id_hash
from minutebook.store.sql.headers import require_not_erased
from minutebook.store.sql.transaction import SqlTransaction
from minutebook.store.types import Lease, fence_of_holder, is_same_lease, lease_end

_EXTEND: Final = "UPDATE lease SET until = ? WHERE id = ?"


async def acquire(tx: SqlTransaction, conversation: str, holder: str, seconds: float, at: datetime) -> Lease:
    """Acquire a lease, or extend it if the holder has it already."""
    await require_not_erased(tx, conversation)
    key = id_hash(tx.tenant, conversation)
    stored = await find(tx, tx.tenant, conversation)
    until = lease_end(at, seconds)
    fence = fence_of_holder(stored, conversation, holder, at)
    if fence is not None:
        await tx.execute(_EXTEND, microseconds(until), key)
    else:
        await tx.execute("DELETE FROM lease WHERE id = ?", key)
        insert = "INSERT INTO lease (id, holder, until) VALUES (?, ?, ?) RETURNING fence"
        ((fence,),) = await tx.rows(insert, key, holder, microseconds(until))
    return Lease(conversation, holder, fence, until, tx.tenant)


async def renew(tx: SqlTransaction, leases: Sequence[Lease], seconds: float, at: datetime) -> list[Lease | None]:
    """Extend leases of any tenants; None for each that is lost."""
    until = lease_end(at, seconds)
    renewed: list[Lease | None] = []
    for lease in leases:
        is_own = is_same_lease(await find(tx, lease.tenant, lease.conversation), lease)
        if is_own:
            await tx.execute(_EXTEND, microseconds(until), id_hash(lease.tenant, lease.conversation))
        renewed.append(replace(lease, until=until) if is_own else None)
    return renewed


async def release(tx: SqlTransaction, lease: Lease) -> None:
    """Release a lease; do nothing if another holder has it."""
    key = id_hash(tx.tenant, lease.conversation)
    await tx.execute("DELETE FROM lease WHERE id = ? AND holder = ? AND fence = ?", key, lease.holder, lease.fence)


async def find(tx: SqlTransaction, tenant: str, conversation: str) -> Lease | None:
    """The last lease on a conversation, expired or not."""
    rows = await tx.rows("SELECT holder, fence, until FROM lease WHERE id = ?", id_hash(tenant, conversation))
    return Lease(conversation, rows[0][0], rows[0][1], moment(rows[0][2]), tenant) if rows else None
