"""Leases: each operation is one call of a server function. The time is that of the database.

Acquiring locks the hash of the conversation, so that fences grow with each lease. An append under a lease locks the
lease's row, so that no other holder gets the lease before the append is committed.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from psycopg import AsyncConnection

from minutebook.errors import ConversationBusy, ConversationErased
from minutebook.store.backend import LoadQuery
from minutebook.store.codec import moment
from minutebook.store.postgres.functions import ServerFunction, result_rows
from minutebook.store.postgres.load import LOAD_PARAMETERS, load_arguments
from minutebook.store.rules import id_hash
from minutebook.store.types import Lease

_ACQUIRE: Final = ServerFunction(
    "acquire_lease", *("text", "text", "bytea", "int8", "text", "float8", "bool", "text"), *LOAD_PARAMETERS
)
_RENEW: Final = ServerFunction("renew_leases", "text", "jsonb", "float8")
_RELEASE: Final = ServerFunction("release_lease", "text", "text", "bytea", "int8")
_BUSY: Final = 6 << 40
"""The key of the row that has the lease of another holder."""


async def acquire(
    db: AsyncConnection,
    tenant: str,
    lock_milliseconds: int,
    holder: str,
    seconds: float,
    query: LoadQuery,
    *,
    loads: bool,
) -> tuple[Lease, Sequence[Sequence[bytes]]]:
    """Acquire a lease, or extend it if the holder has it already; return it and the rows of `minutebook.load`.

    Without `loads`, these are only the row that says that the conversation was erased.
    """
    name = query.conversation
    key = id_hash(tenant, name)
    lock = int.from_bytes(key[:8], signed=True)
    values = (tenant, lock_milliseconds, key, lock, holder, seconds, loads, name, *load_arguments(query))
    (row_key, lease_holder, fence, until), *rows = result_rows(await _ACQUIRE.call(db, *values))
    end = moment(int.from_bytes(until))
    if int.from_bytes(row_key) == _BUSY:
        raise ConversationBusy(name, end)
    if rows and not loads:
        raise ConversationErased(name)
    return Lease(name, lease_holder.decode(), int.from_bytes(fence), end, tenant), rows


async def renew(
    db: AsyncConnection, lock_milliseconds: int, leases: Sequence[Lease], seconds: float
) -> list[Lease | None]:
    """Extend leases of any tenants; None for each that is lost."""
    renewals = [
        {
            "ordinal": ordinal,
            "tenant": lease.tenant,
            "id": f"\\x{id_hash(lease.tenant, lease.conversation).hex()}",
            "holder": lease.holder,
            "fence": lease.fence,
        }
        for ordinal, lease in enumerate(leases)
    ]
    renewed: list[Lease | None] = [None] * len(leases)
    for ordinal, until in result_rows(await _RENEW.call(db, lock_milliseconds, json.dumps(renewals), seconds)):
        index = int.from_bytes(ordinal)
        renewed[index] = replace(leases[index], until=moment(int.from_bytes(until)))
    return renewed


async def release(db: AsyncConnection, tenant: str, lock_milliseconds: int, lease: Lease) -> None:
    """Release a lease; do nothing if another holder has it."""
    await _RELEASE.call(db, tenant, lock_milliseconds, id_hash(tenant, lease.conversation), lease.fence)
