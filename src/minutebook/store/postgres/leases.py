"""What a group of appends asks of the leases, which go by the clock of the database."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from minutebook.store.codec import moment
from minutebook.store.postgres.connection import Work
from minutebook.store.rules import tombstone
from minutebook.store.sql.transaction import Query
from minutebook.store.types import Lease

NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_HELD: Final = (
    "SELECT id, holder, fence, until FROM minutebook.lease"
    " WHERE tenant = %s AND id = ANY(%s::bytea[]) ORDER BY id FOR SHARE"
)
_RELEASE: Final = "DELETE FROM minutebook.lease WHERE tenant = %s AND id = %s AND fence = %s"


async def held(work: Work, conversations: Iterable[str]) -> tuple[Mapping[str, Lease], datetime]:
    """The leases on some conversations, which stay as they are until the transaction ends, and the time."""
    marks = {tombstone(work.tenant, name): name for name in conversations}
    rows = await work.rows(_HELD, work.tenant, list(marks))
    now = (await work.row(NOW))[0]
    return {
        marks[mark]: Lease(marks[mark], holder, fence, moment(until)) for mark, holder, fence, until in rows
    }, moment(now)


def given_back(tenant: str, lease: Lease) -> Query:
    """Gives a lease back that stands, or did."""
    return _RELEASE, (tenant, tombstone(tenant, lease.conversation), lease.fence)
