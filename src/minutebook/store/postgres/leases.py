"""Leases as rows, by the clock of the database.

Who takes or renews one holds a lock for that id, which needs no row; an append that shows a lease holds its row, so that
nobody takes it before that is committed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from minutebook.errors import ConversationErased
from minutebook.store.codec import microseconds, moment
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres.connection import Query, Work
from minutebook.store.rules import tombstone
from minutebook.store.types import Lease, end_of, kept_fence, require_standing, stands

_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_LOCK: Final = "SELECT pg_advisory_xact_lock(%s)"
_FIND: Final = "SELECT holder, fence, until FROM minutebook.lease WHERE tenant = %s AND id = %s"
_HELD: Final = (
    "SELECT id, holder, fence, until FROM minutebook.lease"
    " WHERE tenant = %s AND id = ANY(%s::bytea[]) ORDER BY id FOR SHARE"
)
_TAKE: Final = (
    "INSERT INTO minutebook.lease (tenant, id, holder, until, fence) VALUES (%s, %s, %s, %s, nextval('minutebook.fence'))"
    " ON CONFLICT (tenant, id) DO UPDATE SET holder = excluded.holder, until = excluded.until, fence = excluded.fence"
    " RETURNING fence"
)
_RENEW: Final = "UPDATE minutebook.lease SET until = %s WHERE tenant = %s AND id = %s AND fence = %s"
_RELEASE: Final = "DELETE FROM minutebook.lease WHERE tenant = %s AND id = %s AND fence = %s"


async def acquire(work: Work, conversation: str, holder: str, seconds: float) -> Lease:
    """Take a lease, or have it for longer."""
    known, at = await _locked(work, conversation)
    until = end_of(at, seconds)
    fence = kept_fence(known, conversation, holder, at)
    place = (work.tenant, tombstone(work.tenant, conversation))
    if fence is not None:
        await work.put(_RENEW, microseconds(until), *place, fence)
    else:
        fence = int((await work.row(_TAKE, *place, holder, microseconds(until)))[0])
    await _require_not_erased(work, conversation)
    return Lease(conversation, holder, fence, until)


async def renew(work: Work, lease: Lease, seconds: float) -> Lease:
    """Have a lease for longer."""
    known, at = await _locked(work, lease.conversation)
    await _require_not_erased(work, lease.conversation)
    require_standing(known, lease, at)
    until = end_of(at, seconds)
    place = (work.tenant, tombstone(work.tenant, lease.conversation))
    await work.put(_RENEW, microseconds(until), *place, lease.fence)
    return replace(lease, until=until)


async def release(work: Work, lease: Lease) -> None:
    """Give a lease back, if it stands."""
    known, at = await _locked(work, lease.conversation)
    if stands(known, lease, at):
        await work.put(_RELEASE, work.tenant, tombstone(work.tenant, lease.conversation), lease.fence)


async def held(work: Work, conversations: Iterable[str]) -> tuple[Mapping[str, Lease], datetime]:
    """The leases on some conversations, which stay as they are until the transaction ends, and the time."""
    marks = {tombstone(work.tenant, name): name for name in conversations}
    rows = await work.rows(_HELD, work.tenant, list(marks))
    now = (await work.row(_NOW))[0]
    return {
        marks[mark]: Lease(marks[mark], holder, fence, moment(until)) for mark, holder, fence, until in rows
    }, moment(now)


def given_back(tenant: str, lease: Lease) -> Query:
    """Gives a lease back that stands, or did."""
    return _RELEASE, (tenant, tombstone(tenant, lease.conversation), lease.fence)


def sweep(tenant: str) -> Query:
    """Removes all of a tenant's that have run out."""
    return f"DELETE FROM minutebook.lease WHERE tenant = %s AND until <= ({_NOW})", (tenant,)  # noqa: S608 - a constant


def forget(tenant: str, conversations: Iterable[str]) -> Query:
    """Removes those on conversations that are erased."""
    marks = [tombstone(tenant, name) for name in conversations]
    return "DELETE FROM minutebook.lease WHERE tenant = %s AND id = ANY(%s::bytea[])", (tenant, marks)


async def _locked(work: Work, conversation: str) -> tuple[Lease | None, datetime]:
    """The last lease on a conversation, which nobody else changes any more, and the time of the database."""
    mark = tombstone(work.tenant, conversation)
    lock = int.from_bytes(mark[:8], signed=True)
    _, rows, ((now,),) = await work.ask((_LOCK, (lock,)), (_FIND, (work.tenant, mark)), (_NOW, ()))
    known = Lease(conversation, rows[0][0], rows[0][1], moment(rows[0][2])) if rows else None
    return known, moment(now)


async def _require_not_erased(work: Work, conversation: str) -> None:
    if await postgres_rows.buried(work, [conversation]):
        raise ConversationErased(conversation)
