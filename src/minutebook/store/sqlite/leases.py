"""Leases as rows.

Taking, renewing and giving back a lease is committed without waiting for the disk, unless it shares a commit with
something that waits. Other processes see it all the same, and it outlives every process but not a power cut, which ends
the holders, too. An append under a lease does wait, and the log is synced in order: what a fence has let in never
outlives the fence.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

import apsw

from minutebook.store.codec import microseconds, moment
from minutebook.store.rules import tombstone
from minutebook.store.sqlite import headers as sqlite_rows
from minutebook.store.sqlite.connection import Unit
from minutebook.store.types import Lease, end_of, kept_fence, require_standing, stands

_TAKE: Final = "INSERT INTO lease (id, holder, until) VALUES (?, ?, ?)"


def acquire(unit: Unit, tenant: str, conversation: str, holder: str, seconds: float, at: datetime) -> Lease:
    """Take a lease, or have it for longer."""
    db, name = unit.db, (tenant, conversation)
    if name not in unit.known:
        filed = sqlite_rows.find(db, tenant, conversation)  # raises if it was erased
        if filed is not None:
            unit.known[name] = filed
    place, until = tombstone(tenant, conversation), end_of(at, seconds)
    last = find(db, tenant, conversation)
    fence = kept_fence(last, conversation, holder, at)
    if fence is None:
        if last is not None:
            db.execute("DELETE FROM lease WHERE id = ?", (place,))
        db.execute(_TAKE, (place, holder, microseconds(until)))
        fence = db.last_insert_rowid()
    else:
        db.execute("UPDATE lease SET until = ? WHERE id = ?", (microseconds(until), place))
    return Lease(conversation, holder, fence, until)


def renew(db: apsw.Connection, tenant: str, lease: Lease, seconds: float, at: datetime) -> Lease:
    """Have a lease for longer."""
    sqlite_rows.find(db, tenant, lease.conversation)
    require(db, tenant, lease, at)
    until = end_of(at, seconds)
    db.execute("UPDATE lease SET until = ? WHERE id = ?", (microseconds(until), tombstone(tenant, lease.conversation)))
    return replace(lease, until=until)


def release(db: apsw.Connection, tenant: str, lease: Lease, at: datetime) -> None:
    """Give a lease back, if it stands."""
    if stands(find(db, tenant, lease.conversation), lease, at):
        db.execute("DELETE FROM lease WHERE id = ?", (tombstone(tenant, lease.conversation),))


def require(db: apsw.Connection, tenant: str, lease: Lease, at: datetime) -> None:
    """Raises `LeaseLost` unless the lease stands."""
    require_standing(find(db, tenant, lease.conversation), lease, at)


def find(db: apsw.Connection, tenant: str, conversation: str) -> Lease | None:
    """The last lease on a conversation, run out or not."""
    place = (tombstone(tenant, conversation),)
    row = db.execute("SELECT holder, fence, until FROM lease WHERE id = ?", place).fetchone()
    return None if row is None else Lease(conversation, str(row[0]), int(row[1]), moment(int(row[2])))


def sweep(db: apsw.Connection, at: datetime) -> None:
    """Remove all that have run out."""
    db.execute("DELETE FROM lease WHERE until <= ?", (microseconds(at),))
