"""Leases as rows, found by a hash of tenant and id: a lease need not be on a conversation that exists.

On PostgreSQL they go by the clock of the database. Whoever acquires or renews one has the lock of that id, and an append
under a lease has its row, so that nobody takes it before the append is committed.

On SQLite acquiring, renewing and releasing a lease is committed without waiting for the disk, unless it shares a commit
with something that waits. Other processes see it all the same; it outlives every process but not a power cut, which
ends the holders, too. An append under a lease does wait, and the log is synced in order: what a fence has let in never
outlives the fence.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from minutebook.store.codec import microseconds, moment
from minutebook.store.rules import tombstone
from minutebook.store.sql.headers import require_not_erased
from minutebook.store.sql.transaction import Query, SqlTransaction
from minutebook.store.types import Lease, end_of, kept_fence, require_standing, stands


async def acquire(tx: SqlTransaction, conversation: str, holder: str, seconds: float, at: datetime) -> Lease:
    """Acquire a lease, or extend it.

    Whether the conversation was erased is asked last, since an erasure deletes the row that is waited for here.
    """
    key = tombstone(tx.tenant, conversation)
    known, at = await _lock(tx, conversation, at)
    until = end_of(at, seconds)
    fence = kept_fence(known, conversation, holder, at)
    if fence is not None:
        await _extend(tx, key, until)
    else:
        if known is not None:
            await tx.put("DELETE FROM lease WHERE id = ?", key)
        take = "INSERT INTO lease (id, holder, until) VALUES (?, ?, ?) RETURNING fence"
        ((fence,),) = await tx.rows(take, key, holder, microseconds(until))
    await require_not_erased(tx, conversation)
    return Lease(conversation, holder, fence, until)


async def renew(tx: SqlTransaction, lease: Lease, seconds: float, at: datetime) -> Lease:
    """Extend a lease."""
    known, at = await _lock(tx, lease.conversation, at)
    await require_not_erased(tx, lease.conversation)
    require_standing(known, lease, at)
    until = end_of(at, seconds)
    await _extend(tx, tombstone(tx.tenant, lease.conversation), until)
    return replace(lease, until=until)


async def release(tx: SqlTransaction, lease: Lease, at: datetime) -> None:
    """Release a lease, if it stands."""
    known, at = await _lock(tx, lease.conversation, at)
    if stands(known, lease, at):
        await tx.put("DELETE FROM lease WHERE id = ?", tombstone(tx.tenant, lease.conversation))


async def find(tx: SqlTransaction, conversation: str) -> Lease | None:
    """The last lease on a conversation, expired or not."""
    return _lease(conversation, (await tx.rows_of(_query(tx, conversation)))[0])


async def _extend(tx: SqlTransaction, key: bytes, until: datetime) -> None:
    await tx.put("UPDATE lease SET until = ? WHERE id = ?", microseconds(until), key)


async def _lock(tx: SqlTransaction, conversation: str, at: datetime) -> tuple[Lease | None, datetime]:
    """The last lease on a conversation, which nobody else changes any more, and the time."""
    key = tombstone(tx.tenant, conversation)
    rows, at = await tx.rows_locked(key, at, _query(tx, conversation))
    return _lease(conversation, rows), at


def _query(tx: SqlTransaction, conversation: str) -> Query:
    return "SELECT holder, fence, until FROM lease WHERE id = ?", (tombstone(tx.tenant, conversation),)


def _lease(conversation: str, rows: list[Any]) -> Lease | None:
    return Lease(conversation, rows[0][0], rows[0][1], moment(rows[0][2])) if rows else None
