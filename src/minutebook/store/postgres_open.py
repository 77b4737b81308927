"""Connecting to a database, and the steps that bring an older one up to date."""

from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from minutebook.errors import StoreDamaged, StoreUnavailable
from minutebook.store.postgres_errors import errors_of

SETTINGS: Final[dict[str, Any]] = {
    "autocommit": True,  # transactions are begun and ended by hand, with what they need in the same message
    "prepare_threshold": None,  # a prepared statement would belong to a session that pgbouncer hands to others
    "client_encoding": "utf8",
    "keepalives_idle": 30,  # a server that vanished is noticed within a minute
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
LOCK: Final = 0x6D626B31
"""The lock under which the steps are run, so that of many processes one does it."""

_STEP: Final = "minutebook, step "
_VERSION: Final = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'minutebook'"
"""From the table itself: `to_regnamespace` may answer from what this connection knew before it waited for the lock."""


async def connected(url: str, store: str, patience_seconds: float) -> AsyncConnection:
    """A connection of its own, outside of any pool."""
    with errors_of(store):
        return await AsyncConnection.connect(url, connect_timeout=max(2, int(patience_seconds)), **SETTINGS)


async def migrate(db: AsyncConnection, store: str) -> None:
    """Run the numbered steps that this database has not seen. An up-to-date one is only looked at."""
    with errors_of(store):
        await _require_unicode(db, store)
        if await _is_current(db, store):
            return
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if await _is_current(db, store):
                return
            done = await _version(db, store)
            for number, script in steps():
                if number > done:
                    await _run(db, store, number, script)


async def _run(db: AsyncConnection, store: str, number: int, script: str) -> None:
    try:
        await db.execute(script.encode())
        await db.execute(f"COMMENT ON SCHEMA minutebook IS '{_STEP}{number}'")
    except psycopg.errors.InsufficientPrivilege as problem:
        wanted = f"needs step {number} of its tables, which this user may not make ({problem.diag.message_primary})"
        raise StoreUnavailable(store, f"{wanted}; open it once as their owner, who may create roles") from problem


async def _require_unicode(db: AsyncConnection, store: str) -> None:
    encoding = db.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreDamaged(store, f"is a database in {encoding}, which cannot hold every text; make one in UTF8")


async def _is_current(db: AsyncConnection, store: str) -> bool:
    version, known = await _version(db, store), steps()[-1][0]
    if version > known:
        raise StoreUnavailable(store, f"was written by a newer minutebook (step {version}, not {known})")
    return version == known


async def _version(db: AsyncConnection, store: str) -> int:
    row = await (await db.execute(_VERSION)).fetchone()
    if row is None:
        return 0
    mark = row[0]
    if mark is None or not mark.startswith(_STEP):
        raise StoreDamaged(store, "has a schema called minutebook that another program made")
    return int(mark.removeprefix(_STEP))


def steps() -> list[tuple[int, str]]:
    """The numbered scripts, in order."""
    scripts = [one for one in files("minutebook.store").iterdir() if one.name.startswith("postgres_0")]
    return sorted((int(one.name.split("_")[1]), one.read_text(encoding="utf-8")) for one in scripts)
