"""Leases as rows, found by a hash of tenant and id: a conversation need not exist to be leased.

On PostgreSQL the time is that of the database. Acquiring, renewing and releasing lock the hash of the
conversation, and an append under a lease locks the lease's row, so that no other holder gets the lease before the append
is committed.

On SQLite a commit that only changes leases does not wait for the disk. Other processes see it immediately. It may be
lost in a power cut, after which no holder is running. An append under a lease does wait for the disk, and the log is
written in order, so if the append is on disk, the lease is too.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from minutebook.store.codec import microseconds, moment
from minutebook.store.rules import id_hash
from minutebook.store.sql.headers import require_not_erased
from minutebook.store.sql.transaction import Query, SqlTransaction
from minutebook.store.types import Lease, fence_of_holder, is_active, lease_end, require_active_lease


async def acquire(tx: SqlTransaction, conversation: str, holder: str, seconds: float, at: datetime) -> Lease:
    """Acquire a lease, or extend it if the holder has it already.

    Checks last that the conversation was not erased: an erasure may delete the lease's row while this waits for its lock.
    """
    key = id_hash(tx.tenant, conversation)
    stored, at = await _lock(tx, conversation, at)
    until = lease_end(at, seconds)
    fence = fence_of_holder(stored, conversation, holder, at)
    if fence is not None:
        await _extend(tx, key, until)
    else:
        if stored is not None:
            await tx.execute("DELETE FROM lease WHERE id = ?", key)
        insert = "INSERT INTO lease (id, holder, until) VALUES (?, ?, ?) RETURNING fence"
        ((fence,),) = await tx.rows(insert, key, holder, microseconds(until))
    await require_not_erased(tx, conversation)
    return Lease(conversation, holder, fence, until)


async def renew(tx: SqlTransaction, lease: Lease, seconds: float, at: datetime) -> Lease:
    """Extend an active lease."""
    stored, at = await _lock(tx, lease.conversation, at)
    await require_not_erased(tx, lease.conversation)
    require_active_lease(stored, lease)
    until = lease_end(at, seconds)
    await _extend(tx, id_hash(tx.tenant, lease.conversation), until)
    return replace(lease, until=until)


async def release(tx: SqlTransaction, lease: Lease, at: datetime) -> None:
    """Release a lease; do nothing if it is not active."""
    stored, _ = await _lock(tx, lease.conversation, at)
    if is_active(stored, lease):
        await tx.execute("DELETE FROM lease WHERE id = ?", id_hash(tx.tenant, lease.conversation))


async def find(tx: SqlTransaction, conversation: str) -> Lease | None:
    """The last lease on a conversation, expired or not."""
    return _lease(conversation, (await tx.query(_select(tx, conversation)))[0])


async def _extend(tx: SqlTransaction, key: bytes, until: datetime) -> None:
    await tx.execute("UPDATE lease SET until = ? WHERE id = ?", microseconds(until), key)


async def _lock(tx: SqlTransaction, conversation: str, at: datetime) -> tuple[Lease | None, datetime]:
    """Lock the lease of a conversation until the transaction ends; return it, expired or not, and the current time."""
    key = id_hash(tx.tenant, conversation)
    rows, at = await tx.query_locked(key, at, _select(tx, conversation))
    return _lease(conversation, rows), at


def _select(tx: SqlTransaction, conversation: str) -> Query:
    return "SELECT holder, fence, until FROM lease WHERE id = ?", (id_hash(tx.tenant, conversation),)


def _lease(conversation: str, rows: list[Any]) -> Lease | None:
    return Lease(conversation, rows[0][0], rows[0][1], moment(rows[0][2])) if rows else None
