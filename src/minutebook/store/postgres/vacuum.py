"""Making what was removed unreadable: tables that rows were deleted from are written anew, without them."""

from typing import Final

import psycopg
from psycopg import AsyncConnection, sql

from minutebook.errors import StoreUnavailable

_ALSO: Final = ("conversation", "payload", "fold", "pin", "answer", "word", "lease")
"""The tables that an erasure reaches besides the part of the entries that is noted."""
_MARKS: Final = "SELECT relation, times, relation::regclass::text AS name FROM minutebook.removed"
_DOCUMENTS: Final = "SELECT pg_relation_size('minutebook.document') > 0"
_QUEUE: Final = "SELECT to_regclass('minutebook_jobs.procrastinate_jobs') IS NOT NULL"


async def vacuum(db: AsyncConnection, store: str) -> None:
    """Write anew what rows were removed from since the last time; nothing, if there were none.

    Documents come and go all the time, and are not noted: their table is written anew whenever there is something in it.
    A mark is taken away only if nothing was removed again in the meantime: an erasure during the work is for the next.
    """
    try:
        marks = await (await db.execute(_MARKS)).fetchall()
        documents = (await (await db.execute(_DOCUMENTS)).fetchone() or (None,))[0]
        if not marks and not documents:
            return
        relations = {name for _, _, name in marks} | {f"minutebook.{name}" for name in (_ALSO if marks else ())}
        if documents:
            relations.add("minutebook.document")
        if marks and (await (await db.execute(_QUEUE)).fetchone() or (None,))[0]:
            relations.add("minutebook_jobs.procrastinate_jobs")
        for relation in sorted(relations):
            await db.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(*relation.split("."))))
        for relation, times, _ in marks:
            gone = "DELETE FROM minutebook.removed WHERE relation = %s AND times = %s"
            await db.execute(gone, (relation, times))
    except psycopg.errors.InsufficientPrivilege as problem:
        raise StoreUnavailable(store, "may only be vacuumed by the owner of its tables") from problem
    await _renew_log(db)


async def _renew_log(db: AsyncConnection) -> None:
    """Begin a new write-ahead log, so that the server can do away with the old one; it needs a role of its own."""
    for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
        try:
            await db.execute(statement)
        except psycopg.errors.InsufficientPrivilege:  # the server does it by itself, later
            return
